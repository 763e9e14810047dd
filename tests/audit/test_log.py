"""What is recorded is durable, in order, whole, from several writers at once, and never half there."""

import errno
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasync.audit import log
from datasync.audit.event import decode, encode
from datasync.audit.log import Log, draft
from datasync.audit.segments import is_note
from datasync.errors import DatasyncError, FormatError, IntegrityError, NoSpace, UsageError
from tests.audit.book import DAY, Book


def test_a_log_verifies_and_numbers_its_events_from_nought(book: Book) -> None:
    book.write(10, group=3)
    done = book.verify()
    assert (done.size, done.checkpoints, done.begins) == (10, 4, 0)
    assert [event.seq for event in book.events()] == list(range(10))


def test_an_event_that_was_synced_is_on_the_disk_with_its_checkpoint(book: Book) -> None:
    assert book.log.append(book.event("key.grant"), sync=True) == 0
    lines = book.segments()[0].read_bytes().splitlines()
    assert decode(lines[0]).action == "key.grant"
    assert is_note(lines[1])


def test_an_event_has_one_encoding(book: Book) -> None:
    book.write(1)
    line = encode(book.events()[0])
    assert encode(decode(line)) == line
    for other in (line.replace(b'":', b'": ', 1), line.replace(b"}", b',"reason":""}', 1), line[:-1], b"[]", b"\xff"):
        with pytest.raises(FormatError):
            decode(other)


@pytest.mark.parametrize("fields", [{"action": "Not A Name"}, {"reason": "x" * 70_000}, {"bytes": -1}])
def test_what_would_not_read_again_is_refused_and_nothing_is_written(book: Book, fields: dict[str, Any]) -> None:
    action = str(fields.pop("action", "push"))
    with pytest.raises(UsageError):
        book.log.append(draft(action, "success", **fields), sync=True)
    book.write(1)
    assert book.verify().size == 1


def test_two_writers_take_turns(book: Book) -> None:
    other = book.again()
    for number in range(20):
        (book.log, other)[number % 2].append(book.event("push", number), sync=True)
    assert book.verify().size == 20


def test_many_threads_get_a_number_each_when_their_event_is_durable(book: Book) -> None:
    numbers: list[int] = []

    def work() -> None:
        for _ in range(10):
            numbers.append(book.log.append(book.event("push"), sync=True))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(80))
    done = book.verify()
    assert done.size == 80
    assert done.checkpoints <= 80


