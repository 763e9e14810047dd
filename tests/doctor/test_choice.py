"""Which directories are measured, and which of them is chosen: rules without a disk."""

from dataclasses import replace
from pathlib import Path

import pytest

from datasync.cache.mounts import Kind, Mount, parse_mounts
from datasync.cache.survey import Pace, Survey
from datasync.model.limits import MIB
from datasync.service.doctor import CACHE_NAME, CANDIDATES, GIB, candidates, choose, warnings

MIN_FREE = 20 * GIB
SYSTEM_MOUNTS = "1 2 0:1 / /proc rw - ext4 x rw\n1 2 0:1 / /boot/efi rw - ext4 x rw\n1 2 0:1 / /x ro - ext4 x ro"


def disk(name: str, kind: Kind = Kind.LOCAL, *, speed: int = 1_000, free: int = 100, problem: str = "") -> Survey:
    pace = None if problem else Pace(speed * MIB, 10_000)
    return Survey(Path(name), "test", kind, "x", free_bytes=free * GIB, links=True, pace=pace, problem=problem)


def chosen(*surveys: Survey) -> str | None:
    best, _ = choose(surveys, MIN_FREE)
    return str(best.path) if best else None


@pytest.mark.parametrize(
    ("surveys", "expected"),
    [
        ((disk("/only"),), "/only"),
        ((disk("/net", Kind.NETWORK, speed=9_000), disk("/slow", speed=300)), "/slow"),
        ((disk("/layer", Kind.OVERLAY), disk("/disk")), "/disk"),
        ((disk("/net", Kind.NETWORK), disk("/layer", Kind.OVERLAY)), "/layer"),
        ((disk("/shm", Kind.MEMORY, speed=9_000), disk("/net", Kind.NETWORK, speed=50)), "/net"),
        ((disk("/small", free=5), disk("/layer", Kind.OVERLAY, free=50)), "/layer"),
        ((disk("/small", free=5), disk("/shm", Kind.MEMORY, free=500)), "/small"),
        ((disk("/sata", speed=400, free=900), disk("/nvme", speed=3_000, free=100)), "/nvme"),
        ((disk("/a", speed=3_000, free=100), disk("/b", speed=2_500, free=900)), "/b"),
        ((disk("/first"), disk("/second")), "/first"),
        ((disk("/bad", problem="no"), disk("/good", Kind.NETWORK)), "/good"),
        ((disk("/bad", problem="no"),), None),
        ((), None),
    ],
)
def test_the_best_directory_is_chosen(surveys: tuple[Survey, ...], expected: str | None) -> None:
    assert chosen(*surveys) == expected


def test_the_reason_says_what_was_measured() -> None:
    assert (
        choose([disk("/a", free=7)], MIN_FREE)[1]
        == "a local disk, 1,000 MiB/s, 7 GiB free, and no usable disk has 20 GiB"
    )


@pytest.mark.parametrize(
    ("survey", "expected"),
    [
        (disk("/a"), []),
        (disk("/a", Kind.MEMORY), ["RAM"]),
        (disk("/a", Kind.NETWORK), ["network"]),
        (disk("/a", Kind.OVERLAY), ["layer"]),
        (disk("/a", Kind.OTHER), ["not known"]),
        (disk("/a", free=3), ["3.0 GiB free"]),
        (replace(disk("/a"), free_inodes=1_000), ["1,000 more files"]),
        (replace(disk("/a"), links=False), ["a copy"]),
        (replace(disk("/a"), links=False, reflinks=True), []),
    ],
)
def test_a_warning_for_each_weakness_and_none_without(survey: Survey, expected: list[str]) -> None:
    found = warnings(survey, MIN_FREE)
    assert len(found) == len(expected)
    assert all(word in text for word, text in zip(expected, found, strict=True))


def test_candidates_are_the_configured_the_job_s_and_the_mounted_ones_none_twice(tmp_path: Path) -> None:
    scratch, disk_mount = tmp_path / "scratch", tmp_path / "disk"
    scratch.mkdir()
    disk_mount.mkdir()
    mounts = [
        Mount(disk_mount, "xfs", "/dev/nvme0n1", read_only=False),
        Mount(scratch, "ext4", "/dev/vdb", read_only=False),
        *parse_mounts(
            "1 2 0:1 / /proc rw - ext4 x rw\n1 2 0:1 / /boot/efi rw - ext4 x rw\n1 2 0:1 / /x ro - ext4 x ro"
        ),
    ]
    environment = {"SLURM_TMPDIR": str(scratch), "TMPDIR": str(tmp_path / "gone")}
    found = candidates([tmp_path / "cache"], environment, mounts)
    paths = [item.path for item in found]
    assert paths[:2] == [tmp_path / "cache", scratch / CACHE_NAME]
    assert [item.origin for item in found[:2]] == ["configured", "$SLURM_TMPDIR"]
    assert disk_mount / CACHE_NAME in paths
    assert len(set(paths)) == len(paths)
    assert not [path for path in paths if str(path).startswith(("/proc", "/boot", "/x", str(tmp_path / "gone")))]


def test_there_are_never_too_many(tmp_path: Path) -> None:
    for number in range(CANDIDATES * 2):
        (tmp_path / str(number)).mkdir()
    mounts = [Mount(path, "xfs", "/dev/x", read_only=False) for path in tmp_path.iterdir()]
    assert len(candidates([tmp_path], {}, mounts)) == CANDIDATES
