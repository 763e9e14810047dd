"""Survey of a directory that could hold the cache: what it lies on, how much is free, what works, how fast it is.

Everything is found by doing it in a scratch directory with a random name, which is removed again whatever happens;
the large file has no name at all while it is written. The scratch lies in the cache directory itself when that is
there, else in the deepest directory above it that is. The cache directory is never made.

A directory that can not be used is a `Survey` with its `problem`; nothing is raised for it.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from datasync.cache.faults import fault
from datasync.cache.kernel import clone_file
from datasync.cache.layout import Cache, check_directory
from datasync.cache.mounts import Kind, Mount, kind_of, mount_of
from datasync.errors import DatasyncError, NoSpace
from datasync.model.limits import KIB, MIB

SCRATCH_PREFIX = ".datasync-doctor-"
BLOCK_BYTES = 4 * MIB
MEMORY_WRITE_BYTES = 16 * MIB  # a file system in RAM takes it away from the job
SPARE = 4  # times what is written must be free: a survey never fills a disk


@dataclass(frozen=True, slots=True)
class SurveyOptions:
    """How much is written."""

    write_bytes: int = 128 * MIB
    files: int = 500
    file_bytes: int = 16 * KIB
    links: int = 1_000  # hard links to one file, of those that many views with equal files need


QUICK = SurveyOptions(write_bytes=16 * MIB, files=100, links=100)


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a file system is: one file with fsync, in bytes a second; small files made in a second."""

    write: float
    files: float


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found. `path` is what the cache directory would be; `free_inodes` None means without a limit."""

    path: Path
    origin: str
    kind: Kind = Kind.OTHER
    filesystem: str = ""
    source: str = ""
    device: int = 0
    free_bytes: int = 0
    free_inodes: int | None = None
    reflinks: bool = False
    links: bool = False
    pace: Pace | None = None
    same_as: Path | None = None
    """An earlier one on the same file system, whose pace this is."""
    problem: str = ""
    """Why it can not be used."""


def survey(
    path: Path, origin: str, mounts: Sequence[Mount], options: SurveyOptions, known: Sequence[Survey] = ()
) -> Survey:
    """Return what is found for the cache directory *path*; one file system is timed once among *known*."""
    found = Survey(Path(os.path.abspath(path)), origin)
    try:
        base = _existing(found.path)
        found = _look(found, base, mounts)
        if os.path.lexists(found.path):
            check_directory(found.path, os.stat(found.path))
        _refuse_full(found, options)
        with _scratch(base) as scratch:
            Cache.open(scratch / "cache").close()  # owner, mode and one disk, as the cache itself asks for
            found = replace(found, reflinks=_has_reflinks(scratch), links=_takes_links(scratch, options.links))
            return _timed(found, scratch, options, known)
    except DatasyncError as error:
        return replace(found, problem=str(error))
    except OSError as error:
        return replace(found, problem=str(fault(error, f"directory {found.path}")))


def _existing(path: Path) -> Path:
    """Return *path*, or the deepest directory above it that is there."""
    for candidate in (path, *path.parents):
        if os.path.lexists(candidate):
            return candidate
    return Path("/")


def _look(found: Survey, base: Path, mounts: Sequence[Mount]) -> Survey:
    fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        mount = mount_of(base.resolve(), mounts)
        space = os.fstatvfs(fd)
        return replace(
            found,
            kind=kind_of(fd, mount),
            filesystem=mount.type if mount else "",
            source=mount.source if mount else "",
            device=os.fstat(fd).st_dev,
            free_bytes=space.f_bavail * space.f_frsize,
            free_inodes=space.f_favail if space.f_files else None,  # btrfs counts none
        )
    finally:
        os.close(fd)


def _write_bytes(found: Survey, options: SurveyOptions) -> int:
    return min(options.write_bytes, MEMORY_WRITE_BYTES) if found.kind is Kind.MEMORY else options.write_bytes


def _refuse_full(found: Survey, options: SurveyOptions) -> None:
    needed = SPARE * (_write_bytes(found, options) + options.files * options.file_bytes)
    if found.free_bytes < needed:
        raise NoSpace(
            f"directory {found.path}: expected at least {needed // MIB} MiB free, found "
            f"{found.free_bytes // MIB} MiB: make room, or use another disk"
        )


@contextmanager
def _scratch(base: Path) -> Iterator[Path]:
    path = base / f"{SCRATCH_PREFIX}{os.urandom(8).hex()}"
    try:  # the name is known before the directory is: no moment in which a signal could leave it behind
        path.mkdir(mode=0o700)
        yield path
    finally:
        try:
            _remove(path)
        except BaseException:
            _remove(path)  # a signal broke the first try off; the command ignores a second one
            raise


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def _has_reflinks(scratch: Path) -> bool:
    with (scratch / "source").open("w+b") as source, (scratch / "clone").open("w+b") as target:
        source.write(bytes(64 * KIB))
        source.flush()
        try:
            clone_file(source.fileno(), target.fileno())
        except OSError:
            return False  # whatever the reason: the cache takes hard links then
    return True


def _takes_links(scratch: Path, count: int) -> bool:
    """Tell whether one file may have *count* more names."""
    folder = scratch / "links"
    folder.mkdir()
    try:
        for number in range(count):
            os.link(scratch / "source", folder / str(number))
    except OSError:
        return False  # EMLINK, EPERM, EOPNOTSUPP, …: the cache copies then
    return True


def _timed(found: Survey, scratch: Path, options: SurveyOptions, known: Sequence[Survey]) -> Survey:
    for earlier in known:
        if earlier.device == found.device and earlier.pace is not None:
            return replace(found, pace=earlier.pace, same_as=earlier.path)
    write = _write_rate(scratch, _write_bytes(found, options))
    return replace(found, pace=Pace(write, _file_rate(scratch, options)))


def _write_rate(scratch: Path, size: int) -> float:
    block = memoryview(os.urandom(BLOCK_BYTES))
    path = scratch / "large"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        path.unlink()  # not even a kill leaves the bytes behind
        began = time.perf_counter()
        done = 0
        while done < size:
            done += os.write(fd, block[: size - done])
        os.fsync(fd)
        return size / max(time.perf_counter() - began, 1e-9)
    finally:
        os.close(fd)


def _file_rate(scratch: Path, options: SurveyOptions) -> float:
    folder, body = scratch / "files", os.urandom(options.file_bytes)
    folder.mkdir()
    began = time.perf_counter()
    for number in range(options.files):
        fd = os.open(folder / str(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, body)
        finally:
            os.close(fd)
    return options.files / max(time.perf_counter() - began, 1e-9)
