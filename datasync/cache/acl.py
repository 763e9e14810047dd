"""POSIX access lists: the value of the attribute `system.posix_acl_access` (acl(5), <linux/posix_acl_xattr.h>).

    version                                  u32, always 2
    tag, permissions, number                 u16, u16, u32; one such entry after the other

All little-endian. Tags in this order: owner 0x01 · user 0x02 · owning group 0x04 · group 0x08 · mask 0x10 · others
0x20. Permissions: 4 read, 2 write, 1 search or execute. The number is that of a named user or group, else 2^32 - 1.
Named entries come by number, none twice, and need a mask. Pure; a list has one encoding. Raises `FormatError`.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from datasync.errors import FormatError

ATTRIBUTE = "system.posix_acl_access"
VERSION = 2
ENTRIES = 8_192  # what the kernel's limit of 64 KiB for one attribute holds
NOBODY = 0xFFFFFFFF

_VERSION = struct.Struct("<I")
_ENTRY = struct.Struct("<HHI")
_OWNER, _USER, _GROUP_OWNER, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_ALL = 7
_NAMED = frozenset({_USER, _GROUP})

Named = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class AccessList:
    """Permissions of owner, owning group and others; of named users and groups, as (number, permissions); the mask."""

    owner: int
    group: int
    others: int
    users: Named = ()
    groups: Named = ()
    mask: int | None = None


def encode_acl(acl: AccessList) -> bytes:
    """Return the attribute's value."""
    entries = [(_OWNER, acl.owner, NOBODY)]
    entries += [(_USER, permissions, number) for number, permissions in sorted(acl.users)]
    entries.append((_GROUP_OWNER, acl.group, NOBODY))
    entries += [(_GROUP, permissions, number) for number, permissions in sorted(acl.groups)]
    if acl.mask is not None:
        entries.append((_MASK, acl.mask, NOBODY))
    entries.append((_OTHERS, acl.others, NOBODY))
    return _VERSION.pack(VERSION) + b"".join(_ENTRY.pack(*entry) for entry in entries)


def parse_acl(data: bytes) -> AccessList:
    """Return the list in *data*."""
    entries = _entries(data)
    _check_order([(tag, number) for tag, _, number in entries])
    alone = {tag: permissions for tag, permissions, _ in entries if tag not in _NAMED}
    if missing := {_OWNER, _GROUP_OWNER, _OTHERS} - alone.keys():
        raise FormatError(f"access list: expected an entry of tag {min(missing):#04x}, found none")
    users, groups = (_named(entries, tag) for tag in (_USER, _GROUP))
    if (users or groups) and _MASK not in alone:
        raise FormatError("access list: expected a mask beside named entries, found none")
    return AccessList(alone[_OWNER], alone[_GROUP_OWNER], alone[_OTHERS], users, groups, alone.get(_MASK))


def _entries(data: bytes) -> list[tuple[int, int, int]]:
    if len(data) < _VERSION.size or (len(data) - _VERSION.size) % _ENTRY.size:
        raise FormatError(f"access list: expected a version and whole entries, found {len(data)} bytes")
    (version,) = _VERSION.unpack_from(data)
    if version != VERSION:
        raise FormatError(f"access list: expected version {VERSION}, found {version}")
    if (count := (len(data) - _VERSION.size) // _ENTRY.size) > ENTRIES:
        raise FormatError(f"access list: expected at most {ENTRIES} entries, found {count}")
    entries = list(_ENTRY.iter_unpack(memoryview(data)[_VERSION.size :]))
    if wrong := [permissions for _, permissions, _ in entries if permissions > _ALL]:
        raise FormatError(f"access list: expected permissions of three bits, found {wrong[0]:#x}")
    return entries


def _check_order(found: Iterable[tuple[int, int]]) -> None:
    before = (0, 0)
    for tag, number in found:
        if tag not in (_OWNER, _USER, _GROUP_OWNER, _GROUP, _MASK, _OTHERS):
            raise FormatError(f"access list: unknown tag {tag:#04x}")
        if (number == NOBODY) == (tag in _NAMED):
            raise FormatError(f"access list: tag {tag:#04x}: a number where none belongs, or none where one does")
        if (tag, number) <= before:
            raise FormatError(f"access list: tag {tag:#04x}: out of order, or twice")
        before = (tag, number)


def _named(entries: list[tuple[int, int, int]], wanted: int) -> Named:
    return tuple((number, permissions) for tag, permissions, number in entries if tag == wanted)
