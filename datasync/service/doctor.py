"""datasync doctor: is this node good for a cache, and this store good for a repository?

Measures and reports; changes nothing and leaves nothing behind. Raises what the store raises, for the store part;
the node part raises nothing for what it finds.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from datasync.cache.mounts import Kind, Mount, read_mounts
from datasync.cache.survey import Survey, SurveyOptions, survey
from datasync.config import Config
from datasync.model.limits import MIB
from datasync.storage.clauses import CLAUSES
from datasync.storage.conformance import Finding, KitOptions, examine, exit_code, kit_for
from datasync.storage.location import StoreUrl, open_store, parse_url
from datasync.storage.pace import BENCH_PACKS, Latency, Throughput, measure_latency, measure_throughput
from datasync.storage.probe import PROBE_PREFIX
from datasync.storage.retry import RetryBudget, RetryingStore

CACHE_NAME = "datasync-cache"  # what the cache is called inside a directory that others use too
CANDIDATES = 24  # measured at most; a machine with more mounts than this has them for other things
GIB = 1024 * MIB
INODES = 200_000  # fewer free ones are told: a dataset of small files needs one for each file
ALIKE = 1.5  # a disk this much slower than the fastest is as good, when it has more room
BUDGET = RetryBudget(attempts=4, seconds=30)  # a person waits for the answer

VARIABLES = ("SLURM_TMPDIR", "TMPDIR")
# Directories that providers make. A name only says where to look: what is found there decides.
NAMED = (
    "/root/autodl-tmp",  # AutoDL's data disk: https://www.autodl.com/docs/env/
    "/gz-data",  # GPUGeek's data disk: https://gpugeek.com/docs/en/product/manual/storage
    "/workspace",  # Runpod's volume disk or network volume: https://docs.runpod.io/pods/storage/types
    "/var/tmp",
    "/tmp",
    "/dev/shm",
    "/",  # the container's own disk, on Runpod and Vast.ai: https://docs.vast.ai/cli/reference/create-instance
)
# Mounts of the system itself: measuring would write where nobody keeps data. Applies to what mountinfo lists only.
SYSTEM = tuple(map(Path, ("/boot", "/dev", "/efi", "/etc", "/proc", "/run", "/snap", "/sys", "/usr", "/var/lib")))
_ORDER = (Kind.LOCAL, Kind.OVERLAY, Kind.OTHER, Kind.NETWORK, Kind.MEMORY)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A directory to measure; *origin* says who named it."""

    path: Path
    origin: str


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The surveys in the order of the candidates; the one to use and why; network mounts that were left alone."""

    surveys: tuple[Survey, ...]
    best: Survey | None
    reason: str
    unmeasured: tuple[Mount, ...]


@dataclass(frozen=True, slots=True)
class StoreReport:
    """What the store does; `left` names what could not be removed."""

    url: str
    findings: tuple[Finding, ...]
    latency: Latency
    throughput: Throughput | None
    left: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 for all there, 3 for what a repository works without, 7 for what it does not."""
        return exit_code(self.findings)


def examine_node(
    config: Config,
    environment: Mapping[str, str],
    options: SurveyOptions,
    min_free: int,
    report: Callable[[Survey], None],
) -> NodeReport:
    """Measure all candidates and choose one."""
    mounts, done = read_mounts(), list[Survey]()
    for candidate in candidates(config.caches, environment, mounts):
        done.append(survey(candidate.path, candidate.origin, mounts, options, done))
        report(done[-1])
    best, reason = choose(done, min_free)
    return NodeReport(tuple(done), best, reason, tuple(mount for mount in mounts if mount.is_network))


def candidates(
    configured: Sequence[Path], environment: Mapping[str, str], mounts: Sequence[Mount]
) -> tuple[Candidate, ...]:
    """Return where a cache could lie, the configured directories first, none twice."""
    found = [Candidate(Path(os.path.abspath(path)), "configured") for path in configured]
    found += [Candidate(Path(value), f"${name}") for name in VARIABLES if (value := environment.get(name))]
    found += [Candidate(Path(name), "common") for name in NAMED]
    found += [Candidate(mount.path, "mount") for mount in mounts if _may_hold_data(mount)]
    chosen: dict[Path, Candidate] = {}
    for candidate in found:
        path = candidate.path if candidate.origin == "configured" else candidate.path / CACHE_NAME
        if path.is_absolute() and (candidate.origin == "configured" or os.path.isdir(candidate.path)):
            chosen.setdefault(path, Candidate(path, candidate.origin))
    return tuple(chosen.values())[:CANDIDATES]


