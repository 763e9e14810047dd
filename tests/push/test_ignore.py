"""`.datasyncignore`, --exclude and --include; what gitignore syntax means is asked of git itself."""

import os
import random
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from datasync.errors import UsageError
from datasync.push.gitignore import parse_line
from datasync.push.ignore import FILE_BYTES, IgnoreRules
from datasync.push.scan import Skipped, scan
from datasync.push.source import SourceTree

NAMES = [
    b"a",
    b"foo",
    b"foo.txt",
    b"x.log",
    b"a-b",
    b"[a]",
    b"A",
    b"\xc3\xa9",
    b"\xff",
    b"sp ",
    b"tab\t",
    b"nl\nx",
    b"#h",
    b"!n",
    b"b\\s",
]
DIRECTORIES = [b"a", b"b", b"foo"]

PATTERNS = """
a|/a|a/|foo*|*.txt|!*.txt|*|!*/|!a|!a/|/*|!/foo|a/b|a/*|a/**|**/b|a/**/b|!foo.txt|?|[ab]|[!a]|[^a]|[[:alpha:]]|\\a|x.log
*.log|foo/|!foo/|sp\\ |sp |tab\t|**|**/|*/|*/**|**foo|a**|fo**o|nl*|nl*x|\xe9|[a|\\|!
a//b|/|//a|**/a/**|!a/b|[a-c]|[]a]|a\\*
[/]|\\#h|#h|\\!n|!!n|b\\\\s|[\\]a]|[a-]|[--b]|[[:nope:]a]|[[:digit:]a|[[:a]|[[a:]|**/**/b|a/***/b|***|/**|/**/foo|foo/**/|a/*/foo
[a-c]/foo|*/foo|!*|!**/b|.|..|./a|a/.|foo.*|*.*|?oo|??|[[:upper:]]|[[:punct:]]a]|[[:^alpha:]]|f[!x]o|a[/]b|\\[a\\]|**\\/b|\\
""".replace("\n", "|")


def make(root: bytes, files: dict[bytes, bytes], depth: int = 2) -> list[bytes]:
    """Make a small tree of all NAMES at every level, and *files*; return the paths made."""
    made: list[bytes] = []

    def fill(prefix: bytes, left: int) -> None:
        for name in sorted({*NAMES, *DIRECTORIES}):
            path = prefix + name
            made.append(path)
            if left and name in DIRECTORIES:
                os.mkdir(os.path.join(root, path))
                fill(path + b"/", left - 1)
            else:
                Path(os.fsdecode(os.path.join(root, path))).touch()

    fill(b"", depth)
    for path, content in files.items():
        for name in (b".gitignore", b".datasyncignore"):
            with open(os.path.join(root, path, name), "wb") as file:
                file.write(content)
    return made


def kept(root: bytes, paths: Iterable[bytes], rules: IgnoreRules) -> set[bytes]:
    skipped: list[Skipped] = []
    with SourceTree.open(Path(os.fsdecode(root))) as tree:
        found = {entry.path for entry in scan(tree, rules, skipped.append)}
    assert not skipped
    return found & set(paths)


