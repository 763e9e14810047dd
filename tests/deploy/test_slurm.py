"""The rendered Slurm scripts, submitted to a real Slurm of one node on the loopback interface.

Runs as root where Debian's slurm-wlm and munge are installed; every file of theirs lies in a temporary directory.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from datasync.integrations.jobs import VARIANTS
from tests.deploy.conftest import NOTE
from tests.support.cli import DATASET, Machine
from tests.support.servers import free_ports

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "sinfo", "scancel")
DEADLINE_SECONDS = 90
TASKS = 2
JOB = 'cat "$DATASYNC_DATASET_DATA/note" && echo "task $SLURM_PROCID snapshot ${#DATASYNC_SNAPSHOT_DATA}"'
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="Slurm's daemons need root"),
    pytest.mark.skipif(
        any(shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None for name in PROGRAMS),
        reason="Slurm is missing: apt-get install slurm-wlm munge",
    ),
]


@dataclass(frozen=True, slots=True)
class Slurm:
    """A running Slurm."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def ask(self, *command: str) -> str:
        done = subprocess.run(
            command, env=os.environ | self.environment, capture_output=True, text=True, timeout=30, check=False
        )
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("slurm")
    host = socket.gethostname().partition(".")[0]
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir(mode=0o755)
    controller, daemon = free_ports(2)
    text = CONFIGURATION.format(host=host, folder=folder, controller=controller, daemon=daemon, cpus=os.cpu_count())
    (folder / "slurm.conf").write_text(text)
    made = Slurm(folder)
    with ExitStack() as stack:
        start(stack, made, "munged", *_munge(folder / "munge"))
        wait_for(lambda: (folder / "munge" / "socket").exists(), made)
        start(stack, made, "slurmctld", "-D", "-i")
        start(stack, made, "slurmd", "-D", "-N", host)
        wait_for(lambda: "idle" in made.ask("sinfo", "--noheader", "--format=%t"), made)
        yield made


def _munge(folder: Path) -> list[str]:
    key = folder / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    return ["--foreground", "--force", *(f"--{option}={folder / name}" for option, name in files.items())]


def start(stack: ExitStack, slurm: Slurm, program: str, *arguments: str) -> None:
    """Start a daemon of Slurm in the foreground; it ends with *stack*."""
    log = stack.enter_context((slurm.folder / f"{program}.out").open("wb"))
    path = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    assert path is not None
    daemon = subprocess.Popen([path, *arguments], env=os.environ | slurm.environment, stdout=log, stderr=log)
    stack.callback(_stop, daemon)


def _stop(daemon: "subprocess.Popen[bytes]") -> None:
    daemon.terminate()
    try:
        daemon.wait(20)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def wait_for(condition: Callable[[], bool], slurm: Slurm) -> None:
    """Wait until *condition* holds."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        logs = {path.name: path.read_text(errors="replace")[-2000:] for path in slurm.folder.glob("*.out")}
        assert time.monotonic() < end, f"Slurm did not get so far: {slurm.ask('sinfo', '-R')} {logs}"
        time.sleep(0.2)


def submit(slurm: Slurm, machine: Machine, environment: dict[str, str], *options: str) -> str:
    """Render, submit and wait; return what the job printed."""
    job, out = machine.home / "job.sh", machine.home / "out"
    machine.run("jobs", "render", "slurm", DATASET, "--command", JOB, "--output", job, *options)
    done = subprocess.run(
        ["sbatch", "--wait", f"--ntasks-per-node={TASKS}", "--overcommit", f"--output={out}", str(job)],
        env=environment | slurm.environment, cwd=machine.home, capture_output=True, text=True,
        timeout=DEADLINE_SECONDS, check=False,
    )  # fmt: skip
    printed = out.read_text() if out.exists() else ""
    assert done.returncode == 0, (done, printed)
    return printed


@pytest.mark.parametrize("variant", VARIANTS["slurm"])
def test_every_task_of_a_real_job_sees_the_path(
    slurm: Slurm, machine: Machine, environment: dict[str, str], variant: str
) -> None:
    printed = submit(slurm, machine, environment, "--variant", variant)
    assert printed.count("ready, 1 file fetched") == 1, printed  # one process of the node fetched it
    assert printed.count(NOTE) == TASKS, printed
    assert all(f"task {rank} snapshot 64\n" in printed for rank in range(TASKS)), printed
    assert list(machine.home.glob(".datasync-prolog-*")) == []


def test_a_task_without_a_dataset_does_not_run(slurm: Slurm, machine: Machine, environment: dict[str, str]) -> None:
    job = machine.home / "job.sh"
    machine.run("jobs", "render", "slurm", "unknown", "--command", "touch ran", "--output", job)
    command = ["sbatch", "--wait", "--output=out", str(job)]
    done = subprocess.run(
        command, env=environment | slurm.environment, cwd=machine.home, timeout=DEADLINE_SECONDS, check=False
    )
    assert done.returncode != 0
    assert (machine.home / "out").exists()
    assert not (machine.home / "ran").exists()
