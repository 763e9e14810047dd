"""`datasync jobs render` on the command line, and the files that it makes, run for real where that needs no cluster."""

import os
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from datasync.errors import UsageError
from datasync.integrations.jobs import VARIANTS, Job, render
from tests.deploy.conftest import NOTE
from tests.deploy.machines import make_stand_ins
from tests.support.cli import DATASET, Machine

SHOW = f'cat "$DATASYNC_DATASET_{DATASET.upper()}/note"; echo "${{#DATASYNC_SNAPSHOT_{DATASET.upper()}}}"'
SHOWN = f"{NOTE}64\n"
DEADLINE_SECONDS = 60


def run(script: str, environment: dict[str, str], *arguments: str, expect: int = 0) -> str:
    done = subprocess.run(
        ["bash", "-c", script, "job", *arguments],
        env=environment, cwd=environment["HOME"], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == expect, done
    return done.stdout


@pytest.mark.parametrize("kind", VARIANTS)
def test_the_command_prints_what_the_library_renders(machine: Machine, kind: str) -> None:
    done = machine.run("jobs", "render", kind, "data:prod", "--command", "python x.py", "--nodes", "2")
    job = Job("data:prod", "python x.py", machine.url, nodes=2)
    assert done.stdout == render(kind, job)
    asked = ("jobs", "render", kind, "data:prod", "--command", "python x.py", "--nodes", "2", "--json")
    assert machine.run(*asked).result["text"] == done.stdout


def test_output_writes_a_script_that_can_be_started(machine: Machine) -> None:
    target = machine.home / "job.sh"
    assert machine.run("jobs", "render", "slurm", "data", "--variant", "run", "--output", target).stdout == ""
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    assert target.read_text() == render("slurm", Job("data", repository=machine.url), "run")
    machine.run("jobs", "render", "slurm", "data", "--output", machine.home / "none" / "job.sh", expect=2)


def test_wrong_requests_exit_2(machine: Machine) -> None:
    machine.run("jobs", "render", "pbs", "data", expect=2)
    machine.run("jobs", "render", "slurm", "data", "--variant", "sidecar", expect=2)
    machine.run("jobs", "render", "slurm", "data", "--image", "x", expect=2)
    machine.run("jobs", "render", "docker", "data", "--cache", "/a,b", expect=2)
    machine.run("jobs", "render", "torchrun", "data", "--command", "'open", expect=2)


def test_only_what_inherits_an_environment_needs_no_repository() -> None:
    for kind in VARIANTS:
        if kind in ("slurm", "torchrun"):
            assert "DATASYNC_REPOSITORY" not in render(kind, Job("data"))
        else:
            with pytest.raises(UsageError, match="repository"):
                render(kind, Job("data"))


def test_ssh_runs_the_command_there_and_leaves_no_secret(
    machine: Machine, environment: dict[str, str], tmp_path: Path
) -> None:
    make_stand_ins(tmp_path / "bin", "ssh")
    there = tmp_path / "there"
    there.mkdir()
    calls = tmp_path / "calls"
    told = environment | {"TMPDIR": str(there), "CALLS": str(calls), "AWS_SECRET_ACCESS_KEY": "a secret's 'text'"}
    told["DATASYNC_IDENTITY"] = str(machine.identity)
    show = f'{SHOW}; echo "$AWS_SECRET_ACCESS_KEY $NODE_RANK $MASTER_ADDR"; stat -c %a "$DATASYNC_IDENTITY"'
    job = Job(DATASET, show, machine.url, cache=str(machine.cache))
    assert run(render("ssh", job), told, "u@one") == f"{SHOWN}a secret's 'text' 0 one\n600\n"
    assert "a secret" not in calls.read_text()
    assert list(there.iterdir()) == []
    run(render("ssh", Job(DATASET, "exit 9", machine.url, cache=str(machine.cache))), told, "u@one", expect=9)
    two = Job(DATASET, "echo $NODE_RANK $MASTER_ADDR", machine.url, cache=str(machine.cache), nodes=2)
    assert sorted(run(render("ssh", two), told, "u@one", "u@two").splitlines()) == ["0 one", "1 one"]
    run(render("ssh", two), told, "u@one", expect=2)
    assert list(there.iterdir()) == []


def pod_of(machine: Machine, folder: Path, variant: str) -> tuple[list[str], list[str], dict[str, str]]:
    """Return the two containers' commands, as Kubernetes expands them, with the pod's volumes in *folder*."""
    reader = pytest.importorskip("yaml", reason="PyYAML is missing")
    (folder / "job").mkdir()
    pod: dict[str, Any] = reader.safe_load(render("k8s", Job(DATASET, SHOW, machine.url), variant))["spec"]["template"][
        "spec"
    ]
    [warm], [train] = pod["initContainers"], pod["containers"]

    def here(text: str) -> str:
        mounted = {" /job/": f" {folder}/job/", "/datasync/": f"{folder}/datasync/"}
        for place, moved in mounted.items():
            text = text.replace(place, moved) if text.startswith(place) or place == " /job/" else text
        return text.replace("$$", "$")

    variables = {item["name"]: here(item["value"]) for item in warm["env"] if "value" in item}
    variables["DATASYNC_IDENTITY"] = str(machine.identity)
    return [here(word) for word in warm["command"]], [here(word) for word in train["command"]], variables


def test_the_init_container_hands_the_path_to_the_training(
    machine: Machine, environment: dict[str, str], tmp_path: Path
) -> None:
    warm, train, variables = pod_of(machine, tmp_path, "init")
    subprocess.run(warm, env=environment | variables, check=True, timeout=DEADLINE_SECONDS)
    done = subprocess.run(train, env={"PATH": os.environ["PATH"]}, check=True, capture_output=True, text=True)
    assert done.stdout == SHOWN
    assert (tmp_path / "datasync" / "cache").is_dir()


def test_the_sidecar_stays_until_it_is_told_to_end(
    machine: Machine, environment: dict[str, str], tmp_path: Path
) -> None:
    warm, train, variables = pod_of(machine, tmp_path, "sidecar")
    sidecar = subprocess.Popen(warm, env=environment | variables)
    try:
        end = time.monotonic() + DEADLINE_SECONDS
        while not (tmp_path / "job" / "ready").exists():
            assert sidecar.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        done = subprocess.run(train, env={"PATH": os.environ["PATH"]}, check=True, capture_output=True, text=True)
        assert done.stdout == SHOWN
        sidecar.send_signal(signal.SIGTERM)
        assert sidecar.wait(DEADLINE_SECONDS) == 128 + signal.SIGTERM
    finally:
        sidecar.kill()
        sidecar.wait()
