"""How a command's process ends: what it said is out, whatever its streams are."""

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = f"{sys.executable} -m datasync.cli.main"


def shell(line: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-c", line.replace("DATASYNC", COMMAND)],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_output_arrives_through_a_pipe(tmp_path: Path) -> None:
    done = shell("DATASYNC --help | cat", tmp_path)
    assert "demo" in done.stdout.splitlines()[-1], done.stdout


def test_a_reader_that_left_ends_it_as_sigpipe_would(tmp_path: Path) -> None:
    done = shell("{ sleep 1; DATASYNC --help; echo $? >&2; } | true", tmp_path)
    assert done.stderr == "141\n"


def test_a_full_disk_behind_stdout_is_exit_8(tmp_path: Path) -> None:
    done = shell("DATASYNC --version > /dev/full", tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (8, 1)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_nothing_else(closed: str, tmp_path: Path) -> None:
    assert shell(f"DATASYNC --version {closed}", tmp_path).returncode == 0
    assert shell(f"DATASYNC ls {closed}", tmp_path).returncode == 2


def test_a_file_opened_later_never_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    done = shell("DATASYNC demo --json 2>&-", tmp_path)
    assert done.returncode == 0
    assert all(line.startswith("{") for line in done.stdout.splitlines())
