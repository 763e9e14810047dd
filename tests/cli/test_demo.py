"""`datasync demo` for real: its facts, its one directory, and what it says when it cannot run."""

import filecmp
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from datasync.cli import demo, demo_dataset
from datasync.cli.main import cli
from datasync.errors import UsageError

ROOT = Path(__file__).parents[2]


def start(temporary: Path, *options: str, **variables: str) -> subprocess.Popen[str]:
    """Start the demo with *temporary* as the folder for temporary files and a home that must stay empty."""
    home = temporary.with_name("home")
    home.mkdir()
    temporary.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DATASYNC_", "XDG_"))}
    environment = kept | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary), "HOME": str(home)} | variables
    return subprocess.Popen(
        [sys.executable, "-m", "datasync.cli.main", "demo", *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(temporary: Path, *options: str, **variables: str) -> tuple[int, str, str]:
    child = start(temporary, *options, **variables)
    out, err = child.communicate(timeout=200)
    return child.returncode, out, err


def events_by_step(out: str) -> dict[str, dict[str, Any]]:
    events = [json.loads(line) for line in out.splitlines()]
    return {event.get("step", event["type"]): event for event in events}


def test_demo_does_the_main_job_and_its_figures_hold(tmp_path: Path) -> None:
    code, out, err = run(tmp_path / "t", "--keep", "--json", DATASYNC_REPOSITORY="s3://nobody-asks-for-this")
    assert code == 0, err
    steps = events_by_step(out)
    names = ["copy", "init", "push", "push again", "change", "push the change", "warm", "run", "verify", "result"]
    assert list(steps) == names
    assert steps["copy"]["files"] == 2310
    first = steps["push"]
    assert first["created"]
    assert 0 < first["sent_bytes"] < first["bytes"]
    assert not steps["push again"]["created"]
    assert steps["push again"]["sent_bytes"] == 0
    assert steps["push the change"]["seq"] == 2
    assert 0 < steps["push the change"]["sent_bytes"] < 0.1 * first["sent_bytes"]
    assert steps["run"]["accuracy"] > steps["run"]["majority"] + 0.2
    assert steps["verify"]["problems"] == 0
    assert steps["verify"]["read_packs"] == steps["verify"]["packs"] > 0
    assert not list(tmp_path.joinpath("home").iterdir())
    assert_same_files(Path(steps["result"]["path"]) / "licenses", Path(steps["warm"]["path"]))


def assert_same_files(source: Path, view: Path) -> None:
    names = sorted(str(path.relative_to(source)) for path in source.rglob("*") if path.is_file())
    assert names == sorted(str(path.relative_to(view)) for path in view.rglob("*") if path.is_file())
    assert filecmp.cmpfiles(source, view, names, shallow=False) == (names, [], [])


def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    child = start(tmp_path / "t")
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("$ datasync push"):
            break
    time.sleep(0.1)  # somewhere within the push
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=60)
    assert child.returncode == 143
    assert not list(tmp_path.joinpath("t").iterdir())


def test_a_failed_step_ends_the_demo_with_its_message_and_code_and_removes_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    failing = tmp_path / "train.py"
    failing.write_text("import sys\nsys.exit('no GPU')\n")
    temporary = tmp_path / "t"
    temporary.mkdir()
    monkeypatch.setattr(demo, "TRAIN", failing)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    assert cli.main(["demo", "--json"], standalone_mode=False) == 1
    captured = capfd.readouterr()
    last = json.loads(captured.out.splitlines()[-1])
    assert last["exit"] == 1
    assert last["message"] == "demo: datasync run --data licenses -- python train.py: no GPU"
    assert captured.err == f"datasync: {last['message']}\n"
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("missing", ["licensedcode-data", "numpy"])
def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    find_spec, distribution = importlib.util.find_spec, metadata.distribution

    def refuse(name: str) -> metadata.Distribution:
        if name == missing:
            raise metadata.PackageNotFoundError(name)
        return distribution(name)

    monkeypatch.setattr(metadata, "distribution", refuse)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find_spec(name))
    with pytest.raises(UsageError) as caught:
        cli.main(["demo"], standalone_mode=False)
    assert str(caught.value) == f"demo: {missing} not found: run pip install 'gpu-datasync[demo]'"
    assert caught.value.exit_code == 2


def test_settings_of_a_repository_are_refused() -> None:
    with pytest.raises(UsageError, match="a repository of its own"):
        cli.main(["demo", "--repository", "/somewhere"], standalone_mode=False)


def test_changing_the_copies_leaves_the_package_alone(tmp_path: Path) -> None:
    origin = demo_dataset.locate()
    before = {file: file.stat() for file in origin.files}
    demo_dataset.copy(origin, tmp_path / "copies")
    demo_dataset.change(origin, tmp_path / "copies")
    after = {file: file.stat() for file in demo_dataset.locate().files}
    assert [(s.st_mtime_ns, s.st_size) for s in before.values()] == [(s.st_mtime_ns, s.st_size) for s in after.values()]
    assert len(list((tmp_path / "copies").rglob("*.LICENSE"))) == len(origin.files) - demo_dataset.EACH
