"""Shredding in a bucket that keeps versions, which a delete alone leaves there."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from datasync.errors import NotAuthorized
from datasync.storage.location import parse_url
from datasync.storage.s3 import S3Store
from datasync.storage.s3.client import make_client
from tests.support.people import Person
from tests.support.servers import S3Server


@pytest.fixture
def owner(moto: S3Server, fresh_bucket: str, tmp_path: Path) -> Person:
    """Who made a repository in a bucket that keeps versions."""
    url = moto.make_bucket(fresh_bucket)
    with closing(make_client(parse_url(url), moto.options())) as client:
        client.put_bucket_versioning(Bucket=fresh_bucket, VersioningConfiguration={"Status": "Enabled"})
    found = Person.make(tmp_path, "olga", url, None, **moto.environment())
    found.must("init")
    return found


@pytest.mark.parametrize("data", [False, True])
def test_old_versions_of_keysets_and_packs_go_too(
    owner: Person, moto: S3Server, fresh_bucket: str, source: Path, tmp_path: Path, data: bool
) -> None:
    owner.must("push", source, "--dataset", "old")
    owner.must("key", "rotate", "old")
    path = tmp_path / "certificate.json"
    owner.must("key", "shred", "old", "--yes", "--output", path, *(["--delete-data"] if data else []))
    with closing(moto.open(fresh_bucket)) as store:
        left = list(store.list_versions("d/"))
    keysets = [item for item in left if "/keyset/" in item.name]
    assert [(item.newest, item.deleted) for item in keysets] == [(True, False)]  # the last one, which names nobody
    assert bool([item for item in left if "/packs/" in item.name]) is not data
    destroyed = json.loads(path.read_text())["destroyed"]
    assert destroyed["keysets"] == 2
    assert destroyed["old versions of keysets"] >= 2
    assert destroyed.get("old versions of packs", 0) >= (2 if data else 0)


def test_versions_that_can_not_be_removed_are_named(
    owner: Person, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise NotAuthorized("the server answered 403 AccessDenied")

    owner.must("push", source, "--dataset", "old")
    monkeypatch.setattr(S3Store, "delete_version", refused)
    path = tmp_path / "certificate.json"
    owner.must("key", "shred", "old", "--yes", "--output", path)
    told = json.loads(path.read_text())["not_destroyed"]
    assert [item for item in told if item.startswith("version ") and "AccessDenied" in item]
