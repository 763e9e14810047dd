"""What a directory lies on."""

import os
from pathlib import Path

import pytest

from datasync.cache.mounts import Kind, Mount, kind_of, mount_of, parse_mounts, read_mounts
from tests.doctor.conftest import Mounter

TEXT = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
31 27 0:30 / /mnt/my\040disk rw,noatime shared:7 master:1 - xfs /dev/nvme0n1 rw
32 27 0:31 /vol /mnt/nas ro,relatime shared:8 - nfs4 server:/vol rw,vers=4.2
33 27 0:32 / /mnt/bucket rw - fuse.juicefs JuiceFS:x rw
34 27 0:33 / /data rw - ext4 /dev/vdb ro
not a line of mountinfo
"""


def kind_at(path: Path) -> Kind:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return kind_of(fd, mount_of(path.resolve(), read_mounts()))
    finally:
        os.close(fd)


def test_a_mountinfo_is_read_with_blanks_in_names_and_any_number_of_optional_fields() -> None:
    mounts = parse_mounts(TEXT)
    assert [str(mount.path) for mount in mounts] == [
        "/proc", "/", "/mnt/my disk", "/mnt/nas", "/mnt/bucket", "/data",
    ]  # fmt: skip
    assert mounts[2] == Mount(Path("/mnt/my disk"), "xfs", "/dev/nvme0n1", read_only=False)
    assert [mount.read_only for mount in mounts] == [False, False, False, True, False, True]
    assert [mount.is_network for mount in mounts] == [False, False, False, True, True, False]
    assert [mount.is_disk for mount in mounts] == [False, True, True, False, False, True]


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/mnt/nas/a/b", "/mnt/nas"), ("/mnt/nas", "/mnt/nas"), ("/mnt/nastier", "/"), ("/", "/"), ("/proc/1", "/proc")],
)
def test_a_path_lies_on_the_deepest_mount_above_it(path: str, expected: str) -> None:
    found = mount_of(Path(path), parse_mounts(TEXT))
    assert found is not None
    assert found.path == Path(expected)


def test_of_two_mounts_on_one_directory_the_later_is_seen() -> None:
    mounts = parse_mounts(TEXT + "40 27 0:40 / /data rw - tmpfs tmpfs rw\n")
    found = mount_of(Path("/data"), mounts)
    assert found is not None
    assert found.type == "tmpfs"


def test_a_tmpfs_is_memory(mount: Mounter) -> None:
    assert kind_at(mount("tmpfs", "size=1m")) is Kind.MEMORY


def test_an_overlay_is_an_overlay(mount: Mounter) -> None:
    base = mount("tmpfs", "size=8m")
    for name in ("lower", "upper", "work"):
        (base / name).mkdir()
    options = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work"
    assert kind_at(mount("overlay", options)) is Kind.OVERLAY


def test_proc_is_none_of_the_known_kinds() -> None:
    assert kind_at(Path("/proc")) is Kind.OTHER
