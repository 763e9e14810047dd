"""Run one command and measure it: wall and CPU seconds, peak memory, of the client alone."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LAUNCHER = Path(__file__).with_name("launch.py")


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
    reading, writing = os.pipe()
    with open(reading, "rb") as said:
        child = subprocess.Popen(
            [sys.executable, "-S", "-E", str(LAUNCHER), str(writing), *command],
            env=dict(environment),
            pass_fds=[writing],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        os.close(writing)
        _, words = child.communicate()
        used = said.read().split()
    if len(used) != 4:
        raise RuntimeError(f"{' '.join(command[:4])} …: not started: {words.decode(errors='replace')[-500:]}")
    wall, cpu, memory, code = map(float, used)
    if code:
        raise RuntimeError(f"{' '.join(command[:4])} …: exit {code:.0f}: {words.decode(errors='replace')[-500:]}")
    return Sample(wall, cpu, memory)
