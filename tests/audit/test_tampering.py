"""Forty ways to tamper with a log's files: verify finds each, offline, and names the first bad place.

The log has three months: events 0 … 9 one by one, 10 … 19 in groups of five, 20 … 29 one by one. What only somebody who
kept a checkpoint can see (a cut tail, an older state, a second history) is found with that checkpoint.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from datasync.audit.checkpoint import Checkpoint, sign_checkpoint, verifier_key
from datasync.audit.event import decode, encode
from datasync.audit.merkle import Frontier, leaf_hash
from datasync.audit.segments import is_note, marks_of, note_line, segment_paths
from datasync.crypto.notes import NoteKey
from datasync.errors import IntegrityError, NotFound, RollbackError
from datasync.service.audit_log import PRIMITIVES
from tests.audit.book import DAY, Book

Tamper = Callable[[Book], None]


@pytest.fixture
def long_book(book: Book) -> Book:
    book.write(10)
    book.clock.now += 31 * DAY
    book.write(10, group=5)
    book.clock.now += 31 * DAY
    book.write(10)
    return book


def lines(book: Book, segment: int) -> list[bytes]:
    return book.segments()[segment].read_bytes().splitlines(keepends=True)


def put(book: Book, segment: int, new: list[bytes]) -> None:
    book.segments()[segment].write_bytes(b"".join(new))


def swap(at: int, old: bytes, new: bytes, *, segment: int = 0) -> Tamper:
    """Replace bytes of one line."""

    def act(book: Book) -> None:
        found = lines(book, segment)
        assert old in found[at]
        found[at] = found[at].replace(old, new, 1)
        put(book, segment, found)

    return act


def without(*positions: int, segment: int = 0) -> Tamper:
    """Remove lines."""
    return lambda book: put(
        book, segment, [line for at, line in enumerate(lines(book, segment)) if at not in positions]
    )


def reordered(one: int, other: int, *, segment: int = 0) -> Tamper:
    """Exchange two lines."""

    def act(book: Book) -> None:
        found = lines(book, segment)
        found[one], found[other] = found[other], found[one]
        put(book, segment, found)

    return act


def again(*positions: int, segment: int = 0) -> Tamper:
    """Repeat lines."""

    def act(book: Book) -> None:
        found = lines(book, segment)
        put(book, segment, found + [found[at] for at in positions])

    return act


def renumbered(book: Book) -> None:
    """Remove event 4 with its checkpoint and give the later ones of the segment the numbers before them."""
    found = lines(book, 0)
    kept = found[:8]
    for line in found[10:]:
        if is_note(line):
            kept.append(line)
        else:
            event = decode(line[:-1])
            kept.append(re.sub(rb'"seq":\d+', b'"seq":%d' % (event.seq - 1), line))
    put(book, 0, kept)


def signed_by(book: Book, key: NoteKey, log: str, *, public: bool) -> None:
    """Write the whole log anew, with an event changed, signed by *key*."""
    tree = Frontier(PRIMITIVES.sha256)
    for segment in range(3):
        new, group = list[bytes](), list[bytes]()
        for line in lines(book, segment):
            if is_note(line):
                note = sign_checkpoint(PRIMITIVES, Checkpoint(log, tree.size, tree.root()), key)
                new.append(note_line(note, marks_of(group)) + b"\n")
                group = []
                continue
            changed = line[:-1].replace(book.log.id.encode(), log.encode(), 1)
            changed = changed.replace(b'"dataset":"data1"', b'"dataset":"other"')
            group.append(leaf_hash(PRIMITIVES.sha256, changed))
            tree.append(group[-1])
            new.append(changed + b"\n")
        put(book, segment, new)
    if public:
        (book.log.directory / "key.pub").write_text(verifier_key(PRIMITIVES, key.public) + "\n")


OTHER = NoteKey(b"x" * 32)


def resigned_by_another(book: Book) -> None:
    signed_by(book, OTHER, book.log.id, public=False)


def key_replaced(book: Book) -> None:
    signed_by(book, OTHER, book.log.id, public=True)


def key_and_id_replaced(book: Book) -> None:
    from datasync.audit.checkpoint import log_id

    signed_by(book, OTHER, log_id(PRIMITIVES, OTHER.public), public=True)


def marks_and_event(book: Book) -> None:
    """Edit event 12 and its mark: only the root hash tells."""
    found = lines(book, 1)
    at = next(at for at, line in enumerate(found) if b'"seq":12,' in line)
    found[at] = found[at].replace(b'"action":"warm"', b'"action":"push"')
    note_at = next(at for at, line in enumerate(found) if is_note(line))
    value = json.loads(found[note_at])
    group = [leaf_hash(PRIMITIVES.sha256, line[:-1]) for line in found[:note_at]]
    found[note_at] = note_line(value["note"], marks_of(group)) + b"\n"
    put(book, 1, found)


def segment_removed(number: int) -> Tamper:
    return lambda book: book.segments()[number].unlink()


def segment_copied(book: Book) -> None:
    paths = book.segments()
    shutil.copy(paths[0], paths[0].with_name(f"{30:020}.ndjson"))


def segments_swapped(book: Book) -> None:
    one, other = book.segments()[:2]
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def stray_file(book: Book) -> None:
    (book.log.directory / "segments" / "notes.txt").write_text("x")


def emptied(book: Book) -> None:
    book.segments()[1].write_bytes(b"")


def base_forged(book: Book) -> None:
    book.segments()[0].unlink()
    frontier = ["00" * 32] * (10).bit_count()
    (book.log.directory / "base").write_text(json.dumps({"size": 10, "frontier": frontier}, separators=(",", ":")))


def base_garbled(book: Book) -> None:
    (book.log.directory / "base").write_text("{}")


def line_cut(book: Book) -> None:
    path = book.segments()[0]
    path.write_bytes(path.read_bytes()[:-40])


def key_removed(book: Book) -> None:
    (book.log.directory / "key.pub").unlink()


def key_garbled(book: Book) -> None:
    (book.log.directory / "key.pub").write_text("no key\n")


def time_moved(book: Book) -> None:
    swap(6, b'"time":"2025-11-24', b'"time":"2025-11-23')(book)


TAMPERINGS: dict[str, tuple[Tamper, str]] = {
    "an action is edited": (swap(8, b'"action":"warm"', b'"action":"look"'), "event 4 "),
    "an outcome is edited": (swap(0, b'"outcome":"success"', b'"outcome":"failure"'), "event 0 "),
    "a dataset is edited inside a group": (swap(3, b'"dataset":"', b'"dataset":"x', segment=1), "event 13 "),
    "an event of the newest segment is edited": (swap(18, b'"dataset":"', b'"dataset":"x', segment=2), "event 29 "),
    "a person's tag is edited": (swap(2, b'"tag":"', b'"tag":"0'), "event 1 "),
    "a person's box is edited": (swap(4, b'"box":"', b'"box":"A'), "event 2 "),
    "a member is added": (swap(10, b'"outcome"', b'"reason":"x","outcome"'), "event 5:"),
    "white space is added": (swap(10, b'"outcome":', b'"outcome": '), "event 5:"),
    "an event and its mark are edited": (marks_and_event, "event 10 or one up to 14"),
    "a time is moved back": (time_moved, "event 3:"),
    "a number is edited": (swap(12, b'"seq":6', b'"seq":7'), "event 6:"),
    "a log's id is edited": (swap(12, b'"log":"', b'"log":"0'), "event 6:"),
    "an event is cut out": (without(6), "event 3:"),
    "an event is cut out of a group": (without(2, segment=1), "event 12:"),
    "an event and its checkpoint are cut out": (without(6, 7), "event 3:"),
    "an event is cut out and the later ones renumbered": (renumbered, "event 4:"),
    "a group is cut out": (without(0, 1, 2, 3, 4, 5, segment=1), "event 10:"),
    "two events are exchanged": (reordered(4, 6), "event 2:"),
    "two events of a group are exchanged": (reordered(1, 3, segment=1), "event 11:"),
    "two checkpoints are exchanged": (reordered(5, 7), "event 2:"),
    "an event is there twice": (again(18), "event 10:"),
    "an event and its checkpoint are there twice": (again(18, 19), "event 10:"),
    "a checkpoint is there twice": (again(19), "event 10:"),
    "a checkpoint is cut out": (without(7), "event 3 "),
    "the newest checkpoint is cut out": (without(19, segment=2), "event 29:"),
    "a checkpoint's root is edited": (swap(3, b"\\n2\\n", b"\\n2\\nA"), "event 2:"),
    "a checkpoint's size is edited": (swap(3, b"\\n2\\n", b"\\n3\\n"), "checkpoint at 3"),
    "a checkpoint's signature is edited": (
        lambda book: put(book, 0, [_flip(line) if at == 9 else line for at, line in enumerate(lines(book, 0))]),
        "checkpoint at 5",
    ),
    "a mark is edited": (
        lambda book: put(book, 0, [_mark(line) if at == 9 else line for at, line in enumerate(lines(book, 0))]),
        "event 4 ",
    ),
    "the log is signed anew by another key": (resigned_by_another, "checkpoint at 1"),
    "the log is signed anew and its key replaced": (key_replaced, "the key was replaced"),
    "the log, its key and its id are replaced": (key_and_id_replaced, "the key was replaced"),
    "the oldest segment is removed": (segment_removed(0), "event 0:"),
    "a segment in the middle is removed": (segment_removed(1), "event 10:"),
    "a segment is copied under a later name": (segment_copied, "event 0 "),
    "two segments are exchanged": (segments_swapped, "event 0:"),
    "a segment is emptied": (emptied, "event 10:"),
    "a file is put among the segments": (stray_file, "notes.txt"),
    "the oldest segment is removed and a base forged": (base_forged, "event 10 or one before"),
    "the base is garbled": (base_garbled, "base"),
    "the key is garbled": (key_garbled, "key.pub"),
    "a segment ends in the middle of a line": (line_cut, "event 10:"),
}


def _flip(line: bytes) -> bytes:
    value = json.loads(line)
    head, _, blob = value["note"].rstrip("\n").rpartition(" ")
    changed = blob[:-4] + ("A" if blob[-4] != "A" else "B") + blob[-3:]
    return note_line(f"{head} {changed}\n", value["marks"]) + b"\n"


def _mark(line: bytes) -> bytes:
    value = json.loads(line)
    return note_line(value["note"], marks_of([b"other"])) + b"\n"


@pytest.mark.parametrize("name", TAMPERINGS)
def test_verify_finds_it_and_names_the_first_bad_place(name: str, long_book: Book) -> None:
    long_book.verify()
    act, place = TAMPERINGS[name]
    act(long_book)
    with pytest.raises(IntegrityError, match=re.escape(place)) as caught:
        long_book.verify()
    assert not isinstance(caught.value, RollbackError)


def test_a_log_without_its_key_is_no_log(long_book: Book) -> None:
    key_removed(long_book)
    with pytest.raises(NotFound, match=r"key\.pub"):
        long_book.verify()


def _cut(book: Book, events: int) -> None:
    """Cut the newest events with their checkpoints, and the head that tells."""
    put(book, 2, lines(book, 2)[: -2 * events])
    (book.log.directory / "head").unlink()


def test_a_cut_tail_is_seen_by_who_kept_a_checkpoint(long_book: Book) -> None:
    kept = long_book.checkpoint()
    _cut(long_book, 3)
    assert long_book.verify().size == 27  # nothing in the files alone tells
    with pytest.raises(RollbackError, match="event 27: a kept checkpoint has 30 events, the log only 27"):
        long_book.verify([kept])


def test_a_cut_tail_that_grew_again_is_seen_too(long_book: Book) -> None:
    kept = long_book.checkpoint()
    _cut(long_book, 3)
    log = long_book.again()
    for number in range(9):
        log.append(long_book.event("push", number), sync=True)
    with pytest.raises(RollbackError, match="event 29: a kept checkpoint at 30 has another root hash"):
        long_book.verify([kept])


def test_a_second_history_is_seen(long_book: Book, tmp_path: Path) -> None:
    other = Book.make(tmp_path / "second")
    other.write(30)
    with pytest.raises(RollbackError, match="split view"):
        long_book.verify([other.checkpoint()])


def test_an_older_checkpoint_is_consistent_and_one_of_another_log_is_not(long_book: Book, tmp_path: Path) -> None:
    middle = Book.make(tmp_path / "other", b"y" * 32)
    middle.write(1)
    older = long_book.checkpoint()
    long_book.write(5)
    long_book.verify([older])
    with pytest.raises(IntegrityError, match="the kept checkpoint is of log"):
        long_book.verify([middle.checkpoint()])


def test_every_flipped_bit_of_a_small_log_is_found(book: Book) -> None:
    book.write(3, group=2)
    path = book.segments()[0]
    data = path.read_bytes()
    missed = []
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 1 << (at % 8)
        path.write_bytes(changed)
        try:
            book.verify()
        except IntegrityError:
            continue
        missed.append(at)
    path.write_bytes(data)
    book.verify()
    assert missed == []


def test_the_segments_are_named_by_their_first_event(long_book: Book) -> None:
    assert [first for first, _ in segment_paths(long_book.log.directory)] == [0, 10, 20]
    assert encode(long_book.events()[0]).startswith(b'{"v":1,')
