"""One pattern of gitignore syntax -> one regular expression over bytes, as git itself matches (`man gitignore`).

Everything is bytes, so `?` and `[...]` stand for one byte and any name can be matched. A line's meaning: blank or
starting with `#`: none; leading `!`: takes an earlier match back; trailing `/`: directories only; a `/` elsewhere:
relative to the directory of the rules, else: a name at any depth. `*` and `?` do not match `/`; `**/`, `/**` and
`/**/` span directories; `\\` takes the next byte literally; trailing spaces count only after `\\`. A malformed
pattern (an open bracket, an unknown class, a lone `\\` at its end) matches nothing. An expression is for `fullmatch`
against one entry's path: what lies beneath an excluded directory is never asked about. Pure; raises nothing.

One difference: where `**` is not a whole component (`a**/b`) it is `*`, as documented; releases of git that strip the
literal `a` first let it span directories.
"""

import re
from typing import NamedTuple

_BLANK = frozenset(b" \t")
_SPACE = frozenset(b" \t\n\r")
_GRAPH = frozenset(range(0x21, 0x7F))
_DIGIT = frozenset(b"0123456789")
_LOWER = frozenset(b"abcdefghijklmnopqrstuvwxyz")
_UPPER = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_ALNUM = _DIGIT | _LOWER | _UPPER
_CLASSES = {
    b"alnum": _ALNUM,
    b"alpha": _LOWER | _UPPER,
    b"blank": _BLANK,
    b"cntrl": frozenset(range(0x20)) | {0x7F},
    b"digit": _DIGIT,
    b"graph": _GRAPH,
    b"lower": _LOWER,
    b"print": _GRAPH | {0x20},
    b"punct": _GRAPH - _ALNUM,
    b"space": _SPACE,
    b"upper": _UPPER,
    b"xdigit": _DIGIT | frozenset(b"abcdefABCDEF"),
}
_SLASH = 0x2F
_SPECIAL = re.compile(rb"\*+|\?|\[|\\.?", re.DOTALL)


class Rule(NamedTuple):
    """What one line says: the expression for a path, whether it takes back, whether only directories are meant."""

    expression: bytes
    negated: bool
    directories: bool


class _MalformedError(Exception):
    """The pattern can not match anything."""


def parse_line(line: bytes) -> Rule | None:
    """Return the rule of *line*, or nothing for a blank line, a comment or a pattern that can not match."""
    if line.startswith(b"#"):
        return None
    text = _trimmed(line.partition(b"\0")[0])
    negated = text.startswith(b"!")
    text = text[1:] if negated else text
    directories = text.endswith(b"/")
    text = text[:-1] if directories else text
    if not text:
        return None
    anywhere = b"/" not in text
    try:
        expression = _translated(text.removeprefix(b"/"), names_only=anywhere)
    except _MalformedError:
        return None
    return Rule(b"(?:.*/)?" + expression if anywhere else expression, negated, directories)


def _trimmed(line: bytes) -> bytes:
    """Drop trailing spaces, except one that a backslash protects."""
    kept = line.rstrip(b" ")
    backslashes = len(kept) - len(kept.rstrip(b"\\"))
    return kept + b" " if backslashes % 2 and len(kept) < len(line) else kept


def _translated(pattern: bytes, *, names_only: bool) -> bytes:
    out = []
    position = 0
    while position < len(pattern):
        special = _SPECIAL.search(pattern, position)
        start = special.start() if special else len(pattern)
        out.append(re.escape(pattern[position:start]))
        if special is None:
            break
        token, position = special.group(), special.end()
        if token == b"?":
            out.append(rb"[^/]")
        elif token == b"[":
            members, position = _bracket(pattern, position)
            out.append(members)
        elif token.startswith(b"\\"):
            out.append(_escaped(token))
        else:
            stars, position = _stars(pattern, start, position, names_only=names_only)
            out.append(stars)
    return b"".join(out)


def _escaped(token: bytes) -> bytes:
    if len(token) == 1:
        raise _MalformedError
    return re.escape(token[1:])


def _stars(pattern: bytes, start: int, end: int, *, names_only: bool) -> tuple[bytes, int]:
    """Translate the run of `*` from *start* to *end*; return the expression and where the pattern goes on."""
    after = pattern[end : end + 2]
    bounded = (start == 0 or pattern[start - 1] == _SLASH) and (not after or after[0] == _SLASH or after == b"\\/")
    if end - start == 1 or not bounded or names_only:
        return rb"[^/]*", end
    if not after or after[0] != _SLASH:
        return rb".*", end
    return rb"(?:.*/)?", end + 1


def _bracket(pattern: bytes, position: int) -> tuple[bytes, int]:
    """Translate the set whose `[` stands before *position*; return the expression and where the pattern goes on."""
    negated = pattern[position : position + 1] in (b"!", b"^")
    position += negated
    members: set[int] = set()
    before: int | None = None  # what a following `-` would start a range from
    first = True
    while first or pattern[position : position + 1] != b"]":
        first = False
        before, position = _member(pattern, position, before, members)
    matched = frozenset(range(256)) - members if negated else members
    return _one_of(matched - {_SLASH}), position + 1


def _member(pattern: bytes, position: int, before: int | None, members: set[int]) -> tuple[int | None, int]:
    """Add one byte, range or class to *members*; return what a range could start from, and the next position."""
    if pattern.startswith(b"[:", position):
        end = pattern.find(b"]", position + 2)
        if end < 0:
            raise _MalformedError
        if end > position + 2 and pattern[end - 1 : end] == b":":
            members |= _class(pattern[position + 2 : end - 1])
            return None, end + 1
    following = pattern[position + 1 : position + 2]
    if pattern.startswith(b"-", position) and before is not None and following not in (b"", b"]"):
        last, position = _byte(pattern, position + 1)
        members.update(range(before, last + 1))
        return None, position
    value, position = _byte(pattern, position)
    members.add(value)
    return value, position


def _class(name: bytes) -> frozenset[int]:
    if name not in _CLASSES:
        raise _MalformedError
    return _CLASSES[name]


def _byte(pattern: bytes, position: int) -> tuple[int, int]:
    position += pattern.startswith(b"\\", position)
    if position >= len(pattern):
        raise _MalformedError
    return pattern[position], position + 1


def _one_of(members: set[int] | frozenset[int]) -> bytes:
    if not members:
        return rb"(?!)"  # nothing matches
    return b"[" + b"".join(b"\\x%02x" % value for value in sorted(members)) + b"]"
