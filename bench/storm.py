"""A storm of 503 in the middle of a push: how soon is the throughput back once it is over?"""

import argparse
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from bench.plot import timeline
from bench.proxy import proxy
from bench.tools import all_tools
from tests.support.servers import Restartable

BEFORE_SECONDS = 15.0  # of steady throughput
AFTER_SECONDS = 40.0
SMOOTHED_SECONDS = 3  # objects of 32 MiB arrive in steps
MIB = 1024 * 1024


def storm(
    start: Callable[[Path], AbstractContextManager[Restartable]],
    folder: Path,
    sets: dict[str, Path],
    options: argparse.Namespace,
) -> None:
    """Push the first of *sets* with a storm in between; print how the throughput recovers, and plot it.

    The rate is capped, so that the push lasts and there is a throughput to come back to.
    """
    folder.mkdir(parents=True)
    source = next(iter(sets.values()))
    rate = (options.rate or 15.0) * MIB
    with start(folder / "server") as running:
        server = running.place
        server.make_bucket("bench")
        place = urlsplit(server.endpoint)
        with proxy((place.hostname or "", place.port or 0), latency=options.latency / 1000, rate=rate) as between:
            seen = replace(server, endpoint=f"http://127.0.0.1:{between.port}")
            (tool,) = all_tools(seen, folder, "bench", ["datasync"])
            subprocess.run(tool.prepare[0], env=dict(tool.environment), check=True, stderr=subprocess.DEVNULL)
            push = tool.fill(tool.push, source=str(source), target="", name="storm")
            between.reset()
            child = subprocess.Popen(push, env=dict(tool.environment), stderr=subprocess.PIPE)
            time.sleep(BEFORE_SECONDS)
            between.storm = True
            time.sleep(options.storm)
            between.storm = False
            time.sleep(AFTER_SECONDS)
            measured, refused = int(between.now), between.refused
            ended = child.poll() is not None
            _, words = child.communicate()
    values = [between.seconds[second] / MIB for second in range(measured)]
    _tell(values, options, refused, child.returncode, words, ended=ended)
    shutil.rmtree(folder)


def _tell(
    values: list[float], options: argparse.Namespace, refused: int, code: int, words: bytes, *, ended: bool
) -> None:
    end = BEFORE_SECONDS + options.storm
    before = median(values[3 : int(BEFORE_SECONDS)])
    back = next(
        (
            second
            for second in range(int(end), len(values) - SMOOTHED_SECONDS)
            if sum(values[second : second + SMOOTHED_SECONDS]) / SMOOTHED_SECONDS >= 0.9 * before
        ),
        None,
    )
    print(f"before the storm {before:.1f} MiB/s; {refused} requests refused in {options.storm:.0f} s; exit {code}")
    when = f"not in {AFTER_SECONDS:.0f} s" if back is None else f"{back - end:.0f} s after its end"
    print(f"back to 90 %: {when}")
    if ended:
        print("the push ended before the measurement did: take a larger set or a lower rate")
    if code:
        print(words.decode(errors="replace")[-500:])
    if options.plot:
        options.plot.write_text(timeline("push through a storm of 503", values, (BEFORE_SECONDS, end), "MiB/s"))
        print(f"{os.fspath(options.plot)} written")
