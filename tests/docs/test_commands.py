"""The documents' examples work: every ```console command and ```python block of the pages below runs.

The convention is one line of docs/README.md. A page's blocks run in order in one shell, so an `export` holds for what
follows; the home, the working directory and everything in them are temporary. Output that a page shows is not compared.
"""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from datasync.cli.main import COMMANDS, cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/usage.md", "docs/keys.md", "docs/policy.md", "docs/audit.md")
RUN_SECONDS = 240

_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXIT = re.compile(r"\s+# exit (\d+)$")
_TRAIN = """\
import os
from pathlib import Path

root = Path(os.environ["DATASYNC_DATASET_DATA"])
print(sum(path.stat().st_size for path in root.rglob("*") if path.is_file()), os.environ["DATASYNC_SNAPSHOT_DATA"])
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a page, in bash, and the exit code that the page promises."""

    command: str
    code: int


def steps_of(text: str) -> list[Step]:
    """Return what a page runs, in order."""
    steps = []
    for kind, body in _BLOCK.findall(text):
        if kind == "python":
            steps.append(Step(f"python -c {shlex.quote(body)}", 0))
            continue
        for line in body.splitlines():
            if line.startswith("$ "):
                found = _EXIT.search(line)
                command = line[2 : found.start()] if found else line[2:]
                steps.append(Step(command, int(found[1]) if found else 0))
    return steps


def prepare(folder: Path) -> dict[str, str]:
    """Make the home, the programs and the `./data` that the pages speak of; return the environment."""
    programs, home, work = folder / "bin", folder / "home", folder / "work"
    for path in (programs, home, work / "data" / "images", work / "data" / "empty"):
        path.mkdir(parents=True)
    python = shlex.quote(sys.executable)
    for name, line in (("datasync", f"{python} -m datasync.cli.main"), ("python", python)):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        program.chmod(0o755)
    (work / "train.py").write_text(_TRAIN)
    (work / "data" / "notes.txt").write_text("a line\n" * 400)
    for number in range(30):
        (work / "data" / "images" / f"{number}.bin").write_bytes(bytes([number]) * (number * 1000))
    return {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }


def run_page(steps: list[Step], folder: Path) -> list[tuple[int, str]]:
    """Run all *steps* in one shell; return each one's exit code and output."""
    environment, results = prepare(folder), folder / "results"
    results.mkdir()
    lines = [f"{{ {step.command}\n}} >{results}/{n} 2>&1; echo $? >{results}/{n}.code" for n, step in enumerate(steps)]
    subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=folder / "work",
        env=environment,
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=RUN_SECONDS,
    )
    return [(int((results / f"{n}.code").read_text()), (results / str(n)).read_text()) for n in range(len(steps))]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_ends_as_the_page_says(page: str, tmp_path: Path) -> None:
    steps = steps_of((ROOT / page).read_text())
    assert steps, f"{page} shows no command"
    results = run_page(steps, tmp_path)
    wrong = [
        f"$ {step.command}\nexpected exit {step.code}, found {code}:\n{output}"
        for step, (code, output) in zip(steps, results, strict=True)
        if code != step.code
    ]
    assert not wrong, "\n\n".join(wrong)


def test_a_step_with_another_exit_code_is_noticed(tmp_path: Path) -> None:
    steps = steps_of(
        "```console\n$ false\n$ export X=4\n$ (exit $X)  # exit 4\n```\n```python\nraise SystemExit(7)\n```\n"
    )
    assert [code for code, _ in run_page(steps, tmp_path)] == [1, 0, 4, 7]
    assert [step.code for step in steps] == [0, 0, 4, 0]


def _section(command: str) -> str:
    usage = (ROOT / "docs/usage.md").read_text()
    found = re.search(rf"^### {re.escape(command)}\n(.*?)(?=^##|\Z)", usage, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/usage.md has no heading `### {command}`"
    return found[1]


def _options(command: str) -> list[str]:
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    parameters = [item for item in found.params if isinstance(item, click.Option) and not item.hidden]
    return [name for item in parameters for name in (*item.opts, *item.secondary_opts)]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_section_and_an_example(command: str) -> None:
    assert f"datasync {command}" in _section(command)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_described_with_its_command(command: str) -> None:
    described = _section(command) + _section("Options of every command")
    missing = [name for name in _options(command) if f"`{name}" not in described]
    assert not missing, f"docs/usage.md, {command}: {', '.join(missing)}"


def test_the_chinese_readme_shows_the_same_commands() -> None:
    english, chinese = ((ROOT / name).read_text() for name in ("README.md", "README.zh-CN.md"))
    assert steps_of(english) == steps_of(chinese)
