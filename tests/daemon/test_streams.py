"""A stream ends for its client however the work ends, and however much was told meanwhile."""

import http.client
import json
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from datasync.config import Flags, load_config
from datasync.daemon.answers import WarmRequest
from datasync.daemon.events import QUEUE_EVENTS, Bus
from datasync.daemon.handlers import Handlers
from datasync.daemon.supervisor import Supervisor
from datasync.errors import NoSpace
from tests.support.in_process_api import TOKEN, in_process_api


@pytest.fixture
def url() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="ds-", ignore_cleanup_errors=True) as name:
        supervisor = Supervisor(lambda: load_config(Flags(), {"HOME": str(Path(name).resolve())}))
        with in_process_api(supervisor) as found:
            yield found
        supervisor.alerts.close()


def streamed(url: str) -> list[dict[str, Any]]:
    """Return all events of a warm."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        connection.request("POST", "/v1/warm", b'{"reference": "data"}', headers)
        lines = connection.getresponse().read().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]


@pytest.mark.parametrize(
    ("error", "told"),
    [(RuntimeError("a secret"), ("DatasyncError", 1)), (NoSpace("the disk is full"), ("NoSpace", 8))],
)
def test_work_that_fails_ends_the_stream(
    url: str, monkeypatch: pytest.MonkeyPatch, error: Exception, told: tuple[str, int]
) -> None:
    def fail(*_: object) -> dict[str, Any]:
        raise error

    monkeypatch.setattr(Handlers, "_warmed", fail)
    (event,) = streamed(url)
    assert (event["type"], event["error"], event["exit"]) == ("error", *told)
    assert "secret" not in json.dumps(event)


def test_how_it_ended_is_told_after_more_than_the_queue_holds(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(_: Handlers, body: WarmRequest, bus: Bus) -> dict[str, Any]:
        for number in range(4 * QUEUE_EVENTS):
            bus.tell("progress", files=number)
        return {"dataset": body.reference}

    monkeypatch.setattr(Handlers, "_warmed", work)
    found = streamed(url)
    assert found[-1] == {"type": "ready", "dataset": "data"}
    assert found[-2]["files"] == 4 * QUEUE_EVENTS - 1
    numbers = [event["number"] for event in found[:-1]]
    assert numbers == sorted(numbers)


def test_a_listener_that_is_slow_gets_the_newest() -> None:
    bus = Bus()
    with bus.listen(lambda: None) as listener:
        for number in range(QUEUE_EVENTS + 7):
            bus.tell("push", entries=number)
        found = listener.take()
    assert [event["entries"] for event in found] == list(range(7, QUEUE_EVENTS + 7))
    assert listener.dropped == 7
