"""Old segments go and everything that is left is still proved; holds and the law's floor stop it."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from datasync.audit.checkpoint import Checkpoint
from datasync.audit.prove import prove_event
from datasync.audit.retention import FLOOR, find_old, parse_retention, read_hold, remove_old, write_hold
from datasync.audit.segments import local_log
from datasync.audit.verify import verify_log
from datasync.config import Config, Flags, load_config
from datasync.errors import IntegrityError, Locked, NotFound, UsageError
from datasync.service import audit, audit_export, audit_keep, audit_report
from datasync.service.audit_log import PRIMITIVES, audit_root, people_of
from datasync.service.record import recorded
from tests.audit.book import DAY, Book


@pytest.fixture
def years(book: Book) -> Book:
    """Four segments, a hundred days apart."""
    for _ in range(4):
        book.write(7, group=3)
        book.clock.now += 100 * DAY
    return book


def cut(book: Book, days: int) -> int:
    """Remove what is older than *days* before the clock; return the first event that stays."""
    now = datetime.fromtimestamp(book.clock.now / 1_000_000, UTC)
    old = find_old(book.files, timedelta(days=days), now)
    remove_old(PRIMITIVES, book.log.directory, book.files, old)
    return old.first_kept


def test_what_is_left_verifies_is_proved_and_goes_on(years: Book) -> None:
    before = years.verify()
    assert cut(years, 250) == 14
    after = years.verify()
    assert (after.begins, after.size, after.root) == (14, 28, before.root)
    assert prove_event(PRIMITIVES, years.files, 20)["seq"] == 20
    with pytest.raises(NotFound):
        prove_event(PRIMITIVES, years.files, 3)
    assert years.again().append(years.event("push"), sync=True) == 28
    (years.log.directory / "head").unlink()
    assert years.again().append(years.event("push"), sync=True) == 30
    years.verify()


def test_the_newest_segment_stays_whatever_its_age(years: Book) -> None:
    assert cut(years, 1) == 21
    assert years.verify().size == 28


def test_nothing_goes_before_its_time(years: Book) -> None:
    assert cut(years, 1000) == 0
    assert years.verify().begins == 0


def test_a_kill_between_base_and_removal_does_no_harm(years: Book) -> None:
    saved = [(path, path.read_bytes()) for path in years.segments()]
    cut(years, 250)
    for path, data in saved[:2]:
        path.write_bytes(data)
    assert years.verify().begins == 14
    (years.log.directory / "head").unlink()
    assert years.again().append(years.event("push"), sync=True) == 29


def test_removing_a_segment_without_the_base_is_tampering(years: Book) -> None:
    years.segments()[0].unlink()
    with pytest.raises(IntegrityError, match="event 0: is missing"):
        years.verify()


@pytest.mark.parametrize("text", ["3y", "6m", "200d", "183d"])
def test_spans_at_or_above_the_floor(text: str) -> None:
    assert parse_retention(text) >= FLOOR


@pytest.mark.parametrize("text", ["5m", "30d", "1d"])
def test_below_the_floor_only_when_it_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="6 months"):
        parse_retention(text)
    assert parse_retention(text, override=True) < FLOOR


@pytest.mark.parametrize("text", ["", "3", "0y", "3 years", "-1y"])
def test_spans_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="expected days"):
        parse_retention(text)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    made = load_config(Flags(), {"HOME": str(tmp_path)})
    with recorded(made, "push", subject="erin@example.org"):
        pass
    return made


def _actions(config: Config) -> list[str]:
    from datasync.audit.query import Wanted, select
    from datasync.service.audit import local_logs

    return [f"{event.action}:{event.outcome}" for event in select(local_logs(config)[0], Wanted())]


def test_a_hold_stops_removal_and_erasure_until_it_is_lifted(config: Config) -> None:
    audit_keep.hold(config, "case 17")
    with pytest.raises(Locked, match="case 17"):
        audit_keep.apply(config)
    with pytest.raises(Locked, match="case 17"):
        audit_keep.erase(config, "erin@example.org")
    audit_keep.hold(config, None)
    assert len(audit_keep.erase(config, "erin@example.org")) == 1
    with pytest.raises(NotFound):
        audit_keep.erase(config, "erin@example.org")
    assert "audit.hold:intent" in _actions(config)
    assert _actions(config)[-1] == "person.erase:success"


def test_going_below_the_floor_is_an_event(config: Config) -> None:
    with pytest.raises(UsageError):
        audit_keep.apply(config, "30d")
    audit_keep.apply(config, "30d", override=True)
    from datasync.audit.query import Wanted, select
    from datasync.service.audit import local_logs

    found = list(select(local_logs(config)[0], Wanted(action="audit.retain")))
    assert [event.detail.get("override_legal_floor") for event in found] == [1, 1]


def test_a_hold_that_does_not_parse_holds(tmp_path: Path) -> None:
    (tmp_path / "hold").write_text("?")
    assert read_hold(tmp_path) is not None
    write_hold(tmp_path, None)
    assert read_hold(tmp_path) is None


def test_people_are_the_machines(config: Config) -> None:
    assert {key.subject for key in people_of(config).all_keys()} == {"erin@example.org"}
    assert (audit_root(config) / "people").is_dir()


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Two events each of two years, one year, and no day ago."""
    made = load_config(Flags(), {"HOME": str(tmp_path / "fresh")})
    for days in (730, 365, 0):
        clock = SimpleNamespace(time_ns=lambda days=days: time.time_ns() - days * 86_400 * 10**9)
        monkeypatch.setattr("datasync.audit.log.time", clock)
        for number in range(2):
            with recorded(made, "push", dataset=f"d{number}"):
                pass
    return made