def test_an_event_that_waits_to_be_durable_is_flushed_whoever_writes_it(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.write(1)
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", flushed.append)
    threads = [
        threading.Thread(target=lambda: book.log.append(book.event("key.grant"), sync=True)),
        threading.Thread(target=lambda: book.log.flush(durable=False)),
    ]
    with book.log.quiet():
        for thread in threads:
            thread.start()
            time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert len(flushed) == 1
    assert book.verify().size == 2


def test_a_month_begins_a_segment(book: Book) -> None:
    book.write(2)
    book.clock.now += 10 * DAY
    book.log.append(book.event("push"), sync=False)
    book.clock.now += 31 * DAY
    book.log.append(book.event("push"), sync=False)
    book.log.flush()
    assert len(book.segments()) == 3
    assert book.verify().size == 4
    assert book.again().append(book.event("push"), sync=True) == 4


def test_a_clock_that_goes_back_is_told_and_times_still_grow(book: Book) -> None:
    book.write(1)
    book.clock.now -= DAY
    book.write(1)
    first, second = book.events()
    assert second.time == first.time
    assert (first.clock, second.clock) == ("", "stepped back")
    book.verify()


def test_a_lost_head_costs_a_look_and_is_told(book: Book) -> None:
    book.write(5)
    (book.log.directory / "head").write_bytes(b"\0" * 4096)
    assert book.again().append(book.event("push"), sync=True) == 6
    assert [(seq, event.action) for seq, event in enumerate(book.events())][5] == (5, "log.recovered")
    book.verify()


def test_an_unfinished_group_is_set_aside_and_told(book: Book) -> None:
    book.write(3)
    whole = book.segments()[0].read_bytes()
    book.segments()[0].write_bytes(whole + b'{"v":1,"log":"')
    with pytest.raises(IntegrityError, match="unfinished"):
        book.verify()
    book.again().append(book.event("push"), sync=True)
    done = book.verify()
    assert done.size == 5
    assert "set aside" in done.gaps[0][1]
    assert any(path.name.startswith("unfinished-3") for path in book.log.directory.iterdir())


@pytest.mark.parametrize("cut", [1, 700, 2000])
def test_a_log_whose_tail_was_cut_is_not_continued(book: Book, cut: int) -> None:
    book.write(5)
    path = book.segments()[0]
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(IntegrityError, match="tail was cut"):
        book.again().append(book.event("push"), sync=True)
    with pytest.raises(IntegrityError, match="tail was cut"):
        book.again().ready()


def test_a_group_that_is_whole_but_not_in_the_head_is_taken_in(book: Book) -> None:
    book.write(2)
    head = (book.log.directory / "head").read_bytes()
    book.write(3)
    (book.log.directory / "head").write_bytes(head)
    assert book.again().append(book.event("push"), sync=True) == 5
    assert book.verify().gaps == []


def test_what_was_written_and_not_flushed_to_the_disk_is_there_for_the_next_writer(book: Book) -> None:
    book.write(2)
    book.log.append(book.event("look"), sync=False)
    book.log.flush(durable=False)
    assert book.again().append(book.event("push"), sync=True) == 3
    assert book.verify().size == 4


def test_a_full_disk_stops_the_action_and_a_gap_event_follows(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    book.write(2)
    real = os.write

    def full(fd: int, data: bytes) -> int:
        real(fd, bytes(data)[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        for _ in range(3):
            with pytest.raises(NoSpace, match="make room"):
                book.log.append(book.event("key.grant"), sync=True)
    assert book.verify().size == 2
    assert book.log.append(book.event("push"), sync=True) == 3
    gap = book.events()[2]
    assert (gap.action, gap.detail["lost"], gap.error) == ("log.gap", 3, "NoSpace")
    assert book.verify().gaps[0][0] == 2
    book.write(1)
    assert len(book.verify().gaps) == 1


def test_a_directory_that_can_not_be_written_stops_the_action(tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("a file where the directory should be")
    broken = Book.make(tmp_path / "audit")
    with pytest.raises(DatasyncError, match="nothing is done unrecorded"):
        broken.log.append(broken.event("push"), sync=True)
    with pytest.raises(DatasyncError, match="nothing is done unrecorded"):
        broken.log.ready()


def test_a_foreign_segment_is_not_written_over(book: Book) -> None:
    book.write(1)
    (book.log.directory / "segments" / f"{7:020}.ndjson").write_bytes(b"x\n")
    with pytest.raises(IntegrityError):
        book.again().append(book.event("push"), sync=True)


def test_closing_writes_what_waits(book: Book) -> None:
    book.log.append(book.event("look"), sync=False)
    book.log.close()
    assert book.verify().size == 1
    assert isinstance(book.log, Log)


@given(st.text())
def test_text_is_encoded_as_the_format_says(text: str) -> None:
    """Python's own JSON escapes the same characters in the same way, so a third party can encode an event again."""
    clean = text.encode("utf-8", "backslashreplace").decode()
    whole = draft("push", "success", reason=clean).event
    value = {"v": 1, "log": whole.log, "seq": 0, "time": "", "action": "push", "outcome": "success"}
    value |= {"reason": clean} if clean else {}
    assert encode(whole) == json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def test_an_unexpected_error_is_nobodys_success(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    book.write(1)
    with monkeypatch.context() as patch:
        patch.setattr(book.people, "seal", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            book.log.append(book.event("key.grant"), sync=True)
    book.write(1)
    assert [event.action for event in book.events()] == ["warm", "log.gap", "warm"]


def test_a_very_large_group_is_written_as_several(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "GROUP_BYTES", 2_000)
    for number in range(30):
        book.log.append(book.event("push", number, reason="x" * 300), sync=False)
    book.log.flush()
    done = book.verify()
    assert done.size == 30
    assert 5 < done.checkpoints < 15


def test_a_large_log_without_its_head_is_replayed(book: Book) -> None:
    book.write(3_000, group=3_000)
    (book.log.directory / "head").unlink()
    assert book.again().append(book.event("push"), sync=True) == 3_001
    assert book.verify().size == 3_002
