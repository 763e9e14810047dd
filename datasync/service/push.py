"""Push a directory into a dataset: find or make the dataset, run the pipeline, set the tag."""

import os
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from datasync.crypto.hashing import hash_bytes
from datasync.errors import DatasyncError, NoSpace, NotFound, UsageError
from datasync.format.names import check_name
from datasync.format.snapshot import Source
from datasync.model.limits import MESSAGE_BYTES
from datasync.push.count import count_only
from datasync.push.options import Progress, PushOptions, PushResult
from datasync.push.pipeline import push
from datasync.push.record import Record
from datasync.push.source import SourceTree
from datasync.repository import tags
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import KeysMoved
from datasync.service.session import Session

SOURCE_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push did, and for which dataset; `new_dataset` when it was made."""

    dataset: str
    dataset_id: bytes
    new_dataset: bool
    result: PushResult


def push_directory(
    session: Session,
    path: Path,
    name: str | None,
    options: PushOptions,
    *,
    tag: str | None,
    report: Callable[[Progress], None],
) -> Pushed:
    """Push the directory *path* into the dataset *name* (by default the directory's own name)."""
    with SourceTree.open(path) as tree:  # a wrong path is told before anything is made
        device = tree.identity()[0]
    root = path.resolve()
    dataset_name = check_name(name or root.name or "root", "dataset")
    if tag is not None:
        check_name(tag, "tag")
    if len(options.message.encode()) > MESSAGE_BYTES:
        raise UsageError(f"message: expected at most {MESSAGE_BYTES} bytes, found {len(options.message.encode())}")
    dataset, created = _dataset(session, dataset_name, dry=options.dry_run)
    if dataset is None:
        return Pushed(dataset_name, b"", True, count_only(root, options, report))
    source = _source(root, device)
    try:
        result = _push(session, dataset, root, source, options, report)
    except KeysMoved:  # rotated or regranted since this machine looked: what was stored stays known
        dataset = session.repository.open(dataset_name)
        result = _push(session, dataset, root, source, options, report)
    if tag is not None and result.snapshot is not None and not options.dry_run:
        tags.assign(dataset.history, tag, result.snapshot)
    return Pushed(dataset_name, dataset.id, created, result)


def _push(
    session: Session,
    dataset: OpenDataset,
    root: Path,
    source: Source,
    options: PushOptions,
    report: Callable[[Progress], None],
) -> PushResult:
    path = session.repository.state / f"{dataset.id.hex()[:32]}-{source.id.hex()}.db"
    try:
        with closing(Record(path)) as record:
            return push(dataset, root, record, source, options, report)
    except sqlite3.Error as error:
        raise _record_failed(path, error) from error


def _record_failed(path: Path, error: sqlite3.Error) -> DatasyncError:
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
        return NoSpace(f"{path}: no space for the record of this push: make room, then run the same line again")
    return DatasyncError(f"{path}: the record of this source fails ({error}): remove the file, then run again")


def _dataset(session: Session, name: str, *, dry: bool) -> tuple[OpenDataset | None, bool]:
    try:
        return session.repository.open(name, newest=False), False
    except NotFound:
        if dry:
            return None, True
    passphrase = session.config.passphrase
    return session.repository.create_dataset(name, [], passphrase), True


def _source(root: Path, device: str) -> Source:
    host = socket.gethostname()
    identity = hash_bytes(b"datasync/v1/source\0" + _machine() + b"\0" + os.fsencode(root))[:SOURCE_ID_BYTES]
    return Source(host, os.fsencode(root), device, identity)


def _machine() -> bytes:
    try:
        return Path("/etc/machine-id").read_bytes().strip() or socket.gethostname().encode()
    except OSError:
        return socket.gethostname().encode()
