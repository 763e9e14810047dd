"""Text from outside, written so that it stays one value: for POSIX shells, for YAML, for Kubernetes.

Pure. Whatever the text holds, a reader of the result gets that text back and nothing else.
"""

import re
import shlex

_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
LABEL_CHARACTERS = 40  # leaves room for what schedulers append within the 63 of a DNS label


def shell(text: str) -> str:
    """Return *text* as one word of a POSIX shell."""
    return shlex.quote(text)


def yaml(text: str) -> str:
    """Return *text* as a double-quoted YAML scalar on one line, valid in YAML 1.1 and 1.2."""
    return '"' + "".join(_SHORT.get(c) or (c if c.isprintable() else _escape(c)) for c in text) + '"'


def kubernetes(text: str) -> str:
    """Return *text* for a container's command, args or env, where Kubernetes itself reads `$(NAME)` and `$$`."""
    return yaml(text.replace("$", "$$"))


def label(text: str) -> str:
    """Return a name made from *text* that is a DNS label and safe in every file here."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower())[:LABEL_CHARACTERS].strip("-")
    return f"datasync-{plain}" if plain else "datasync"


def _escape(character: str) -> str:
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
