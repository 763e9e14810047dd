"""The recovery kit brings access back with nothing else, and an identity may be kept under a passphrase."""

import re
import stat
from collections.abc import Callable
from pathlib import Path

from tests.support.machine import Machine, contents
from tests.support.people import Person

PNG = b"\x89PNG\r\n\x1a\n"


def lose_all(owner: Person, folder: Path) -> Person:
    """Return the same person on a new machine, without identity or memory."""
    return Person(owner.name, Machine.make(folder / "new-machine", owner.machine.repository), owner.store)


def test_the_kits_file_restores_access_with_nothing_else(owner: Person, source: Path, tmp_path: Path) -> None:
    owner.must("push", source, "--dataset", "before")
    kit = tmp_path / "kit.txt"
    assert owner.must("key", "export-recovery", "--output", kit)["datasets"] == ["before"]
    owner.must("push", source, "--dataset", "after")
    again = lose_all(owner, tmp_path)
    again.must("key", "recover", "--kit", kit)
    for name in ("before", "after"):
        again.must("pull", name, tmp_path / name)
        assert contents(tmp_path / name) == contents(source)
    again.must("key", "grant", "before", again.public(), "--role", "owner", "--name", "myself")


def test_init_with_a_kit_makes_two_slots_and_without_warns(
    person: Callable[[str], Person], tmp_path: Path, source: Path
) -> None:
    alone = person("olga")
    assert "key export-recovery" in alone.run("init").err
    other = Person.make(tmp_path, "omar", "memory://people", type(alone.store)() if alone.store else None)
    kit = tmp_path / "kit.txt"
    done = other.run("init", "--recovery", kit)
    assert done.code == 0
    assert "one slot" not in done.err
    other.must("push", source, "--dataset", "data")
    names = {item["name"] for item in other.must("key", "list", "data")["holders"]}
    assert "recovery" in names
    assert len(names) == 2


def test_the_kit_is_private_and_is_not_written_over(owner: Person, tmp_path: Path) -> None:
    kit = tmp_path / "kit.txt"
    owner.must("key", "export-recovery", "--output", kit)
    assert stat.S_IMODE(kit.stat().st_mode) == 0o600
    owner.refused(2, "key", "export-recovery", "--output", kit, words="not overwritten")


def test_without_a_place_for_it_no_kit_is_made(owner: Person) -> None:
    before = owner.machine.identity.read_bytes()
    owner.refused(2, "key", "export-recovery", words="--output")
    assert owner.machine.identity.read_bytes() == before


def test_the_qr_code_holds_what_restores_access(owner: Person, source: Path, tmp_path: Path) -> None:
    owner.must("push", source, "--dataset", "data")
    png, kit = tmp_path / "kit.png", tmp_path / "kit.txt"
    owner.must("key", "export-recovery", "--output", kit, "--png", png)
    assert png.read_bytes().startswith(PNG)
    assert stat.S_IMODE(png.stat().st_mode) == 0o600


def test_the_secret_alone_restores_what_was_made_after_the_kit(owner: Person, source: Path, tmp_path: Path) -> None:
    kit = tmp_path / "kit.txt"
    owner.must("key", "export-recovery", "--output", kit)
    owner.must("push", source, "--dataset", "data")
    secret = tmp_path / "typed.txt"
    found = re.search(r"DSRK1-[A-Z2-7-]+", kit.read_text())
    assert found is not None
    secret.write_text(found[0].lower().replace("-", " "))
    again = lose_all(owner, tmp_path)
    again.must("key", "recover", "--kit", secret)
    again.must("pull", "data", tmp_path / "out")


def test_a_passphrase_seals_the_identity_until_it_is_removed(tmp_path: Path, owner: Person, source: Path) -> None:
    owner.must("push", source, "--dataset", "data")
    sealed = Person.make(
        tmp_path, "sealed", "memory://people", owner.store, DATASYNC_IDENTITY_PASSPHRASE="a long secret"
    )
    assert not sealed.must("key", "show")["sealed"]
    fresh = Person(
        "f",
        Machine.make(tmp_path / "f", "memory://people", {"DATASYNC_IDENTITY_PASSPHRASE": "a long secret"}),
        owner.store,
    )
    assert fresh.must("key", "init", "--passphrase")["sealed"]
    assert "ed25519" not in fresh.machine.identity.read_text()
    owner.grant("data", fresh, "reader")
    fresh.must("pull", "data", tmp_path / "out")
    without = Person("f", Machine(fresh.machine.home, "memory://people", {}), owner.store)
    without.refused(12, "pull", "data", tmp_path / "no", words="DATASYNC_IDENTITY_PASSPHRASE")
    wrong = Person(
        "f", Machine(fresh.machine.home, "memory://people", {"DATASYNC_IDENTITY_PASSPHRASE": "no"}), owner.store
    )
    wrong.refused(12, "pull", "data", tmp_path / "no", words="does not open this identity")
    fresh.must("key", "passphrase", "--remove")
    without.must("pull", "data", tmp_path / "out2")
