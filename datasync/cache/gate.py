"""The gate of a view: who may read it besides its owner, which its top directory alone decides (design §5).

    nobody else              0700
    one group                0750, chgrp
    users, several groups    0700 with an access list: r-x for each (`datasync.cache.acl`)

The receipt beside the view has the same gate (r instead of r-x). Files inside are readable to everybody who gets in,
and `objects/`, which has them too, is 0700. `shut` names users who stay outside even when a group of theirs may enter:
an access list looks at a named user first.

A view is made and published closed, so that it is never open wider than its gate; opening and changing it then is
atomic for each of the two: a group is given only what it shall have, then one call replaces the whole list. Where a
file system keeps no access list, or no modes, the view is closed and `UsageError` says so; where anything else fails (a
full disk), whoever may read no more is shut out with all others: never wider than asked. Raises besides what
`datasync.cache.beneath` raises.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from datasync.cache.acl import ATTRIBUTE, AccessList, encode_acl, parse_acl
from datasync.cache.faults import fault
from datasync.cache.layout import Cache, View
from datasync.errors import DatasyncError, FormatError, UsageError

ACCOUNTS = 256  # in one list: ext4 keeps a list in one block of 4 KiB
PROBE = b".gate-"
_NO_LIST = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})
_NOBODY = frozenset[int]()


@dataclass(frozen=True, slots=True)
class Gate:
    """Who may read besides the owner, by numbers of this machine; `shut` are users who may not by any group."""

    users: frozenset[int] = _NOBODY
    groups: frozenset[int] = _NOBODY
    shut: frozenset[int] = _NOBODY

    def opens(self, now: "Gate | None") -> bool:
        """Tell whether somebody may read through this gate who may not through *now* (None: not known)."""
        before = now or CLOSED
        more = self.users - before.users or self.groups - before.groups
        return bool(more or (self.groups and before.shut - self.shut))

    def narrowed(self, allowed: "Gate") -> "Gate":
        """Return this gate without whom *allowed* does not have."""
        groups = self.groups & allowed.groups
        return Gate(self.users & allowed.users, groups, self.shut | allowed.shut if groups else _NOBODY)


CLOSED = Gate()


@dataclass(frozen=True, slots=True)
class _Bits:
    """The permissions of the owner and of a reader."""

    owner: int
    reader: int


_DIRECTORY, _FILE = _Bits(7, 5), _Bits(6, 4)


def gate_of(cache: Cache, view: View) -> Gate | None:
    """Return the gate of *view*; None when somebody gave it rights that are no gate's."""
    with _opened(cache, view) as fds:
        found = [_read(fd) for fd in fds]
    return found[0] if found[0] == found[1] else None


def set_gate(cache: Cache, view: View, gate: Gate) -> None:
    """Make *gate* that of the ready *view*; costs two looks when it is already."""
    with _opened(cache, view) as fds:
        if all(_read(fd) == gate for fd in fds):
            return
        try:
            _set(cache, fds, gate)
        except OSError as error:
            raise fault(error, f"view {view.path}: set who may read it") from error


def _set(cache: Cache, fds: tuple[int, int], gate: Gate) -> None:
    try:
        try_gate(cache, gate)
        for fd in fds:
            _write(fd, gate)
    except (DatasyncError, OSError) as error:
        for fd in fds:
            now = _read(fd)
            if isinstance(error, UsageError) or now is None or now.opens(gate):
                _close(fd)
        raise


def try_gate(cache: Cache, gate: Gate) -> None:
    """Raise `UsageError` unless this file system can hold *gate*: an empty directory tries it."""
    if gate == CLOSED:
        return
    what, name = f"cache directory {cache.path}: let others read", PROBE + os.urandom(8).hex().encode()
    cache.tree.make_directory(name, 0o700, fresh=True)
    try:
        with cache.tree.subtree(name) as tree:
            _write(tree.root_fd, gate)
    except UsageError as error:
        raise UsageError(f"{what}: {error}") from error
    except OSError as error:
        raise fault(error, what) from error
    finally:
        cache.tree.remove(name)


@contextlib.contextmanager
def _opened(cache: Cache, view: View) -> Iterator[tuple[int, int]]:
    """Yield fds of the view and of its receipt, which no link leads to."""
    with cache.tree.subtree(view.place) as tree:
        receipt = cache.tree.open_file(view.ready)
        try:
            yield tree.root_fd, receipt
        finally:
            os.close(receipt)


