"""What the daemon costs while nothing happens, and how it answers while it is attacked: `python -m bench.daemon`.

Idle: CPU and resident memory of a daemon that watches 100,000 files which are pushed already, over a minute. Attacked:
the time of GET /healthz on the socket while a process sends wrong tokens over TLS as fast as it can. Prints JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.daemons import Certificates, Daemon, daemon, make_certificates, mirror_table, wait_until
from tests.support.machine import Machine
from tests.support.servers import free_ports

FOLDER_FILES = 100
WAIT_SECONDS = 1200.0
SETTLE_SECONDS = 5.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long idle is measured")
    parser.add_argument("--tokens", type=int, default=100_000, help="wrong tokens to send")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ds-") as name:
        folder = Path(name).resolve()
        machine = Machine.make(folder / "home", str(folder / "repository"))
        machine.must("init")
        _fill(folder / "source", options.files)
        files, (port,) = make_certificates(folder / "tls"), free_ports(1)
        settings = f"""
            [daemon]
            socket = "{machine.home}/d.sock"
            listen = "tcp://127.0.0.1:{port}"
            certificate = "{files.certificate}"
            key = "{files.key}"
            hosts = ["localhost"]
            {mirror_table(folder / "source", rescan="15m")}
        """
        with daemon(machine, settings) as running:
            wait_until("all is pushed", lambda: running.mirror()["pushed_at"], WAIT_SECONDS)
            running.stop()
            running.start()
            wait_until("all is compared", lambda: running.mirror()["pushed_at"], WAIT_SECONDS)
            time.sleep(SETTLE_SECONDS)
            found = {"files": options.files, **_idle(running, options.seconds)}
            found |= {"tokens": options.tokens, **_attacked(running, port, files, options.tokens)}
    print(json.dumps(found))


def _fill(root: Path, count: int) -> None:
    for number in range(count):
        path = root / f"d{number // FOLDER_FILES}" / f"f{number}"
        if number % FOLDER_FILES == 0:
            path.parent.mkdir(parents=True)
        path.write_bytes(b"%d" % number)


def _idle(running: Daemon, seconds: float) -> dict[str, float]:
    assert running.process is not None
    pid = running.process.pid
    before = _cpu_seconds(pid)
    time.sleep(seconds)
    share = (_cpu_seconds(pid) - before) / seconds
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {"idle_core_percent": round(100 * share, 3), "resident_mib": round(resident / 2**20, 1)}


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _attacked(running: Daemon, port: int, files: Certificates, tokens: int) -> dict[str, Any]:
    command = [sys.executable, "-c", _ATTACK, str(port), str(files.ca), str(tokens)]
    started = time.monotonic()
    attacker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    times = []
    while attacker.poll() is None:
        begun = time.perf_counter()
        running.api.call("GET", "/healthz")
        times.append(time.perf_counter() - begun)
        time.sleep(0.02)
    took = time.monotonic() - started
    out, _ = attacker.communicate()
    ordered = sorted(times)
    return {
        "probes": len(times),
        "healthz_p50_ms": round(1000 * statistics.median(ordered), 2),
        "healthz_p99_ms": round(1000 * ordered[int(len(ordered) * 0.99)], 2),
        "statuses": json.loads(out),
        "attack_seconds": round(took, 1),
    }


_ATTACK = """
import collections, http.client, json, ssl, sys
port, ca, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
context = ssl.create_default_context(cafile=ca)
found = collections.Counter()
connection = http.client.HTTPSConnection("localhost", port, context=context)
for number in range(count):
    connection.request("GET", "/v1/status", headers={"Authorization": f"Bearer dst1_{number:016x}_" + "A" * 43})
    response = connection.getresponse()
    response.read()
    found[response.status] += 1
print(json.dumps(found))
"""

if __name__ == "__main__":
    main()
