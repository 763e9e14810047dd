"""Run one command and measure it: wall and CPU seconds, peak memory, of the client alone."""

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """One run: seconds, peak resident memory in MiB; requests and bytes where a proxy counts them."""

    wall: float
    cpu: float
    memory: float
    requests: int = 0
    bytes: int = 0


def measure(command: list[str], environment: Mapping[str, str]) -> Sample:
    """Run *command*; raise `RuntimeError` with its last words when it fails."""
    started = time.monotonic()
    # a small shell stands between, so the child's peak memory is not this process's own
    child = subprocess.Popen(
        ["/bin/sh", "-c", '"$@"; exit $?', "sh", *command],
        env=dict(environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert child.stderr is not None
    words = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - started
    if child.returncode != 0:
        raise RuntimeError(
            f"{' '.join(command[:4])} …: exit {child.returncode}: {words.decode(errors='replace')[-500:]}"
        )
    return Sample(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