def test_a_beginning_that_no_event_tells_of_was_cut_out(fresh: Config) -> None:
    """Whoever can write the directory can make a base that fits; only the log's key can tell of a removal."""
    (files,) = audit.local_logs(fresh)
    directory = audit_root(fresh) / files.name
    remove_old(PRIMITIVES, directory, files, find_old(files, timedelta(days=300)))
    begins = verify_log(PRIMITIVES, local_log(PRIMITIVES, directory)).begins
    assert begins > 0
    told = f"event 0: the events before {begins} are gone"
    for place in (None, directory):
        with pytest.raises(IntegrityError, match=told):
            audit.verify(fresh, place)
    with pytest.raises(IntegrityError, match=told):
        audit_keep.apply(fresh)
    with pytest.raises(IntegrityError, match="are gone"):
        audit_report.make(fresh, "integrity", {}, audit.local_logs(fresh), people_of(fresh))
    out = directory.parent / "export.jsonl"
    with pytest.raises(IntegrityError, match="are gone"):
        audit_export.export_to(fresh, audit.local_logs(fresh), people_of(fresh), "jsonl", out, "", "")
    assert not out.exists()


def test_a_removal_that_an_event_tells_of_verifies_here_and_elsewhere(fresh: Config) -> None:
    people = {key.month for key in people_of(fresh).all_keys()}
    (removed,) = audit_keep.apply(fresh, "300d").logs
    assert removed.old.first_kept > 0
    (done,) = audit.verify(fresh)
    assert done.begins == removed.old.first_kept
    assert done.uncompared == []
    directory = audit_root(fresh) / done.log
    assert audit.verify(fresh, directory)[0].removals == {done.log: done.begins}
    assert {key.month for key in people_of(fresh).all_keys()} < people
    old = Checkpoint(done.log, 1, bytes(32))
    assert audit.verify(fresh, kept=(old,))[0].uncompared == [1]


def test_what_was_tampered_with_is_kept_as_evidence(fresh: Config) -> None:
    (files,) = audit.local_logs(fresh)
    oldest = audit_root(fresh) / files.name / "segments" / files.pieces[0].name
    oldest.write_bytes(oldest.read_bytes().replace(b'"d0"', b'"dX"'))
    with pytest.raises(IntegrityError, match="is not what was signed"):
        audit_keep.apply(fresh, "300d")
    assert oldest.exists()
