"""Dataset references: `NAME`, `NAME@SEQ`, `NAME@SNAPSHOT-ID-PREFIX`, `NAME:TAG`."""

import re
from dataclasses import dataclass

from datasync.errors import IntegrityError, NotFound, UsageError
from datasync.format.names import check_name
from datasync.repository.forgotten import refusal
from datasync.repository.keyring import UnknownEpoch
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import Snapshot
from datasync.repository.tags import read_all
from datasync.repository.trust import Unlisted
from datasync.service.authorize import authorize
from datasync.service.record import Recording
from datasync.service.session import Session

_SEQ = re.compile(r"[0-9]{1,15}")
READS_FILES = ("ReadData", "Warm")
_HASH = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True, slots=True)
class Reference:
    """A dataset's name and which snapshot of it; all None: the newest."""

    name: str
    seq: int | None = None
    prefix: str | None = None
    tag: str | None = None

    def __str__(self) -> str:
        version = self.seq if self.seq is not None else self.prefix
        return self.name + (f"@{version}" if version is not None else "") + (f":{self.tag}" if self.tag else "")


def parse_reference(text: str) -> Reference:
    """Return the reference in *text*; raise `UsageError`."""
    name, at, version = text.partition("@")
    if at:
        check_name(name, "dataset")
        if _SEQ.fullmatch(version) and int(version) > 0:
            return Reference(name, seq=int(version))
        if _HASH.fullmatch(version):
            return Reference(name, prefix=version)
        raise UsageError(
            f"reference {text!r}: expected NAME@SEQ or NAME@HASH with at least 8 hex digits, found {version!r}"
        )
    name, colon, tag = text.partition(":")
    check_name(name, "dataset")
    return Reference(name, tag=check_name(tag, "tag")) if colon else Reference(name)


def open_reference(
    session: Session, text: str, action: str = "ReadMetadata", event: Recording | None = None
) -> tuple[OpenDataset, Snapshot]:
    """Return the dataset and snapshot that *text* means, on which the policy in force allows *action*."""
    reference = parse_reference(text)
    dataset = session.repository.open(reference.name)
    try:
        snapshot = resolve(dataset, reference)
    except (UnknownEpoch, Unlisted):  # keys and signers may have changed since they were read, a moment ago
        dataset = session.repository.open(reference.name)
        snapshot = resolve(dataset, reference)
    authorize(session, action, dataset, event=event, seq=snapshot.body.seq)
    if action in READS_FILES:
        dataset.keyring.require_data()  # before a directory is made for what can not be opened
    return dataset, snapshot


def open_dataset(session: Session, name: str) -> OpenDataset:
    """Return the dataset called *name*, whose metadata the policy in force lets this identity read."""
    dataset = session.repository.open(name)
    authorize(session, "ReadMetadata", dataset)
    return dataset


def resolve(dataset: OpenDataset, reference: Reference) -> Snapshot:
    """Return the snapshot that *reference* means; raise `NotFound`."""
    history = dataset.history
    if reference.prefix is not None:
        return _by_prefix(dataset, reference.prefix)
    newest = history.newest()
    history.evidence.save()
    if newest is None:
        raise NotFound(f"dataset {dataset.name!r}: it has no snapshot yet: push it")
    if reference.seq is not None:
        if reference.seq == newest.body.seq:
            return newest
        return history.read(reference.seq)
    if reference.tag is None:
        return newest
    tags = read_all(history)
    found = tags.get(reference.tag)
    if found is None:
        known = f"; it has {', '.join(sorted(tags)[:8])}" if tags else ""
        raise NotFound(f"dataset {dataset.name!r}: no tag {reference.tag!r}{known}")
    return history.read(found.seq, expected=found.snapshot)


def _by_prefix(dataset: OpenDataset, prefix: str) -> Snapshot:
    matches: list[Snapshot] = []
    damaged: list[IntegrityError] = []
    for item in dataset.history.line():
        if item.digest is not None and not item.digest.hex().startswith(prefix):
            continue
        try:
            snapshot = dataset.history.read_object(item)
        except IntegrityError as error:
            if item.digest is None:
                damaged.append(error)  # it may or may not be the one that is meant
                continue
            raise
        if snapshot.id.hex().startswith(prefix):
            matches.append(snapshot)
            if len(prefix) == 64:
                break
    if not matches and damaged:
        raise damaged[0]
    gone = dataset.history.forgotten.with_prefix(prefix) if not matches else None
    if gone is not None:
        raise refusal(dataset.history, gone)
    if not matches:
        raise NotFound(f"dataset {dataset.name!r}: no snapshot whose id begins with {prefix}")
    if len(matches) > 1:
        raise UsageError(f"reference {dataset.name}@{prefix}: {len(matches)} snapshots begin so: give more digits")
    return matches[0]