def _may_hold_data(mount: Mount) -> bool:
    if not mount.is_disk or mount.read_only:
        return False
    return not any(mount.path == system or system in mount.path.parents for system in SYSTEM)


def choose(surveys: Sequence[Survey], min_free: int) -> tuple[Survey | None, str]:
    """Return the best of those that can be used, and why it is: room first, then kind, speed, free bytes, order."""
    usable = [item for item in surveys if not item.problem and item.pace is not None]
    if not usable:
        return None, "no directory can hold a cache"
    roomy = [item for item in usable if item.free_bytes >= min_free and item.kind is not Kind.MEMORY]
    kind = min((item.kind for item in roomy or usable), key=_ORDER.index)
    alike = [item for item in roomy or usable if item.kind is kind]
    fastest = max(_speed(item) for item in alike)
    best = max((item for item in alike if _speed(item) * ALIKE >= fastest), key=lambda item: item.free_bytes // GIB)
    room = f"{best.free_bytes // GIB} GiB free"
    if not roomy:
        room += f", and no usable disk has {min_free // GIB} GiB"
    return best, f"{_KIND_TEXT[kind]}, {_speed(best) / MIB:,.0f} MiB/s, {room}"


def _speed(item: Survey) -> float:
    return item.pace.write if item.pace else 0.0


_KIND_TEXT = {
    Kind.LOCAL: "a local disk",
    Kind.OVERLAY: "the container's own layer",
    Kind.OTHER: "a file system of unknown kind",
    Kind.NETWORK: "a network file system",
    Kind.MEMORY: "memory",
}
_KIND_WARNING = {
    Kind.OVERLAY: "it is the container's own layer: it is gone with the container, and counts against its disk",
    Kind.OTHER: "its kind is not known: look at the measured speed",
    Kind.NETWORK: "it is a network file system: training reads over the network, each time",
    Kind.MEMORY: "it is RAM: what the cache holds is missing to the job, and a restart empties it",
}


def warnings(item: Survey, min_free: int) -> list[str]:
    """Return what a user of this directory should know."""
    told = [_KIND_WARNING[item.kind]] if item.kind in _KIND_WARNING else []
    if item.free_bytes < min_free:
        told.append(f"it has {item.free_bytes / GIB:.1f} GiB free, less than {min_free // GIB}")
    if item.free_inodes is not None and item.free_inodes < INODES:
        told.append(f"it has room for {item.free_inodes:,} more files")
    if not item.problem and not item.reflinks and not item.links:
        told.append("it has neither reflinks nor hard links enough: each view is a copy")
    return told


def examine_store(
    url: str, options: KitOptions, *, bench: bool, packs: int = BENCH_PACKS, report: Callable[[Finding], None]
) -> StoreReport:
    """Try every clause against the store at *url*, in a scratch prefix of its own, and remove what was made."""
    where = parse_url(url)
    scratch = f"{PROBE_PREFIX}doctor-{os.urandom(16).hex()}"
    findings: list[Finding] = []
    with (
        _without_directories(where, scratch),
        closing(open_store(where, prefix=scratch)) as driver,
        closing(RetryingStore(driver, BUDGET)) as store,
        closing(RetryingStore(open_store(where, prefix=scratch), BUDGET)) as other,
    ):
        with kit_for(store, other, options, driver) as kit:
            for finding in examine(kit, CLAUSES):
                findings.append(finding)
                report(finding)
            latency = measure_latency(kit)
            throughput = measure_throughput(kit, packs) if bench else None
        left = tuple(f"{scratch}/{name}" for name in sorted(kit.made))
    return StoreReport(str(where), tuple(findings), latency, throughput, left)


@contextmanager
def _without_directories(where: StoreUrl, scratch: str) -> Iterator[None]:
    """Remove the directories that a store of files makes for names; other stores have none."""
    if where.scheme != "file":
        yield
        return
    root = Path(where.place)
    fresh = [path for path in (root / PROBE_PREFIX, root, *root.parents) if not os.path.lexists(path)]
    try:
        yield
    finally:
        try:
            _remove_directories(root / scratch, fresh)
        except BaseException:
            _remove_directories(root / scratch, fresh)  # a signal broke the first try off
            raise


def _remove_directories(scratch: Path, fresh: Sequence[Path]) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(scratch)
    for path in fresh:
        with suppress(OSError):  # not made, or somebody else has put something there since
            path.rmdir()
