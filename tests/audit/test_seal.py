"""Persons are sealed in the leaf, found by name, and erased without touching a leaf."""

from pathlib import Path

import pytest

from datasync.audit.query import Wanted, last, select
from datasync.audit.rows import row_of
from datasync.audit.seal import People, Person
from datasync.errors import IntegrityError
from datasync.service.audit_log import PRIMITIVES
from tests.audit.book import DAY, SEED, Book


def tags(book: Book, who: str) -> frozenset[tuple[str, str]]:
    return frozenset((key.month, key.tag) for key in book.people.all_keys() if key.subject == who)


def test_no_name_is_in_the_segments_nor_in_the_names_of_files(book: Book) -> None:
    book.write(3, who="alice@secret-host")
    for path in book.log.directory.rglob("*"):
        if path.is_file():
            assert b"alice" not in path.read_bytes()
    assert not [path for path in book.root.rglob("*") if "alice" in str(path)]


def test_a_person_opens_and_is_found_over_months(book: Book) -> None:
    book.write(2)
    book.write(2, who="bob@host")
    book.clock.now += 40 * DAY
    book.write(2)
    wanted = Wanted(actors=tags(book, "alice@host"))
    found = list(select(book.files, wanted))
    assert [event.seq for event in found] == [0, 1, 4, 5]
    assert len({event.who.tag for event in found if event.who}) == 2, "a tag of its own each month"
    assert {row_of(event, book.people).actor for event in found} == {"alice@host"}
    assert [event.seq for event in last(book.files, wanted, 3)] == [1, 4, 5]


def test_erasing_a_person_leaves_every_proof_and_no_name(book: Book) -> None:
    book.write(2)
    book.write(2, who="bob@host")
    root, before = book.verify().root, tags(book, "alice@host")
    assert len(book.people.erase("alice@host")) == 1
    assert book.verify().root == root
    assert [row_of(event, book.people).actor for event in book.events()] == [
        *[f"sealed:{next(iter(before))[1]}"] * 2,
        *["bob@host"] * 2,
    ]
    assert tags(book, "alice@host") == frozenset()
    fresh = People(book.root / "people", PRIMITIVES, SEED)
    assert [key.subject for key in fresh.all_keys()] == ["bob@host"]
    everything = b"".join(path.read_bytes() for path in book.root.rglob("*") if path.is_file())
    assert b"alice" not in everything


def test_who_comes_back_after_erasure_gets_another_tag(book: Book) -> None:
    book.write(1)
    book.people.erase("alice@host")
    book.write(1)
    first, second = (event.who for event in book.events())
    assert first is not None
    assert second is not None
    assert first.tag != second.tag


def test_two_processes_use_one_key(book: Book, tmp_path: Path) -> None:
    other = People(book.root / "people", PRIMITIVES, SEED)
    person = Person("carol@host")
    assert book.people.seal(person, "2026-01").tag == other.seal(person, "2026-01").tag


def test_a_changed_box_is_not_opened_as_somebody_else(book: Book) -> None:
    one, other = (book.people.seal(Person(name), "2026-01") for name in ("a@h", "b@h"))
    mixed = type(one)(one.tag, other.box)
    with pytest.raises(IntegrityError):
        book.people.open(mixed, "2026-01")


def test_key_files_are_the_users_alone(book: Book) -> None:
    book.write(1)
    modes = {path.stat().st_mode & 0o077 for path in (book.root / "people").rglob("*.json")}
    assert modes == {0}
    assert "key" not in repr(next(iter(book.people.all_keys()))).lower().replace("monthkey", "")
