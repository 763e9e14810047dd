"""Persons are sealed in the leaf, found by name, and erased without touching a leaf."""

import os
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
            assert b"alice@" not in path.read_bytes()
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
    assert b"alice@" not in everything


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


def another_process(book: Book) -> People:
    return People(book.root / "people", PRIMITIVES, SEED)


def test_who_was_erased_by_another_process_is_forgotten_at_once(book: Book) -> None:
    book.write(2, who="alice@host")
    before = book.events()[0].who
    another_process(book).erase("alice@host")
    book.write(1, who="alice@host")
    after = book.events()[-1].who
    assert before is not None
    assert after is not None
    assert before.tag != after.tag
    assert book.people.open(before, book.events()[0].time[:7]) is None
    assert book.people.open(after, book.events()[-1].time[:7]) is not None


def test_who_came_by_another_process_is_opened(book: Book) -> None:
    book.write(1, who="alice@host")
    month = book.events()[0].time[:7]
    assert len(list(book.people.all_keys())) == 1
    sealed = another_process(book).seal(Person("bob@host"), month)
    found = book.people.open(sealed, month)
    assert found is not None
    assert found.subject == "bob@host"
    assert len(list(book.people.all_keys())) == 2


def test_a_kill_while_a_person_is_erased_stops_nothing(book: Book) -> None:
    """The file is overwritten before it goes: one of zeros is one that went."""
    book.write(1, who="alice@host")
    sealed, month = book.events()[0].who, book.events()[0].time[:7]
    (path,) = (book.root / "people" / month).iterdir()
    path.write_bytes(bytes(path.stat().st_size))
    os.utime(path.parent, ns=(0, 0))
    assert sealed is not None
    assert another_process(book).open(sealed, month) is None
    assert list(another_process(book).all_keys()) == []
    book.write(2, who="alice@host")
    again = book.events()[-1].who
    assert again is not None
    assert again.tag == book.events()[-2].who.tag  # type: ignore[union-attr]
    assert again.tag != sealed.tag
    assert another_process(book).open(again, month) is not None


def test_what_a_kill_left_of_a_key_goes_with_the_person(book: Book) -> None:
    book.write(1, who="alice@host")
    (path,) = (book.root / "people" / book.events()[0].time[:7]).iterdir()
    (path.parent / f".{path.name}.123.abcd").write_bytes(path.read_bytes())
    book.people.erase("alice@host")
    assert list(path.parent.iterdir()) == []
