"""Who is about to lose access hears of it before: certificates, grants, tokens, lent keys; and no longer afterwards."""

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from datasync.config import Config, Flags, load_config
from datasync.crypto.signatures import SigningKey
from datasync.daemon.supervisor import Supervisor
from datasync.daemon.warm import Subscription
from datasync.format.grant import Grant
from datasync.repository.grants import issue
from datasync.service import tokens
from datasync.service.borrow import Lender
from datasync.service.daemon_settings import Warm
from datasync.service.endings import Ending
from tests.support.daemons import make_certificates

HOUR, DAY = 3600.0, 86400.0


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(Flags(), {"HOME": str(tmp_path)})


def checked(config: Config, monkeypatch: pytest.MonkeyPatch, later: float = 0.0) -> dict[tuple[str, str], str]:
    """Return what a daemon alerts, looking *later* seconds from now."""
    with monkeypatch.context() as patch:
        moment = time.time() + later
        patch.setattr(time, "time", lambda: moment)
        supervisor = Supervisor(lambda: config)
        supervisor.check()
        found = {(item["kind"], item["subject"]): item["text"] for item in supervisor.alerts.current()}
        supervisor.alerts.close()
    return {key: text for key, text in found.items() if key[0].endswith("-ending")}


@pytest.mark.parametrize(
    ("life", "left", "soon"),
    [
        (0.0, 6 * DAY, True),
        (0.0, 8 * DAY, False),
        (12 * HOUR, 2 * HOUR, False),
        (12 * HOUR, 1 * HOUR, True),
        (365 * DAY, 8 * DAY, False),
        (365 * DAY, 6 * DAY, True),
        (12 * HOUR, -1.0, True),
    ],
)
def test_soon_is_measured_by_the_setting_and_by_the_life(life: float, left: float, soon: bool) -> None:
    assert Ending("grant-ending", "x", left, life).soon(7 * DAY) is soon


def test_tokens_are_told_near_their_end_and_not_after(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    long, _ = tokens.create(config, tokens.Wanted("gpu-7", ("data",), ("warm",), 12 * HOUR))
    revoked, _ = tokens.create(config, tokens.Wanted("gpu-8", ("data",), ("warm",), 12 * HOUR))
    tokens.revoke(config, revoked.id)
    assert checked(config, monkeypatch) == {}
    told = checked(config, monkeypatch, 11 * HOUR)
    assert list(told) == [("grant-ending", f"token {long.id} of gpu-7")]
    assert "renew it before" in told["grant-ending", f"token {long.id} of gpu-7"]
    assert checked(config, monkeypatch, 13 * HOUR) == {}, "over: what it was for tells that itself"


def test_offline_grants_are_told_near_their_end(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, path = int(time.time() * 1000), tmp_path / "grant"
    grant = Grant(bytes(32), now, now + int(10 * DAY * 1000), bytes(32), ("Warm",), 0, 0, b"", "", "")
    path.write_text(issue(grant, SigningKey(bytes(32))))
    held = replace(config, grants=(path,))
    assert checked(held, monkeypatch) == {}
    assert list(checked(held, monkeypatch, 9.5 * DAY)) == [("grant-ending", str(path))]
    assert checked(held, monkeypatch, 11 * DAY) == {}


def test_certificates_of_both_sides_are_told(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = make_certificates(tmp_path / "tls")
    tables = {
        "daemon": {"certificate": str(files.certificate)},
        "control": {"certificate": str(files.client), "key": str(files.client_key)},
    }
    served = replace(config, tables=tables)
    assert checked(served, monkeypatch) == {}
    told = checked(served, monkeypatch, 25 * DAY)
    assert sorted(subject for _, subject in told) == sorted([str(files.certificate), str(files.client)])
    assert "ended at" in next(iter(checked(served, monkeypatch, 31 * DAY).values()))


def test_a_file_that_can_not_be_read_is_told_and_ends_no_thread(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = replace(config, tables={"daemon": {"certificate": "/no/such"}}, grants=(Path("/no/such/grant"),))
    assert sorted(checked(broken, monkeypatch)) == [("certificate-ending", "settings"), ("grant-ending", "settings")]


def test_a_disk_that_does_not_answer_is_told_and_ends_no_thread(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(shutil, "disk_usage", dead)
    supervisor = Supervisor(lambda: config)
    supervisor.check()
    told = [item["text"] for item in supervisor.alerts.current() if item["kind"] == "disk-near-full"]
    supervisor.alerts.close()
    assert told
    assert all("does not answer" in text for text in told)


def test_an_alert_ends_when_what_it_was_for_is_renewed(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    token, _ = tokens.create(config, tokens.Wanted("gpu-7", ("data",), ("warm",), 10 * HOUR))
    supervisor = Supervisor(lambda: config)
    monkeypatch.setattr(time, "time", lambda: token.created / 1000 + 9.5 * HOUR)
    supervisor.check()
    assert [item["kind"] for item in supervisor.alerts.current()] == ["grant-ending"]
    tokens.revoke(config, token.id)
    supervisor.check()
    assert supervisor.alerts.current() == []
    supervisor.alerts.close()


class FakeLender:
    """Lends until a time that a test sets."""

    lends = True

    def __init__(self) -> None:
        self.end: int | None = None

    def until(self, _: str) -> int | None:
        return self.end


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Move the time that is asked for."""
    started = time.time()

    def move(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: started + seconds)

    move(0)
    return move


def test_a_lent_key_whose_token_ends_is_told_and_one_that_is_renewed_is_not(
    config: Config, clock: Callable[[float], None]
) -> None:
    lender = FakeLender()
    item = Subscription(config, Warm(dataset="data"), cast(Lender, lender))
    started = time.time()
    assert item.ending() is None
    lender.end = int((started + 12 * HOUR) * 1000)
    assert item.ending() is None, "it lives as long as any: it is renewed"
    clock(11.99 * HOUR)
    assert item.ending() is None
    lender.end = int((started + 15 * HOUR) * 1000)
    assert item.ending() is not None, "the token behind it ends in three hours"
    assert not _soon(item)
    clock(14.8 * HOUR)
    assert _soon(item)
    lender.end = None
    assert _soon(item), "none is lent any more: it stays told until one is"


def _soon(item: Subscription) -> bool:
    found = item.ending()
    return found is not None and found.soon(7 * DAY)
