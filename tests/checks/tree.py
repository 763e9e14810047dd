"""Rules for every tracked text: no addresses of package registries, no paths of one machine, nothing left unfinished,
no module of datasync that grew too long.

Pure: takes texts by path, returns findings as `path:line: what`. The patterns are put together from pieces so that this
file passes its own check.
"""

import re

MODULE_LINES = 400  # a longer module tells more than one story

_REGISTRY_HOSTS = re.compile(
    "|".join([r"py" + r"pi\.org", r"python" + "hosted", r"registry\." + "npmjs", r"deb\." + r"debian\.org"])
)
# Home and workspace folders; the folder of that name which AutoDL's nodes have is part of its documentation.
_MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:root|work|Users)/(?!autodl-)")
_UNFINISHED = re.compile(r"\b(?:TO" + "DO|FIX" + "ME|XX" + "X|HA" + r"CK)\b")

_LINE_RULES = [
    (_REGISTRY_HOSTS, "names a package registry's host"),
    (_MACHINE_PATHS, "names a path of one machine"),
    (_UNFINISHED, "is marked as unfinished"),
]


def check_tree(texts: dict[str, str]) -> list[str]:
    """Return what is wrong with single lines and with the length of modules."""
    findings = []
    for path, text in texts.items():
        for number, line in enumerate(text.splitlines(), start=1):
            findings += [
                f"{path}:{number}: {what}: {line.strip()[:100]}" for rule, what in _LINE_RULES if rule.search(line)
            ]
        findings += _check_length(path, text)
    return findings


def _check_length(path: str, text: str) -> list[str]:
    lines = text.count("\n")
    if path.startswith("datasync/") and path.endswith(".py") and lines > MODULE_LINES:
        return [f"{path}:{lines}: has more than {MODULE_LINES} lines, split it"]
    return []
