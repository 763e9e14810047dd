"""Where things lie in one cache directory, and whether the directory may be used at all.

    <cache>/objects/                                 0700; `datasync.cache.objects`
    <cache>/views/                                   0751: others may pass, only owner and group may list
    <cache>/views/<dataset>/                         0751
    <cache>/views/<dataset>/<seq>-<id>/              the gate for readers, `datasync.cache.gate`: the snapshot's files
    <cache>/views/<dataset>/<seq>-<id>.READY.json    the same gate; written last
    <cache>/views/<dataset>/.staging-<seq>-<id>/     0700; a view that is being made
    <cache>/views/<dataset>/.lock-<seq>-<id>         flock of whoever makes it
    <cache>/views/<dataset>/.lease-<seq>-<id>-<x>    one job that uses it; `datasync.cache.leases`
    <cache>/views/<dataset>/.pin-<seq>-<id>          it is not to be evicted; `datasync.cache.pins`
    <cache>/views/<dataset>/.objects-<seq>-<id>      ids of its objects, with reflinks only
    <cache>/quarantine/<id>-<time>                   0700; damaged objects, kept as evidence until a purge
    <cache>/.space.lock, .reserved-<x>               `datasync.cache.space`

`<id>` is the first 16 hex digits of the snapshot id; the view of a part has `+` and 8 hex digits behind it.
`<dataset>` is the name in UTF-8 with every byte outside
`[A-Za-z0-9._-]`, and a leading dot, written as `%` and two capital hex digits; it is reversible. A name whose form
would pass `NAME_BYTES` is cut and ends with `%-` and eight hex digits of its CRC-32: READY.json has the whole name,
and tells two datasets apart that meet in one directory. Names that begin with a dot belong to the cache.

Everything is reached from the cache directory's fd. Raises `UsageError` for a directory that is not safe to use, and
what `datasync.cache.beneath` raises.
"""

import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote_to_bytes

from datasync.cache.beneath import Tree
from datasync.cache.faults import fault
from datasync.cache.kernel import names_in
from datasync.errors import UsageError
from datasync.model.ids import SnapshotId
from datasync.model.limits import NAME_BYTES

OBJECTS = b"objects"
VIEWS = b"views"
QUARANTINE = b"quarantine"
OBJECTS_MODE = 0o700
VIEWS_MODE = 0o751
VIEW_MODE = 0o700  # until its gate is set
SHORT_ID_DIGITS = 16
READY_SUFFIX = b".READY.json"

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_CUT_SUFFIX_BYTES = 10  # "%-" and eight hex digits
_STEM = re.compile(rb"[1-9][0-9]{0,19}-[0-9a-f]{16}(\+[0-9a-f]{8})?")


def directory_name(dataset: str) -> bytes:
    """Return the directory name of *dataset*."""
    raw = dataset.encode()
    escaped = [bytes((b,)) if b in _PLAIN and (b != 0x2E or at) else b"%%%02X" % b for at, b in enumerate(raw)]
    whole = b"".join(escaped)
    if len(whole) <= NAME_BYTES:
        return whole
    kept = b""
    for part in escaped:
        if len(kept) + len(part) > NAME_BYTES - _CUT_SUFFIX_BYTES:
            break
        kept += part
    return kept + b"%%-%08x" % zlib.crc32(raw)


def dataset_name(directory: bytes) -> str | None:
    """Return the dataset that *directory* is named for; None when it was cut, or is no such name."""
    try:
        name = unquote_to_bytes(directory).decode()
    except UnicodeDecodeError:
        return None
    return name if directory and directory_name(name) == directory else None


@dataclass(frozen=True, slots=True)
class View:
    """The places of one view: paths relative to the cache directory, and absolute ones to show."""

    root: Path
    folder: bytes
    stem: bytes

    @property
    def place(self) -> bytes:
        """The view's directory."""
        return self.folder + b"/" + self.stem

    @property
    def ready(self) -> bytes:
        """The view's receipt."""
        return self.place + READY_SUFFIX

    @property
    def staging(self) -> bytes:
        """The directory in which the view is made."""
        return self.folder + b"/.staging-" + self.stem

    @property
    def lock(self) -> bytes:
        """The file that whoever makes the view locks."""
        return self.folder + b"/.lock-" + self.stem

    @property
    def objects(self) -> bytes:
        """The list of the view's objects, where link counts can not tell (reflinks)."""
        return self.folder + b"/.objects-" + self.stem

    @property
    def path(self) -> Path:
        """The view's directory, for people and jobs."""
        return self.root / os.fsdecode(self.place)

    @property
    def ready_path(self) -> Path:
        """The view's receipt, for people and jobs."""
        return self.root / os.fsdecode(self.ready)


