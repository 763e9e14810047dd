"""Logs that grow while somebody looks, and logs that are not there any more."""

import shutil
from pathlib import Path

import pytest

from datasync.config import Config, Flags, load_config
from datasync.errors import RollbackError
from datasync.service import audit, audit_log
from datasync.service.audit_log import audit_root
from datasync.service.record import recorded
from tests.audit.test_service import files_of


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(Flags(), {"HOME": str(tmp_path)})


def test_following_shows_what_comes_and_nothing_before(config: Config, tmp_path: Path) -> None:
    for number in range(3):
        with recorded(config, "push", dataset=f"d{number}"):
            pass
    seen = audit.ends(config)
    assert audit.follow(config, audit.Search(), seen) == []
    with recorded(config, "push", dataset="new", subject="somebody who came just now"):
        pass
    found = audit.follow(config, audit.Search(action="push"), seen)
    assert [(row.event.dataset, row.actor) for row in found] == [("new", "somebody who came just now")]
    assert audit.follow(config, audit.Search(), seen) == []
    copy = tmp_path / files_of(audit_root(config)).name
    shutil.copytree(audit_root(config) / copy.name, copy)
    with recorded(config, "push"):
        pass
    assert audit.follow(config, audit.Search(), audit.ends(config, copy), copy) == []


def test_a_log_that_was_deleted_is_a_rollback(config: Config) -> None:
    with recorded(config, "push"):
        pass
    old = files_of(audit_root(config)).name
    audit.verify(config)
    shutil.rmtree(audit_root(config) / old)
    (config.evidence.parent / "log.key").unlink()
    other = load_config(Flags(), {"HOME": str(config.evidence.parents[3])})
    audit_log._log.cache_clear()
    with recorded(other, "push"):
        pass
    with pytest.raises(RollbackError, match=f"log {old}: it was verified before and is not there"):
        audit.verify(other)