def kept_by_git(root: bytes, git_directory: Path, paths: Sequence[bytes]) -> set[bytes]:
    command = ["git", f"--git-dir={git_directory}", f"--work-tree={os.fsdecode(root)}"]
    quiet = {"PATH": os.environ["PATH"], "HOME": str(git_directory.parent), "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    if not git_directory.exists():
        subprocess.run([*command, "init", "-q"], check=True, env=quiet, capture_output=True)
    asked = subprocess.run(
        [*command, "-c", "core.ignorecase=false", "check-ignore", "--no-index", "-z", "--stdin"],
        input=b"".join(path + b"\0" for path in paths),
        capture_output=True,
        env=quiet,
        cwd=root,
    )
    assert asked.returncode in (0, 1), asked.stderr
    return set(paths) - set(asked.stdout.split(b"\0"))


CASES: list[dict[bytes, bytes]] = [
    {b"": b"*.log\nfoo/\n"},
    {b"": b"*\n!*/\n!*.txt\n"},
    {b"": b"/*\n!/foo\n"},
    {b"": b"a/**\n!a/foo.txt\n"},
    {b"": b"**/b\n!/foo\n"},
    {b"": b"*.log\n", b"a": b"!x.log\n", b"a/b": b"x.log\n"},
    {b"": b"a/\n", b"a": b"!*\n"},
    {b"": b"!foo.txt\n", b"foo": b"/foo.txt\n/a/foo.txt\n"},
    {b"": b"foo.txt\r\nx.log\r\n"},
    {b"": b"\xef\xbb\xbf# a comment\n\n  \n\xff\n\xc3\xa9\n"},
    {b"": b"foo.txt"},
    {b"": b"sp\\ \nfoo.txt   \n"},
    {b"": b"a\0b\nfoo\n"},
    {b"": b"", b"a": b"*"},
]


@pytest.mark.parametrize("files", CASES)
def test_files_mean_what_git_says(tmp_path: Path, files: dict[bytes, bytes]) -> None:
    root = os.fsencode(tmp_path / "tree")
    os.mkdir(root)
    paths = make(root, files)
    assert kept(root, paths, IgnoreRules()) == kept_by_git(root, tmp_path / "git", paths)


def test_every_pattern_and_many_mixtures_mean_what_git_says(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path / "tree")
    os.mkdir(root)
    paths = make(root, {})
    patterns = [pattern.encode() for pattern in PATTERNS.split("|")]
    draw = random.Random(20)
    mixtures = [[pattern] for pattern in patterns] + [draw.sample(patterns, 3) for _ in range(60)]
    for lines in mixtures:
        text = b"\n".join(lines) + b"\n"
        for name in (b".gitignore", b".datasyncignore"):
            with open(os.path.join(root, name), "wb") as file:
                file.write(text)
        assert kept(root, paths, IgnoreRules()) == kept_by_git(root, tmp_path / "git", paths), text


def kept_on_command_line(root: Path, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> list[bytes]:
    with SourceTree.open(root) as tree:
        return [entry.path for entry in scan(tree, IgnoreRules(include=include, exclude=exclude), print)]


def test_exclude_wins_over_files_and_include_over_both(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    for name in ("a.txt", "b.txt", "c.log", "cache/d.txt"):
        (tmp_path / name).touch()
    (tmp_path / ".datasyncignore").write_text("*.log\n!a.txt\ncache/\n")

    assert kept_on_command_line(tmp_path) == [b".datasyncignore", b"a.txt", b"b.txt"]
    assert kept_on_command_line(tmp_path, exclude=["a.txt"]) == [b".datasyncignore", b"b.txt"]
    assert kept_on_command_line(tmp_path, include=["c.log"]) == [b".datasyncignore", b"a.txt", b"b.txt", b"c.log"]
    assert kept_on_command_line(tmp_path, exclude=["*.txt"], include=["b*"]) == [b".datasyncignore", b"b.txt"]
    assert kept_on_command_line(tmp_path, include=["cache/d.txt"]) == [b".datasyncignore", b"a.txt", b"b.txt"]
    assert kept_on_command_line(tmp_path, include=["cache/"])[-2:] == [b"cache", b"cache/d.txt"]


def test_only_some_files_are_chosen_as_documented(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.jpg", "b.png", "sub/c.jpg", "sub/d.png"):
        (tmp_path / name).touch()
    assert kept_on_command_line(tmp_path, ["*/", "*.jpg"], ["*"]) == [b"a.jpg", b"sub", b"sub/c.jpg"]


def test_a_hash_on_the_command_line_is_no_comment(tmp_path: Path) -> None:
    (tmp_path / "#notes").touch()
    (tmp_path / "kept").touch()
    assert kept_on_command_line(tmp_path, exclude=["#*"]) == [b"kept"]


@pytest.mark.parametrize("pattern", ["!a", "", "   ", "/", "[a", "a\\", "a\nb"])
def test_a_useless_pattern_on_the_command_line_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="--exclude"):
        IgnoreRules(exclude=[pattern])
    with pytest.raises(UsageError, match="--include"):
        IgnoreRules(include=[pattern])


@pytest.mark.parametrize("kind", ["large", "directory", "link", "fifo"])
def test_a_file_of_patterns_that_can_not_be_read_stops_the_push(tmp_path: Path, kind: str) -> None:
    (tmp_path / "sub").mkdir()
    path = tmp_path / "sub" / ".datasyncignore"
    if kind == "large":
        path.write_bytes(b"a\n" * (FILE_BYTES // 2) + b"b")
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("elsewhere")
    else:
        os.mkfifo(path)
    with pytest.raises(UsageError, match=r"sub/\.datasyncignore"):
        kept_on_command_line(tmp_path)


def test_a_file_of_patterns_may_be_as_large_as_the_limit(tmp_path: Path) -> None:
    (tmp_path / ".datasyncignore").write_bytes(b"# \n" * ((FILE_BYTES - 4) // 3) + b"\nkey")
    (tmp_path / "key").touch()
    assert kept_on_command_line(tmp_path) == [b".datasyncignore"]


def test_no_rules_cost_no_call() -> None:
    assert IgnoreRules().top().empty
    assert IgnoreRules().top().within(b"a", b"# only a comment\n\n").empty
    assert parse_line(b"# only a comment") is None