class Cache:
    """One cache directory on one disk."""

    def __init__(self, path: Path, tree: Tree) -> None:
        """Use `Cache.open`."""
        self.path = path
        self.tree = tree

    @classmethod
    def open(cls, path: Path, *, openat2: bool | None = None) -> Self:
        """Make what is missing of the cache at *path* and check that nobody else can meddle with it."""
        path = Path(os.path.abspath(path))
        try:
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise fault(error, f"cache directory {path}") from error
        tree = Tree.open(path, openat2=openat2)
        try:
            check_directory(path, os.fstat(tree.root_fd))
            for name, mode in ((OBJECTS, OBJECTS_MODE), (VIEWS, VIEWS_MODE)):
                _own_directory(tree, name, mode, path)
            _check_one_disk(tree, path)
        except BaseException:
            tree.close()
            raise
        return cls(path, tree)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the cache directory's fds."""
        self.tree.close()

    def view(self, dataset: str, seq: int, snapshot_id: SnapshotId, part: str = "") -> View:
        """Return the places of a snapshot's view, or of the view of a *part* of it; makes nothing."""
        stem = b"%d-%s" % (seq, snapshot_id.hex()[:SHORT_ID_DIGITS].encode())
        stem += b"+" + part.encode() if part else b""
        return View(self.path, VIEWS + b"/" + directory_name(dataset), stem)

    def view_path(self, dataset: str, seq: int, snapshot_id: SnapshotId) -> Path:
        """Return the directory that a job reads."""
        return self.view(dataset, seq, snapshot_id).path

    def make_folder(self, view: View) -> None:
        """Make the directory of the dataset that *view* belongs to."""
        _own_directory(self.tree, view.folder, VIEWS_MODE, self.path)

    def views(self, dataset: str) -> Iterator[View]:
        """Yield the views of *dataset* that have a receipt, in no order; each is still to be read and checked."""
        yield from self.views_in(VIEWS + b"/" + directory_name(dataset))

    def views_in(self, folder: bytes) -> Iterator[View]:
        """Yield the views in the dataset's directory *folder* that have a receipt."""
        if self.tree.lstat(folder) is None:
            return
        with self.tree.subtree(folder) as tree:
            names = [os.fsencode(name) for name in names_in(tree.root_fd)]
        for name in names:
            stem = name.removesuffix(READY_SUFFIX)
            if stem != name and is_stem(stem):
                yield View(self.path, folder, stem)


def is_stem(name: bytes) -> bool:
    """Tell whether *name* is that of a view's directory."""
    return _STEM.fullmatch(name) is not None


def _own_directory(tree: Tree, name: bytes, mode: int, cache: Path) -> None:
    if tree.lstat(name) is None:
        tree.make_directory(name, mode)
        tree.set_mode(name, mode)  # whatever the umask is
    status = _check_own(tree.lstat(name), name, cache)
    if name == OBJECTS and stat.S_IMODE(status.st_mode) != mode:
        tree.set_mode(name, mode)


def _check_own(status: os.stat_result | None, name: bytes, cache: Path) -> os.stat_result:
    shown = cache / os.fsdecode(name)
    if status is None or not stat.S_ISDIR(status.st_mode):
        raise UsageError(
            f"cache {shown}: expected a directory, found something else; remove it or use another cache directory"
        )
    check_directory(shown, status)
    return status


def check_inside(tree: Tree, names: Iterable[bytes], cache: Path) -> None:
    """Check what there is of the directories *names* of a cache, as opening it does; nothing is made."""
    found = {name: status for name in names if (status := tree.lstat(name)) is not None}
    for name, status in found.items():
        _check_own(status, name, cache)
    if found.keys() == {OBJECTS, VIEWS}:
        _check_one_disk(tree, cache)


def check_directory(path: Path, status: os.stat_result) -> None:
    user = os.geteuid()
    if status.st_uid != user:
        raise UsageError(
            f"cache directory {path}: expected one that belongs to this user (uid {user}), found uid {status.st_uid}; "
            "use another directory (--cache, DATASYNC_CACHE), or have its owner changed"
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise UsageError(
            f"cache directory {path}: expected one that only its owner can write, found mode {mode:04o}; "
            f"run `chmod go-w {path}`, or use a directory of its own inside it"
        )


def _check_one_disk(tree: Tree, path: Path) -> None:
    disks = {status.st_dev for name in (OBJECTS, VIEWS) if (status := tree.lstat(name)) is not None}
    if len(disks) != 1:
        raise UsageError(
            f"cache directory {path}: objects/ and views/ must lie on one disk; remove the mount between them"
        )
