"""What file system a directory lies on: /proc/self/mountinfo, and the type that statfs tells.

The kind comes from the type number of statfs; only for FUSE, which has one number for everything, the mount's type
name decides. No decision looks at a path. Where there is no /proc, there are no mounts and the kind is `OTHER`.
Raises `OSError` only; callers turn it into errors of datasync.
"""

import ctypes
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

MOUNTINFO = Path("/proc/self/mountinfo")
STATFS_BYTES = 512  # struct statfs is 120 bytes on the machines that datasync runs on; more is never written


class Kind(StrEnum):
    """What holds the bytes."""

    LOCAL = "local"
    OVERLAY = "overlay"
    OTHER = "other"
    NETWORK = "network"
    MEMORY = "memory"


# The numbers are those of statfs(2) and <linux/magic.h>.
_KINDS = {
    0xEF53: Kind.LOCAL,  # ext2, ext3, ext4
    0x58465342: Kind.LOCAL,  # xfs
    0x9123683E: Kind.LOCAL,  # btrfs
    0xF2F52010: Kind.LOCAL,  # f2fs
    0x2FC12FC1: Kind.LOCAL,  # zfs
    0xCA451A4E: Kind.LOCAL,  # bcachefs
    0x3153464A: Kind.LOCAL,  # jfs
    0x3434: Kind.LOCAL,  # nilfs
    0x52654973: Kind.LOCAL,  # reiserfs
    0x4D44: Kind.LOCAL,  # vfat
    0x2011BAB0: Kind.LOCAL,  # exfat
    0x794C7630: Kind.OVERLAY,
    0x01021994: Kind.MEMORY,  # tmpfs
    0x858458F6: Kind.MEMORY,  # ramfs
    0x958458F6: Kind.MEMORY,  # hugetlbfs
    0x6969: Kind.NETWORK,  # nfs
    0x517B: Kind.NETWORK,  # smb
    0xFF534D42: Kind.NETWORK,  # cifs
    0xFE534D42: Kind.NETWORK,  # smb2, smb3
    0x00C36400: Kind.NETWORK,  # ceph
    0x0BD00BD0: Kind.NETWORK,  # lustre
    0x47504653: Kind.NETWORK,  # gpfs
    0x19830326: Kind.NETWORK,  # beegfs
    0x01021997: Kind.NETWORK,  # 9p
    0x5346414F: Kind.NETWORK,  # afs
    0x6B414653: Kind.NETWORK,  # kafs
    0x73757245: Kind.NETWORK,  # coda
}
_FUSE = 0x65735546
_FUSE_KINDS = {
    "fuseblk": Kind.LOCAL,  # FUSE over a block device
    "fuse.fuse-overlayfs": Kind.OVERLAY,  # rootless containers
    "virtiofs": Kind.OTHER,  # a directory of the virtual machine's host
}
_NETWORK_TYPE = re.compile(
    r"nfs4?|cifs|smb3?|ceph|lustre|gpfs|beegfs|9p|afs|glusterfs|wekafs|pvfs2|orangefs|fuse(?!blk|\.fuse-overlayfs).*"
)
# Types that may hold a cache; all others (proc, cgroup, squashfs, …) are the system's own.
_DISK_TYPE = re.compile(
    r"ext[234]|xfs|btrfs|f2fs|zfs|bcachefs|jfs|nilfs2|reiserfs|tmpfs|overlay|fuseblk|fuse\.fuse-overlayfs"
)
_OCTAL = re.compile(r"\\([0-7]{3})")
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo."""

    path: Path
    type: str
    source: str
    read_only: bool

    @property
    def is_network(self) -> bool:
        """Tell by the type's name alone: a dead server must not be asked."""
        return _NETWORK_TYPE.fullmatch(self.type) is not None

    @property
    def is_disk(self) -> bool:
        """Tell whether a cache can lie here at all."""
        return _DISK_TYPE.fullmatch(self.type) is not None


def read_mounts() -> tuple[Mount, ...]:
    """Return this process's mounts in the kernel's order; none where there is no /proc."""
    try:
        return parse_mounts(os.fsdecode(MOUNTINFO.read_bytes()))
    except FileNotFoundError:
        return ()


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """Return the mounts of a mountinfo text (proc(5)); lines of another form are passed over."""
    return tuple(mount for line in text.split("\n") if (mount := _parse_line(line)) is not None)


def _parse_line(line: str) -> Mount | None:
    fields = line.split(" ")
    try:
        rest = fields[fields.index("-", 6) + 1 :]  # a varying number of optional fields ends with "-"
        path, options, kind, source = fields[4], fields[5], rest[0], rest[1]
    except (ValueError, IndexError):
        return None
    flags = {*options.split(","), *(rest[2].split(",") if len(rest) > 2 else ())}
    return Mount(Path(_unescape(path)), kind, _unescape(source), "ro" in flags)


def _unescape(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def mount_of(path: Path, mounts: Sequence[Mount]) -> Mount | None:
    """Return the mount that the absolute, resolved *path* lies on: the deepest, of equal ones the last."""
    best: Mount | None = None
    for mount in mounts:
        deeper = best is None or len(mount.path.parts) >= len(best.path.parts)
        if deeper and (mount.path == path or mount.path in path.parents):
            best = mount
    return best


def kind_of(fd: int, mount: Mount | None) -> Kind:
    """Return the kind of file system that the open directory *fd* lies on."""
    number = _type_number(fd)
    if number == _FUSE:
        return _FUSE_KINDS.get(mount.type if mount else "", Kind.NETWORK)
    return _KINDS.get(number, Kind.OTHER)


def _type_number(fd: int) -> int:
    """Return f_type of fstatfs(2), which Python does not offer; 0 where there is none."""
    if _LIBC is None:
        return 0
    buffer = ctypes.create_string_buffer(STATFS_BYTES)
    if _LIBC.fstatfs(ctypes.c_int(fd), buffer) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF  # f_type comes first
