"""Who has no ReadData gets no plaintext byte: not with the bucket's own read credential, not from a copy of the sealed
packs, not with an old client, not with the metadata key, not with what every machine of the site has at hand.

The attacker here runs no policy at all: what stops her is that she has no key.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from datasync.config import Flags, load_config
from datasync.crypto.identity_file import read_identity
from datasync.errors import DatasyncError
from datasync.format import pack as packs
from datasync.format.names import dataset_prefix
from datasync.repository.keyring import Keyring
from datasync.repository.packs import open_pack
from datasync.service import session as sessions
from datasync.storage.memory import MemoryStore
from tests.policy.site import READS, Site, signer, with_grant
from tests.support.people import Person

MARKER = b"patient 4711: glioblastoma"
NAME = b"patient-4711-very-distinct-name"


@pytest.fixture
def hospital(site: Site) -> Site:
    """The dataset holds a marker in a file's name and content, compressible and not; rita reads, by policy."""
    (site.tree / os.fsdecode(NAME)).write_bytes(MARKER * 2_000)
    (site.tree / "noise").write_bytes(MARKER + os.urandom(300_000) + MARKER)
    site.olga.must("push", site.tree, "--dataset", "scans")
    site.publish(READS)
    return site


@pytest.fixture
def eve(hospital: Site, person: Callable[..., Person]) -> Person:
    """Somebody who reads the whole bucket, and whom nobody granted a slot."""
    return person("eve")


def everything(folder: Path) -> Iterator[bytes]:
    for path in folder.rglob("*"):
        yield os.fsencode(path)
        if path.is_file():
            yield path.read_bytes()


def nothing_leaked(folder: Path) -> None:
    for data in everything(folder):
        assert MARKER not in data
        assert NAME not in data


def test_the_stored_objects_hold_no_byte_of_it(hospital: Site, person: Callable[..., Person]) -> None:
    hospital.olga.grant("scans", person("rosalinde"), "reader")  # a name that random bytes do not hold
    stored = [hospital.store.get(item.name, limit=2**30) for item in hospital.store.list("")]
    assert len(stored) > 5
    for data in stored:
        assert MARKER not in data
        assert NAME not in data
        assert not re.search(b"glioblastoma|patient|olga-owns|rita-reads|rosalinde", data)  # nor of the policy


def test_every_command_of_the_present_client_with_the_buckets_credential(hospital: Site, eve: Person) -> None:
    trust = hospital.olga.must("status")["datasets"][0]["trust"]
    lines: list[tuple[str | Path, ...]] = [
        (command, reference, *rest)
        for reference in ("scans", "scans@1", "scans@2")
        for command, rest in (
            ("ls", ()),
            ("du", ()),
            ("pull", (hospital.target(),)),
            ("warm", ()),
            ("diff", ("scans@1",)),
        )
    ]
    lines += [
        ("log", "scans"),
        ("verify", "scans", "--read-data"),
        ("key", "list", "scans"),
        ("policy", "show", "scans"),
    ]
    lines += [("key", "accept", "scans", trust), ("run", "--data", "scans", "--", "cat", "/dev/null")]
    for line in lines:
        ran = eve.run(*line, "--trust", trust) if "run" not in line else eve.run("run", "--trust", trust, *line[1:])
        assert ran.code in (2, 6, 12), (line, ran)
    nothing_leaked(hospital.folder / "home-eve")


def test_an_old_client_that_knows_no_policy(hospital: Site, eve: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("references", "warm", "push", "tag", "verify"):
        monkeypatch.setattr(f"datasync.service.{module}.authorize", lambda *_, **__: None)
    trust = hospital.olga.must("status")["datasets"][0]["trust"]
    for line in (("pull", "scans", hospital.target()), ("warm", "scans"), ("ls", "scans")):
        eve.refused(12, *line, "--trust", trust)
    nothing_leaked(hospital.folder / "home-eve")
    hospital.rita.must("pull", "scans", hospital.target())  # so these did try, and a key is what they lacked


def test_a_copy_of_the_sealed_packs_and_every_key_that_eve_can_make(hospital: Site, eve: Person) -> None:
    config = load_config(Flags(), eve.machine.environment())
    identity = read_identity(config.identity, lambda: None)
    dataset = bytes.fromhex(hospital.olga.must("status")["datasets"][0]["trust"])
    names = [item.name for item in hospital.store.list(f"{dataset_prefix(dataset)}packs/")]
    assert names
    own = _keyring_of_own_dataset(hospital, eve)
    for name in names:
        data = hospital.store.get(name, limit=2**30)
        for type_ in (packs.DATA, packs.METADATA):
            with pytest.raises(DatasyncError):
                open_pack(own, data, type_, name)
    assert identity.recipient.fingerprint.hex() not in str(hospital.olga.must("key", "list", "scans"))


def _keyring_of_own_dataset(hospital: Site, eve: Person) -> Keyring:
    """Return the working keyring of a dataset that eve made elsewhere, told that it is the hospital's."""
    tree, elsewhere = hospital.folder / "eves", MemoryStore()
    tree.mkdir()
    (tree / "a").write_bytes(b"a")
    eve = replace(eve, store=elsewhere)
    eve.must("init")
    eve.must("push", tree, "--dataset", "mine")
    with (
        mock.patch.dict(os.environ, eve.machine.environment(), clear=True),
        mock.patch.object(sessions, "open_store", return_value=elsewhere),
    ):
        keyring = sessions.Session(load_config(Flags())).repository.open("mine").keyring
    keyring.dataset = bytes.fromhex(hospital.olga.must("status")["datasets"][0]["trust"])
    return keyring


def test_an_auditors_metadata_key_opens_no_data_pack(hospital: Site, person: Callable[..., Person]) -> None:
    ada = person("ada")
    hospital.olga.grant("scans", ada, "auditor")
    auditors = f'[users.ada]\nidentities = ["{signer(ada)}"]\n[[grant]]\nid = "audit"\nto = ["ada"]\nrole = "auditor"\n'
    hospital.publish(READS + auditors)
    ada.must("ls", "scans")  # names are metadata: those she may see
    ada.refused(6, "pull", "scans", hospital.target(), words="may not ReadData")
    hospital.olga.must("policy", "apply", "scans", hospital.write(READS + auditors.replace('"auditor"', '"reader"')))
    for line in (("pull", "scans", hospital.target()), ("warm", "scans"), ("verify", "scans", "--read-data")):
        ran = ada.run(*line)  # a policy that says yes gives no key
        assert ran.code != 0, (line, ran)
    for data in everything(hospital.folder / "home-ada"):
        assert MARKER not in data


def test_a_forged_policy_or_grant_brings_no_key(hospital: Site, eve: Person, tmp_path: Path) -> None:
    directory = hospital.write(READS + f'[users.eve]\nidentities = ["{signer(eve)}"]\n', name="forged")
    text = (directory / "policy.toml").read_text()
    (directory / "policy.toml").write_text(text + '[[grant]]\nid = "eve"\nto = ["eve"]\nrole = "owner"\n')
    eve.refused(12, "policy", "apply", "scans", directory)
    grant = tmp_path / "grant"
    line = ("policy", "grant", "scans", signer(eve), "--action", "ReadData", "--until", "1h", "--output", grant)
    eve.refused(12, *line)
    hospital.olga.must(*line)  # even an owner's grant: it is no slot
    with_grant(eve, grant).refused(12, "pull", "scans", hospital.target())
