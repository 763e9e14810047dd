"""Opens this machine's audit log: key, directory and persons under the data directory, primitives from `crypto`."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from datasync.audit.log import Log
from datasync.audit.primitives import Primitives
from datasync.audit.seal import People
from datasync.audit.segments import LogFiles, local_log
from datasync.config import Config
from datasync.crypto.aead import open_box, seal_box
from datasync.crypto.hashing import keyed_hash, sha256, sha256_stream
from datasync.crypto.kdf import random_bytes
from datasync.crypto.notes import verify_note
from datasync.service.log_key import index_key, log_key

PRIMITIVES = Primitives(sha256, verify_note, seal_box, open_box, sha256_stream, random_bytes, keyed_hash)


def audit_root(config: Config) -> Path:
    """Return the directory of all audit logs of this machine."""
    return config.evidence.parent / "audit"


def people_of(config: Config) -> People:
    """Return the keys of persons on this machine."""
    return _people(config.evidence.parent)


@cache
def _people(data: Path) -> People:
    """Return the process's one set of keys, so that what is erased is forgotten by the writer, too."""
    return People(data / "audit" / "people", PRIMITIVES, index_key(data))


def live_log(config: Config) -> LogFiles:
    """Return this machine's log as it is now, whatever other processes write meanwhile."""
    with open_log(config) as log, log.quiet() as found:
        return local_log(PRIMITIVES, log.directory, (found.segment, found.end))


@contextmanager
def open_log(config: Config) -> Iterator[Log]:
    """Yield this machine's log; events that still wait are written at the end."""
    log = _log(config.evidence.parent)
    try:
        yield log
    finally:
        log.flush()


@cache
def _log(data: Path) -> Log:
    """Return the process's one writer: a daemon's threads share its groups, and 4 descriptors stay open."""
    return Log(data / "audit", log_key(data), PRIMITIVES, _people(data))
