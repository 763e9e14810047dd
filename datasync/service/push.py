"""Push a directory into a dataset: find or make the dataset, run the pipeline, set the tag."""

import os
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from datasync.crypto.hashing import hash_bytes
from datasync.errors import DatasyncError, NoSpace, NotAuthorized, NotFound, UntrustedError, UsageError, WrongKey
from datasync.format.names import check_name
from datasync.format.snapshot import Source
from datasync.model.limits import MESSAGE_BYTES
from datasync.push.count import count_only
from datasync.push.options import Progress, PushOptions, PushResult
from datasync.push.pipeline import push
from datasync.push.record import Record
from datasync.push.source import SourceTree
from datasync.repository import tags
from datasync.repository.keyring import UnknownEpoch
from datasync.repository.keysets import Shredded
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import KeysMoved
from datasync.repository.trust import Unlisted
from datasync.service.authorize import authorize
from datasync.service.record import Recording, recorded
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
    """Push the directory *path* into the dataset *name* (by default the directory's own name); recorded."""
    with recorded(session, "push", dataset=name or path.resolve().name, dry_run=options.dry_run or None) as event:
        done = _push_directory(session, path, name, options, event, tag=tag, report=report)
        _note(event, done, tag)
        return done


def _note(event: Recording, done: Pushed, tag: str | None) -> None:
    result, snapshot = done.result, done.result.snapshot
    event.note(dataset=done.dataset, dataset_id=done.dataset_id, created=result.created, tag=tag)
    event.note(new_dataset=done.new_dataset or None)
    event.note(entries=result.changes.found, bytes=result.totals.bytes, sent_bytes=result.progress.sent_bytes)
    if snapshot is not None:
        event.note(snapshot=snapshot.id, snapshot_seq=snapshot.body.seq, epoch=snapshot.body.epoch)
    if result.skipped:
        event.outcome("partial", f"{len(result.skipped)} entries skipped")


def _push_directory(
    session: Session,
    path: Path,
    name: str | None,
    options: PushOptions,
    event: Recording,
    *,
    tag: str | None,
    report: Callable[[Progress], None],
) -> Pushed:
    with SourceTree.open(path) as tree:  # a wrong path is told before anything is made
        device = tree.identity()[0]
    root = path.resolve()
    dataset_name = check_name(name or root.name or "root", "dataset")
    if tag is not None:
        check_name(tag, "tag")
    if len(options.message.encode()) > MESSAGE_BYTES:
        raise UsageError(f"message: expected at most {MESSAGE_BYTES} bytes, found {len(options.message.encode())}")
    dataset, created = _dataset(session, dataset_name, event, dry=options.dry_run)
    if dataset is None:
        return Pushed(dataset_name, b"", True, count_only(root, options, report))
    if tag is not None:
        authorize(session, "Tag", dataset, event=event, fresh=False)
    source = _source(root, device)
    try:
        result = _push(session, dataset, root, source, options, report)
    except (
        KeysMoved,
        UnknownEpoch,
        Unlisted,
        NotAuthorized,
    ):  # rotated or regranted since this machine looked; what was stored stays known
        dataset = session.repository.open(dataset_name)
        authorize(session, "PushSnapshot", dataset, event=event)
        if tag is not None:
            authorize(session, "Tag", dataset, event=event)
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
    signer = dataset.history.signer
    own = f"-{signer.public.hex()[:16]}" if signer and not dataset.history.reads else ""  # whose ids are its own
    path = session.repository.state / f"{dataset.id.hex()[:32]}-{source.id.hex()}{own}.db"
    try:
        with closing(Record(path)) as record:
            return push(dataset, root, record, source, options, report)
    except sqlite3.Error as error:
        raise _record_failed(path, error) from error


def _record_failed(path: Path, error: sqlite3.Error) -> DatasyncError:
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
        return NoSpace(f"{path}: no space for the record of this push: make room, then run the same line again")
    return DatasyncError(f"{path}: the record of this source fails ({error}): remove the file, then run again")


def _dataset(session: Session, name: str, event: Recording, *, dry: bool) -> tuple[OpenDataset | None, bool]:
    try:
        dataset = _open(session, name)
    except Shredded:
        raise
    except NotFound:
        if dry:
            return None, True
    else:  # by the policy that this machine has seen last: a push that finds nothing to do asks the store for little
        authorize(session, "PushSnapshot", dataset, event=event, fresh=False)
        return dataset, False
    authorize(session, "PushSnapshot", name, event=event)
    return session.repository.create_dataset(name), True


def _open(session: Session, name: str) -> OpenDataset:
    """Open by the keys that this machine has seen, unless they may be too old to tell."""
    try:
        dataset = session.repository.open(name, newest=False)
    except (WrongKey, UntrustedError):  # they may have been renewed since
        return session.repository.open(name)
    # others meet a head of the new epoch; this one reads no head, and would send to whom the last epoch was open
    return dataset if dataset.history.reads else session.repository.open(name)


def _source(root: Path, device: str) -> Source:
    host = socket.gethostname()
    identity = hash_bytes(b"datasync/v1/source\0" + _machine() + b"\0" + os.fsencode(root))[:SOURCE_ID_BYTES]
    return Source(host, os.fsencode(root), device, identity)


def _machine() -> bytes:
    try:
        return Path("/etc/machine-id").read_bytes().strip() or socket.gethostname().encode()
    except OSError:
        return socket.gethostname().encode()
