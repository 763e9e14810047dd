"""Starting, stopping, reloading: with and without systemd; and who the daemon tells."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from datasync.daemon.alerts import TRIES, Alerts
from datasync.daemon.metrics import Metrics
from datasync.errors import StorageUnavailable
from datasync.service import daemon_settings
from tests.support.daemons import Daemon, configure, daemon, mirror_table, wait_until
from tests.support.machine import Machine


def test_start_and_stop_without_systemd(machine: Machine, source: Path) -> None:
    configure(machine, mirror_table(source))
    assert machine.run("daemon", "status").code == 4
    started = machine.spawn("daemon", "start", "--json")
    assert started.code == 0, started
    pid = started.result["pid"]
    assert os.getsid(pid) == pid, "in a session of its own: the terminal's end is not its end"
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    assert machine.run("daemon", "start").code == 11
    wait_until("it pushes", lambda: machine.must("daemon", "status", "--json").result["mirrors"][0]["seq"])
    machine.must("daemon", "stop")
    assert machine.run("daemon", "status").code == 4
    assert not Path(started.result["socket"]).exists()


def test_a_home_with_a_long_path_is_no_obstacle(machine: Machine, scratch: Path) -> None:
    deep = machine.clone(scratch / ("long" * 40) / "home")
    assert deep.spawn("daemon", "start").code == 0
    try:
        assert deep.must("daemon", "status", "--json").result["state"] == "healthy"
    finally:
        deep.must("daemon", "stop")


def test_a_daemon_that_can_not_start_says_why(machine: Machine, source: Path) -> None:
    configure(machine, mirror_table(source, debounce="soon"))
    refused = machine.spawn("daemon", "start")
    assert refused.code == 2
    assert "debounce" in refused.err
    configure(machine, "[daemon]\nlisten='tcp://127.0.0.1:1'\ncertificate='/no'\nkey='/no'\n")
    refused = machine.spawn("daemon", "start")
    assert refused.code != 0
    assert "PEM" in refused.err


def test_a_killed_daemons_socket_is_no_obstacle_and_a_living_ones_is(machine: Machine, source: Path) -> None:
    with daemon(machine, mirror_table(source)) as running:
        second = Daemon(machine)
        second.start(ready=False)
        assert second.process is not None
        assert second.process.wait(60) == 11
        running.kill()
        assert running.socket.exists()
        running.start()
        assert running.stop() == 0


def test_a_reload_takes_good_settings_and_leaves_wrong_ones(machine: Machine, source: Path, scratch: Path) -> None:
    other = scratch / "other"
    other.mkdir()
    with daemon(machine, mirror_table(source)) as running:
        wait_until("it pushes", lambda: running.mirror()["seq"])
        table = f'[daemon]\nsocket = "{running.socket}"\n'
        configure(machine, mirror_table(source) + mirror_table(other, "other") + table)
        machine.must("daemon", "reload")
        assert [item["dataset"] for item in running.status()["mirrors"]] == ["data", "other"]
        configure(machine, mirror_table(source, rescan="never") + table)
        assert machine.run("daemon", "reload").code == 2
        assert [item["dataset"] for item in running.status()["mirrors"]] == ["data", "other"]
        configure(machine, mirror_table(source) + table)
        machine.must("daemon", "mirror", "add", other, "added")
        assert [item["dataset"] for item in running.status()["mirrors"]] == ["data", "added"]
        wait_until("it is pushed", lambda: running.mirror(1)["seq"] == 1)
        running.kill()
        running.start()
        assert [item["dataset"] for item in running.status()["mirrors"]] == ["data", "added"], "added for good"
        machine.must("daemon", "mirror", "remove", "added")
        assert machine.run("daemon", "mirror", "remove", "data").code == 4
        assert len(running.status()["mirrors"]) == 1


def test_systemd_is_told_what_it_wants_to_know(machine: Machine, source: Path, scratch: Path) -> None:
    inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    inbox.bind(str(scratch / "notify"))
    inbox.settimeout(60)
    notified = ("env", f"NOTIFY_SOCKET={scratch / 'notify'}", "WATCHDOG_USEC=1000000")
    with inbox, daemon(machine, mirror_table(source), prefix=notified) as running:
        assert inbox.recv(4096).startswith(b"READY=1\nSTATUS=1 mirrors")
        assert inbox.recv(4096) == b"WATCHDOG=1\n"
        assert running.process is not None
        os.kill(running.process.pid, 1)
        found, deadline = list[bytes](), time.monotonic() + 60
        while b"READY=1\n" not in found:
            assert time.monotonic() < deadline, found
            found.append(inbox.recv(4096))
        assert any(item.startswith(b"RELOADING=1\nMONOTONIC_USEC=") for item in found)
        running.stop()
        rest = b""
        while b"STOPPING=1" not in rest:
            rest += inbox.recv(4096)


@pytest.mark.parametrize("kind", ["system", "user"])
def test_the_unit_names_this_installation_and_is_sandboxed(machine: Machine, kind: str, scratch: Path) -> None:
    unit = scratch / "datasync.service"
    machine.must("daemon", "install", "--for", kind, "--output", unit)
    text = unit.read_text()
    assert f'ExecStart="{sys.executable}" -m datasync.cli.main daemon run' in text
    assert "Type=notify\nExecStart=" in text
    assert "ExecReload=/bin/kill -HUP $MAINPID" in text
    assert "@python@" not in text
    shipped = Path(__file__).parents[2] / f"deploy/systemd/datasync-{kind}.service"
    assert shipped.read_text() == text.replace(f'"{sys.executable}" -m datasync.cli.main', "/usr/bin/datasync")
    if kind == "system":
        for line in (
            "LoadCredential=identity:",
            "ProtectSystem=strict",
            "NoNewPrivileges=yes",
            "CapabilityBoundingSet=",
        ):
            assert line in text
    assert machine.run("daemon", "install", "--output", unit).code == 2


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize(("kind", "exposed"), [("system", 2.0), ("user", 8.0)])
def test_systemd_reads_the_unit_and_finds_it_sandboxed(
    machine: Machine, kind: str, exposed: float, scratch: Path
) -> None:
    """Where the unit is read only: a running manager is not needed. A user's manager can not sandbox much."""
    unit = scratch / "datasync.service"
    machine.must("daemon", "install", "--for", kind, "--output", unit)

    def analyze(*arguments: str) -> str:
        command = ["systemd-analyze", *arguments, *(["--user"] if kind == "user" else []), str(unit)]
        environment = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(scratch)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done
        return done.stdout + done.stderr

    assert analyze("verify", "--man=no").strip() == ""
    overall = analyze("security", "--offline=true").strip().splitlines()[-1]
    assert float(overall.rpartition(": ")[2].split()[0]) <= exposed