def _bits(mode: int) -> _Bits:
    return _DIRECTORY if stat.S_ISDIR(mode) else _FILE


def _read(fd: int) -> Gate | None:
    status = os.fstat(fd)
    bits, mode = _bits(status.st_mode), stat.S_IMODE(status.st_mode)
    stored = _stored(fd)
    if stored is not None:
        try:
            return _of_list(parse_acl(stored), bits, mode, status.st_gid)
        except FormatError:
            return None
    if mode == bits.owner << 6:
        return CLOSED
    return Gate(groups=frozenset({status.st_gid})) if mode == bits.owner << 6 | bits.reader << 3 else None


def _stored(fd: int) -> bytes | None:
    try:
        return os.getxattr(fd, ATTRIBUTE)
    except OSError as error:
        if error.errno in (*_NO_LIST, errno.ENODATA):
            return None
        raise fault(error, "read who may read a view") from error


def _of_list(acl: AccessList, bits: _Bits, mode: int, owning: int) -> Gate | None:
    """Return the gate that *acl* is; the kernel keeps its mask equal to the mode's group bits."""
    middle = acl.group if acl.mask is None else bits.reader
    permissions = {acl.group, *(found for _, found in acl.users), *(found for _, found in acl.groups)}
    if mode != bits.owner << 6 | middle << 3 or (acl.owner, acl.others) != (bits.owner, 0):
        return None
    if not permissions <= {0, bits.reader} or any(not found for _, found in acl.groups):
        return None
    return Gate(
        frozenset(number for number, found in acl.users if found),
        frozenset({number for number, _ in acl.groups} | ({owning} if acl.group else set())),
        frozenset(number for number, found in acl.users if not found),
    )


def _write(fd: int, gate: Gate) -> None:
    bits = _bits(os.fstat(fd).st_mode)
    if _read(fd) is None:
        _close(fd)  # nobody knows who could read
    if gate == CLOSED:
        _plain(fd, bits.owner, 0)
    elif not gate.users and not gate.shut and len(gate.groups) == 1 and _give(fd, min(gate.groups)):
        _plain(fd, bits.owner, bits.reader)
    else:
        _list(fd, gate, bits)
    if _read(fd) != gate:
        raise UsageError("this file system keeps no modes that close a view: use a cache directory on a local disk")


def _close(fd: int) -> None:
    os.fchmod(fd, _bits(os.fstat(fd).st_mode).owner << 6)  # a list is closed by its mask, which these bits are


def _give(fd: int, group: int) -> bool:
    """Make *group* the owning one; False when this user may not. It has nothing that it shall not get."""
    if os.fstat(fd).st_gid == group:
        return True
    try:
        os.fchown(fd, -1, group)
    except PermissionError:
        return False
    except OSError as error:
        raise _unknown(error, f"group {group}") from error
    return True


def _plain(fd: int, owner: int, group: int) -> None:
    """Set a mode and drop the list in one call where there may be one."""
    try:
        os.setxattr(fd, ATTRIBUTE, encode_acl(AccessList(owner, group, 0)))
    except OSError as error:
        if error.errno not in _NO_LIST:
            raise
    os.fchmod(fd, owner << 6 | group << 3)


def _list(fd: int, gate: Gate, bits: _Bits) -> None:
    users = [(number, bits.reader) for number in gate.users] + [(number, 0) for number in gate.shut]
    groups = [(number, bits.reader) for number in gate.groups]
    acl = AccessList(bits.owner, 0, 0, tuple(users), tuple(groups), bits.reader)
    try:
        os.setxattr(fd, ATTRIBUTE, encode_acl(acl))
    except OSError as error:
        if error.errno in _NO_LIST:
            raise UsageError(
                "this file system keeps no access lists, so one group alone can be let in, and by root or one of its "
                "members: map everybody to it, or use a cache directory on another disk"
            ) from error
        raise _unknown(error, "an account") from error


def _unknown(error: OSError, who: str) -> Exception:
    """Return what to raise for a number that this user namespace does not have."""
    if error.errno == errno.EINVAL:
        return UsageError(f"{who}: not known to this machine or container: correct who may read")
    return error
