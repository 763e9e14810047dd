"""A job of two ranks (gloo, on the CPU) that trains from a cold machine's cache.

Needs PyTorch; docs/jobs.md says why it is not among the locked requirements.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.cli import DATASET, PROJECT, Machine, finish

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is missing: pip install torch (docs/jobs.md)"
)

DEADLINE_SECONDS = 120
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
BEGIN = """\
import os, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
import datasync
dist.init_process_group("gloo")
rank = dist.get_rank()
out = Path(sys.argv[1])
"""
TRAIN = f"""{BEGIN}
root = datasync.torch.assert_same_snapshot("data")
view = Path(os.environ["DATASYNC_DATASET_DATA"])
rows = [[float(x) for x in line.split()] for line in (view / f"shard-{{rank}}").read_text().splitlines()]
table = torch.tensor(rows)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
losses = []
for _ in range(200):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(table[:, :1]), table[:, 1:])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
weight = model.module.weight.item()
(out / f"rank-{{rank}}").write_text(f"{{root}} {{weight:.2f}} {{losses[-1] < losses[0] / 100}}")
dist.destroy_process_group()
"""
WAIT = f"""{BEGIN}
datasync.torch.assert_same_snapshot()
(out / f"new-{{rank}}").write_text(str(os.getpid()))
os.rename(out / f"new-{{rank}}", out / f"pid-{{rank}}")
while True:
    time.sleep(0.1)
    dist.barrier()
"""
COMPARE = f"""{BEGIN}
places = sys.argv[2:]
group = dist.new_group([0, 1])
try:
    datasync.torch.assert_same_snapshot(places[rank], group)
    said = "same"
except datasync.errors.IntegrityError as error:
    said = str(error)
(out / f"rank-{{rank}}").write_text(said)
dist.destroy_process_group()
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with the dataset y = 2x in two shards, and an empty cache."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made = Machine(home, str(tmp_path / "repository"))
    with made.session() as session:
        session.initialise()
    source = tmp_path / DATASET
    source.mkdir()
    for rank in range(2):
        (source / f"shard-{rank}").write_text("".join(f"{x / 20} {x / 10}\n" for x in range(rank, 20, 2)))
    made.push(source)
    return made


def script(folder: Path, text: str) -> Path:
    path = folder / "train.py"
    path.write_text(text)
    return path


def test_two_ranks_train_from_a_cold_cache(machine: Machine, tmp_path: Path) -> None:
    assert not machine.cache.exists()
    machine.run("run", "--data", DATASET, "--", *TORCHRUN, script(tmp_path, TRAIN), tmp_path)
    said = {(tmp_path / f"rank-{rank}").read_text() for rank in range(2)}
    assert len(said) == 1
    root, weight, learned = said.pop().split()
    assert len(root) == 64
    assert weight == "2.00"
    assert learned == "True"


def leases(machine: Machine) -> int:
    """Return how many processes hold the view."""
    events = machine.run("cache", "ls", "--json").events
    [view] = [event for event in events if event["type"] == "view"]
    return len(view["leases"])


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_sigterm_in_the_middle_ends_both_ranks(machine: Machine, tmp_path: Path) -> None:
    job = machine.start("run", "--data", DATASET, "--", *TORCHRUN, script(tmp_path, WAIT), tmp_path)
    try:
        files = [tmp_path / f"pid-{rank}" for rank in range(2)]
        end = time.monotonic() + DEADLINE_SECONDS
        while not all(file.exists() for file in files):
            assert job.poll() is None, finish(job)
            assert time.monotonic() < end, "the ranks did not start"
            time.sleep(0.1)
        pids = [int(file.read_text()) for file in files]
        assert all(running(pid) for pid in pids)
        assert leases(machine) == 1
        job.send_signal(signal.SIGTERM)
        done = finish(job)
    finally:
        job.kill()
        job.wait()
    assert "got signal: 15" in done.stderr
    assert done.code == 1, done  # torchrun's own code after SIGTERM; `datasync run` returns the command's code
    assert [pid for pid in pids if running(pid)] == []
    assert leases(machine) == 0


@pytest.mark.parametrize("same", [True, False])
def test_ranks_that_read_different_snapshots_all_learn_which(machine: Machine, tmp_path: Path, same: bool) -> None:
    (tmp_path / DATASET / "more").write_text("more")
    machine.push(tmp_path / DATASET)
    views = [machine.warm(f"{DATASET}@{1 if same else seq}")[0].path for seq in (1, 2)]
    environment = machine.environment() | {"PYTHONPATH": str(PROJECT)}
    command = [*TORCHRUN, str(script(tmp_path, COMPARE)), str(tmp_path), *map(str, views)]
    subprocess.run(command, env=environment, check=True, timeout=DEADLINE_SECONDS, capture_output=True)
    said = [(tmp_path / f"rank-{rank}").read_text() for rank in range(2)]
    if same:
        assert said == ["same", "same"]
    else:
        assert said[0] == said[1]
        assert said[0].startswith("snapshot of rank 1: ")
        assert os.uname().nodename in said[0]