def test_the_end_does_not_wait_for_a_clients_warm(machine: Machine, source: Path) -> None:
    (source / "large").write_bytes(os.urandom(3_000_000))
    machine.must("push", source, "--dataset", "data")
    slow = f'[push]\nbwlimit = "20K"\n[daemon]\nsocket = "{machine.home}/d.sock"\n'
    with daemon(machine, slow) as running:
        events = running.api.stream("POST", "/v1/warm", {"reference": "data"})
        assert next(events)["type"] == "progress"
        assert running.stop() == 0
        with pytest.raises(StorageUnavailable):
            list(events)


def test_a_daemon_whose_log_can_not_be_written_did_not_start(machine: Machine) -> None:
    audit = machine.home / ".local/share/datasync/audit"
    shutil.rmtree(audit)
    audit.write_text("a file where the log belongs")
    refused = machine.spawn("daemon", "start")
    assert refused.code != 0
    assert "audit" in refused.err


def test_a_reload_says_what_waits_for_a_restart(machine: Machine, source: Path, scratch: Path) -> None:
    with daemon(machine, mirror_table(source)) as running:
        table = f'{mirror_table(source)}[daemon]\nsocket = "{scratch}/other.sock"\ngroup = "root"\n'
        configure(machine, table)
        done = machine.must("daemon", "reload", "--json", "--daemon", running.socket)
        assert done.result["restart"] == ["[daemon] socket", "[daemon] group"]
        assert "[daemon] socket: changed, and read when the daemon starts" in done.err
        configure(machine, f'{mirror_table(source)}[daemon]\nsocket = "{running.socket}"\n')
        assert machine.must("daemon", "reload", "--json").result["restart"] == []


def test_mirrors_that_are_added_at_once_are_all_there(machine: Machine, source: Path, scratch: Path) -> None:
    names = [f"added{number}" for number in range(6)]
    for name in names:
        (scratch / name).mkdir()
    with daemon(machine, mirror_table(source)) as running:
        bodies = [{"path": str(scratch / name), "dataset": name} for name in names]
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(lambda body: running.api.call("POST", "/v1/mirrors", body), bodies))
        assert sorted(item["dataset"] for item in running.status()["mirrors"]) == [*names, "data"]


# alerts


@contextmanager
def webhook(statuses: list[int]) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Yield a URL and what it got; it answers with *statuses*, then 200."""
    got: list[dict[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(statuses.pop(0) if statuses else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/hook", got
        server.shutdown()


def make(**settings: object) -> tuple[Alerts, Metrics]:
    metrics = Metrics()
    return Alerts(daemon_settings.Alerts(**settings), metrics, "node", sleep=lambda _: None), metrics  # type: ignore[arg-type]


def test_a_trouble_is_told_once_when_it_begins_and_once_when_it_ends(scratch: Path) -> None:
    log = scratch / "told"
    program = ("/bin/sh", "-c", f"cat >> {log}; echo >> {log}")
    with webhook([500, 503]) as (url, got):
        alerts, metrics = make(webhook=url, exec=program)
        for _ in range(100):
            alerts.begin("push-failed", "data", "the store is away")
        assert alerts.current() == [{"kind": "push-failed", "subject": "data", "text": "the store is away"}]
        alerts.end("push-failed", "data")
        alerts.end("push-failed", "data")
        alerts.close()
    told = [item["state"] for item in got]
    assert told == ["begin"] * TRIES + ["end"]
    assert [json.loads(line)["state"] for line in log.read_text().splitlines()] == ["begin", "end"]
    assert 'datasync_alerts_total{kind="push-failed",outcome="sent"} 4' in metrics.text({})
    assert alerts.current() == []


@pytest.mark.parametrize(
    "settings",
    [
        {"webhook": "http://192.0.2.1/x"},
        {"webhook": "http://127.0.0.1:1/"},
        {"exec": ("/no/such",)},
        {"exec": ("/bin/false",)},
    ],
)
def test_an_alert_that_can_not_be_sent_is_counted_and_holds_nothing_up(settings: dict[str, object]) -> None:
    alerts, metrics = make(**settings)
    alerts.begin("deletion-held", "data", "gone")
    alerts.close()
    assert 'outcome="failed"} 1' in metrics.text({})


def test_the_extra_that_is_missing_is_named(machine: Machine) -> None:
    """Without aiohttp the command says what to install, and every other command works."""
    program = (
        "import sys; sys.modules['aiohttp'] = None; sys.argv = ['datasync', 'daemon', 'run'];"
        "from datasync.cli.main import main; main()"
    )
    environment = machine.environment() | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "gpu-datasync[daemon]" in done.stderr
