"""The reader that is written from docs/format.md alone opens what the key commands leave, with each kind of slot."""

from pathlib import Path

import pytest

from datasync.crypto.identity_file import read_identity
from tests import reference_reader
from tests.support.people import Person


@pytest.fixture
def olga(tmp_path: Path, source: Path) -> Person:
    """The owner of a local repository with one dataset."""
    found = Person.make(tmp_path, "olga", str(tmp_path / "repository"), None, DATASYNC_PASSPHRASE="right horse")
    found.must("init")
    found.must("push", source, "--dataset", "data")
    return found


def digest(who: Person, folder: Path, passphrase: str | None = None) -> str:
    """Return the tree digest of the newest snapshot, as the other reader sees it."""
    secret = None if passphrase else read_identity(who.machine.identity).seed
    (dataset,) = reference_reader.open_repository(folder / "repository", secret, passphrase)
    newest = dataset.head()
    assert newest is not None
    return str(newest.tree_digest())


def test_every_kind_of_slot_opens_the_same_tree(olga: Person, tmp_path: Path, source: Path) -> None:
    expected = reference_reader.describe(source)
    classical = Person.make(tmp_path, "carl", olga.machine.repository)
    lines = classical.must("key", "show", "--x25519")
    olga.must("key", "grant", "data", lines["recipient"], "--name", "carl")
    for who, passphrase in ((olga, None), (classical, None), (olga, "right horse")):
        assert digest(who, tmp_path, passphrase) == expected


def test_after_a_full_rotation_it_reads_through_relocations(olga: Person, tmp_path: Path, source: Path) -> None:
    before = {item.name for item in (tmp_path / "repository").rglob("*") if "packs" in item.parts}
    olga.must("key", "rotate", "data", "--full")
    for path in list((tmp_path / "repository").rglob("*")):
        if "packs" in path.parts and path.is_file() and path.name in before:
            path.unlink()  # as prune does after the grace time
    assert digest(olga, tmp_path) == reference_reader.describe(source)


def test_a_push_only_writers_snapshot_reads_like_any_other(olga: Person, tmp_path: Path, source: Path) -> None:
    lab = Person.make(tmp_path, "lab", olga.machine.repository)
    olga.grant("data", lab, "push-only")
    (source / "more").write_bytes(b"measured" * 4000)
    lab.must("push", source, "--dataset", "data")
    assert digest(olga, tmp_path) == reference_reader.describe(source)


def test_a_shredded_dataset_is_refused_by_it_too(olga: Person, tmp_path: Path) -> None:
    olga.must("key", "shred", "data", "--yes", "--output", tmp_path / "certificate.json")
    with pytest.raises(reference_reader.Refused, match="shredded"):
        digest(olga, tmp_path)
