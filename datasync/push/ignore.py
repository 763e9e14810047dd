"""Which entries stay out of a push: `.datasyncignore` files, and `--exclude` and `--include`.

The syntax is gitignore's (`datasync.push.gitignore`). For one entry, the sources are asked in this order and the
first that has a matching pattern decides; within a source the last matching pattern does:

1. `--include` patterns: a match keeps the entry;
2. `--exclude` patterns: a match leaves it out;
3. the `.datasyncignore` of its own directory, then that of the parent, and so on up to the root's: a match leaves it
   out, a match with `!` keeps it.

What nothing matches is kept. Command-line patterns are relative to the root. A directory that is left out is not
entered, so nothing beneath it can be kept by a deeper pattern: to push only JPEG files, `--exclude '*' --include '*/'
--include '*.jpg'`. The files themselves are pushed like any other. One that is larger than `FILE_BYTES`, unreadable,
or not a regular file stops the push, since what it meant to keep back would be sent: `UsageError`, as for a bad
pattern on the command line.
"""

import os
import re
from collections.abc import Iterable, Sequence
from typing import Self

from datasync.errors import UsageError
from datasync.push.gitignore import Rule, parse_line
from datasync.push.source import SourceTree, Unreadable, shown

FILE_NAME = b".datasyncignore"
FILE_BYTES = 1024 * 1024  # one file of patterns; more is not a list that someone wrote

_BOM = b"\xef\xbb\xbf"


class RuleSet:
    """The patterns of one source, as one expression for files and one for directories."""

    __slots__ = ("_directory", "_file", "_negated")

    def __init__(self, rules: Sequence[Rule]) -> None:
        latest = list(reversed(rules))  # the last match wins, and alternatives are tried in order
        of_files = [rule for rule in latest if not rule.directories]
        self._directory = _alternatives(latest)
        self._file = _alternatives(of_files)
        self._negated = ([rule.negated for rule in of_files], [rule.negated for rule in latest])

    def verdict(self, path: bytes, directory: bool) -> bool | None:
        """Return whether *path* is left out, or nothing when no pattern matches it."""
        expression = self._directory if directory else self._file
        match = expression.fullmatch(path) if expression is not None else None
        if match is None or match.lastindex is None:
            return None
        return not self._negated[directory][match.lastindex - 1]


def _alternatives(rules: Sequence[Rule]) -> re.Pattern[bytes] | None:
    if not rules:
        return None
    return re.compile(b"|".join(b"(" + rule.expression + b")" for rule in rules), re.DOTALL)


class Scope:
    """The rules in force in one directory."""

    __slots__ = ("_command_line", "_files", "empty")

    def __init__(self, command_line: RuleSet | None, files: tuple[tuple[int, RuleSet], ...] = ()) -> None:
        self._command_line = command_line
        self._files = files  # deepest first: (length of its directory's path and the slash, patterns)
        self.empty = command_line is None and not files

    def ignores(self, path: bytes, directory: bool) -> bool:
        """Say whether *path*, which no parent directory left out, is left out."""
        verdict = self._command_line.verdict(path, directory) if self._command_line is not None else None
        for start, patterns in self._files:
            if verdict is not None:
                break
            verdict = patterns.verdict(path[start:], directory)
        return bool(verdict)

    def within(self, directory: bytes, text: bytes) -> "Scope":
        """Return the scope of *directory*, whose `.datasyncignore` holds *text*."""
        lines = text.removeprefix(_BOM).split(b"\n")
        rules = [rule for line in lines if (rule := parse_line(line.removesuffix(b"\r"))) is not None]
        if not rules:
            return self
        start = len(directory) + 1 if directory else 0
        return Scope(self._command_line, ((start, RuleSet(rules)), *self._files))


class IgnoreRules:
    """What the command line says; the files are added by the walk as it meets them."""

    def __init__(self, *, include: Iterable[str] = (), exclude: Iterable[str] = ()) -> None:
        excluded = [_command_line_rule(pattern, "--exclude", keep=False) for pattern in exclude]
        included = [_command_line_rule(pattern, "--include", keep=True) for pattern in include]
        self._top = Scope(RuleSet([*excluded, *included]) if excluded or included else None)

    @classmethod
    def none(cls) -> Self:
        """Return rules that leave out nothing unless a `.datasyncignore` says so."""
        return cls()

    def top(self) -> Scope:
        """Return the rules in force above the root's own `.datasyncignore`."""
        return self._top


def _command_line_rule(pattern: str, option: str, *, keep: bool) -> Rule:
    raw = os.fsencode(pattern)
    if raw.startswith(b"!"):
        raise UsageError(
            f"{option} {shown(raw)}: no pattern starts with `!` here; --include keeps what --exclude leaves out"
        )
    rule = parse_line(b"\\" + raw if raw.startswith(b"#") else raw)
    if rule is None or b"\n" in raw:
        raise UsageError(f"{option} {shown(raw)!r}: not a pattern that could match a name; expected gitignore syntax")
    return rule._replace(negated=keep)


def read_rules(tree: SourceTree, directory: bytes) -> bytes:
    """Return the text of the `.datasyncignore` of *directory*, where the walk has seen the name."""
    path = directory + b"/" + FILE_NAME if directory else FILE_NAME
    try:
        fd = tree.open_file(path)
    except Unreadable as error:
        raise UsageError(
            f"{shown(path)}: expected a readable regular file: {error.skipped.reason}; correct or remove it"
        ) from error
    with open(fd, "rb") as file:
        try:
            text = file.read(FILE_BYTES + 1)
        except OSError as error:
            raise UsageError(f"{shown(path)}: can not be read: {error.strerror}; correct or remove it") from error
    if len(text) > FILE_BYTES:
        raise UsageError(f"{shown(path)}: larger than {FILE_BYTES} bytes, the limit for a file of patterns; shorten it")
    return text
