"""The receipt that says a view is complete: READY.json, written last, read strictly.

Order of a view: lock it, `stage_view`, place and verify everything, `publish_view` (flush the file system once,
rename the staged directory to its name, flush the folder, then the receipt: write aside, flush, rename, flush). A
view without a receipt is nothing: the next run that holds the lock removes it. One JSON object, members in the order
of `Ready`:

    {"version":1,"dataset":"…","dataset_id":"<64 hex>","repository":"<32 hex>","seq":1,"snapshot":"<64 hex>",
     "root":"<64 hex>","entries":3,"files":2,"bytes":10,"completed":"2026-11-30T08:20:45Z","tool":"datasync …",
     "subset":[],"node":"dss1…","signature":"<128 hex>"}

The node signs the same text without its last member (Ed25519, kind `ready`), so a receipt tells which machine verified
the files.

Raises `IntegrityError` for a receipt that does not parse or belongs to something else, `NewerFormat` for a later
version, and what `datasync.cache.beneath` raises.
"""

import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from datasync.cache.beneath import Tree
from datasync.cache.faults import fault
from datasync.cache.layout import VIEW_MODE, Cache, View
from datasync.errors import IntegrityError, NewerFormat
from datasync.model.ids import ID_BYTES, DatasetId, SnapshotId

READY_VERSION = 1
READY_BYTES = 64 * 1024  # far more than any receipt needs
READY_MODE = 0o600  # until its gate is set
REPOSITORY_ID_BYTES = 16
SIGNATURE_BYTES = 64
READY_ASIDE = b".READY"  # ends the name of a receipt that is being written
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


Bytes = bytes  # `Ready.bytes` is a count


@dataclass(frozen=True, slots=True)
class Ready:
    """A complete view, verified on this node. `root` is the snapshot's root hash, `bytes` the sum of file sizes."""

    dataset: str
    dataset_id: DatasetId
    repository: Bytes
    seq: int
    snapshot: SnapshotId
    root: Bytes
    entries: int
    files: int
    bytes: int
    completed: datetime
    tool: str
    subset: tuple[str, ...]
    node: str
    signature: Bytes = b""

    def signed(self, sign: Callable[[Bytes], Bytes]) -> "Ready":
        """Return the receipt with the node's signature, which *sign* makes."""
        return replace(self, signature=sign(signed_text(self)))

    def check(self, dataset_id: DatasetId, snapshot: SnapshotId) -> None:
        """Refuse a receipt of another dataset or snapshot than was asked for."""
        if self.dataset_id != dataset_id:
            raise IntegrityError(
                f"view of dataset {self.dataset}: expected dataset id {dataset_id.hex()}, "
                f"found {self.dataset_id.hex()}; two datasets of one name share this cache: "
                "use another cache directory for one of them"
            )
        if self.snapshot != snapshot:
            raise IntegrityError(
                f"view of dataset {self.dataset}: expected snapshot {snapshot.hex()}, found {self.snapshot.hex()}; "
                "remove the view and warm again"
            )


def signed_text(ready: Ready) -> bytes:
    """Return what the node signs."""
    return json.dumps(_members(ready), separators=(",", ":")).encode()


def encode_ready(ready: Ready) -> bytes:
    """Return the receipt's one encoding."""
    value = _members(ready) | {"signature": ready.signature.hex()}
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _members(ready: Ready) -> dict[str, object]:
    return {
        "version": READY_VERSION,
        "dataset": ready.dataset,
        "dataset_id": ready.dataset_id.hex(),
        "repository": ready.repository.hex(),
        "seq": ready.seq,
        "snapshot": ready.snapshot.hex(),
        "root": ready.root.hex(),
        "entries": ready.entries,
        "files": ready.files,
        "bytes": ready.bytes,
        "completed": ready.completed.astimezone(UTC).strftime(TIME_FORMAT),
        "tool": ready.tool,
        "subset": list(ready.subset),
        "node": ready.node,
    }


def parse_ready(data: bytes, shown: str) -> Ready:
    """Return the receipt in *data*; *shown* names it in errors."""
    value = _parse_object(data, shown)
    try:
        ready = Ready(
            dataset=_text(value, "dataset"),
            dataset_id=DatasetId(_digits(value, "dataset_id", ID_BYTES)),
            repository=_digits(value, "repository", REPOSITORY_ID_BYTES),
            seq=_count(value, "seq"),
            snapshot=SnapshotId(_digits(value, "snapshot", ID_BYTES)),
            root=_digits(value, "root", ID_BYTES),
            entries=_count(value, "entries"),
            files=_count(value, "files"),
            bytes=_count(value, "bytes"),
            completed=datetime.strptime(_text(value, "completed"), TIME_FORMAT).replace(tzinfo=UTC),
            tool=_text(value, "tool"),
            subset=_texts(value, "subset"),
            node=_text(value, "node"),
            signature=_digits(value, "signature", SIGNATURE_BYTES),
        )
        encoded = encode_ready(ready)
    except ValueError as error:
        raise IntegrityError(f"{shown}: {error}; remove it and warm again") from error
    if encoded != data:
        raise IntegrityError(
            f"{shown}: expected the one encoding of a receipt, found another; remove it and warm again"
        )
    return ready


