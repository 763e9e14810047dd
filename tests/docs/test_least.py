"""The commands of docs/performance.md that run `bench/least.c` and `bench/least.py` do, with one object for thirty."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import free_ports

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(700)
def test_the_least_work_of_a_warm_is_measured_as_the_page_says(tmp_path: Path) -> None:
    if not shutil.which("cc"):
        pytest.skip("a C compiler is missing: apt-get install gcc libc6-dev")
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```text\n(cc .*?)```", page, re.DOTALL)
    (port,) = free_ports(1)
    for old, new in (
        ("bench/least.c", str(ROOT / "bench/least.c")),
        ("47125", str(port)),
        ("/data", str(tmp_path / "data")),
        ("0 29", "0 0"),
        ("sync; ", ""),  # only a measurement needs a disk at rest
        (" 30 ", " 1 "),
        (
            "/data &\n",
            "/data &\nserver=$!\nfor _ in $(seq 200); do (: </dev/tcp/127.0.0.1/$port) && break; sleep 0.1; done\n",
        ),
    ):
        assert old in block
        block = block.replace(old, new)
    programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    script = f"port={port}\nset -e\ntrap 'kill $server' EXIT\n{block}"
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={"PATH": programs, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,  # it flushes the disk, which other tests write to
    )
    assert ran.returncode == 0, ran.stderr
    for target in ("first", "again", "python"):
        views = list((tmp_path / "data" / target).glob("view-*/*"))
        objects = list((tmp_path / "data" / target).glob("[0-9a-f][0-9a-f]/*"))
        assert len(views) == len(objects) > 500
        assert sum(path.stat().st_size for path in objects) == 32 * 2**20 - 60
        assert {path.stat().st_ino for path in views} == {path.stat().st_ino for path in objects}