def read_ready(cache: Cache, view: View) -> Ready | None:
    """Return the view's receipt; None when there is none, or when the view that it speaks of is gone."""
    if cache.tree.lstat(view.ready) is None or cache.tree.lstat(view.place) is None:
        return None
    fd = cache.tree.open_file(view.ready)
    try:
        data = os.read(fd, READY_BYTES + 1)
    except OSError as error:
        raise fault(error, f"read {view.ready_path}") from error
    finally:
        os.close(fd)
    ready = parse_ready(data, str(view.ready_path))
    whole, _, part = view.stem.partition(b"+")
    named = cache.view(ready.dataset, ready.seq, ready.snapshot)
    if (named.folder, named.stem, bool(ready.subset)) != (view.folder, whole, bool(part)):
        raise IntegrityError(
            f"{view.ready_path}: expected the receipt of this view, found that of {ready.dataset}@{ready.seq}; "
            "remove it and warm again"
        )
    return ready


def write_ready(cache: Cache, view: View, ready: Ready) -> None:
    """Write the receipt, all or nothing, durable when this returns."""
    aside = view.staging + READY_ASIDE
    cache.tree.remove(aside)  # of a killed run: the view's lock is ours
    fd = cache.tree.create(aside, READY_MODE)
    try:
        os.fchmod(fd, READY_MODE)  # whatever the umask is
        _write_all(fd, encode_ready(ready))
        os.fsync(fd)
    except OSError as error:
        raise fault(error, f"write {view.ready_path}") from error
    finally:
        os.close(fd)
    cache.tree.rename(aside, view.ready)
    cache.tree.fsync_directory(view.folder)


def stage_view(cache: Cache, view: View) -> Tree:
    """Return an empty tree to make the view in; the caller holds the view's lock and has found no receipt."""
    cache.make_folder(view)
    discard_view(cache, view)
    cache.tree.make_directory(view.staging, VIEW_MODE, fresh=True)
    cache.tree.set_mode(view.staging, VIEW_MODE)
    return cache.tree.subtree(view.staging)


def publish_view(cache: Cache, view: View, ready: Ready, flush: Callable[[], None]) -> None:
    """Make the staged view visible, closed, then ready; *flush* (`Objects.flush`) makes it durable before."""
    cache.tree.set_mode(view.staging, VIEW_MODE)
    flush()
    cache.tree.rename(view.staging, view.place)
    cache.tree.fsync_directory(view.folder)
    write_ready(cache, view, ready)


def write_object_list(cache: Cache, view: View, ids: bytes | bytearray) -> None:
    """Write the ids of the view's objects, before the view is published."""
    cache.tree.remove(view.objects)
    fd = cache.tree.create(view.objects, 0o600)
    try:
        _write_all(fd, ids)
    except OSError as error:
        raise fault(error, f"write the object list of {view.path}") from error
    finally:
        os.close(fd)


def discard_view(cache: Cache, view: View) -> None:
    """Remove all that there is of the view except its lock; the receipt goes first, and durably."""
    if cache.tree.lstat(view.ready) is not None:
        cache.tree.remove(view.ready)
        cache.tree.fsync_directory(view.folder)
    cache.tree.remove(view.staging + READY_ASIDE)
    cache.tree.remove(view.objects)
    if (status := cache.tree.lstat(view.place)) is not None:
        if stat.S_ISDIR(status.st_mode):
            cache.tree.set_mode(view.place, VIEW_MODE)  # nobody renews the gate of what a killed removal leaves
        cache.tree.remove_tree(view.staging)
        cache.tree.rename(view.place, view.staging)  # a half-removed view is never under its own name
    cache.tree.remove_tree(view.staging)


def _write_all(fd: int, data: bytes | bytearray) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _parse_object(data: bytes, shown: str) -> dict[str, object]:
    if len(data) > READY_BYTES:
        raise IntegrityError(f"{shown}: expected at most {READY_BYTES} bytes; remove it and warm again")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(
            f"{shown}: expected a JSON object, found {len(data)} bytes that are none; remove it and warm again"
        ) from error
    if not isinstance(value, dict):
        raise IntegrityError(f"{shown}: expected a JSON object; remove it and warm again")
    version = value.get("version")
    if type(version) is int and version > READY_VERSION:
        raise NewerFormat(f"{shown}: version {version} was made by a newer datasync, this one knows {READY_VERSION}")
    return value


def _text(value: dict[str, object], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise ValueError(f"expected text as {name}, found {type(text).__name__}")
    return text


def _texts(value: dict[str, object], name: str) -> tuple[str, ...]:
    texts = value.get(name)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"expected a list of texts as {name}")
    return tuple(texts)


def _count(value: dict[str, object], name: str) -> int:
    count = value.get(name)
    if type(count) is not int or count < 0:
        raise ValueError(f"expected a number from 0 as {name}, found {count!r}")
    return count


def _digits(value: dict[str, object], name: str, size: int) -> bytes:
    raw = bytes.fromhex(_text(value, name))
    if len(raw) != size:
        raise ValueError(f"expected {2 * size} hex digits as {name}, found {2 * len(raw)}")
    return raw
