"""RFC 6962, section 2.1, written down a second time straight from its recursive definitions. Slow, and independent."""

import hashlib
from collections.abc import Sequence


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _k(n: int) -> int:
    power = 1
    while power * 2 < n:
        power *= 2
    return power


def mth(d: Sequence[bytes]) -> bytes:
    """MTH(D[n])."""
    if not d:
        return _hash(b"")
    if len(d) == 1:
        return _hash(b"\x00" + d[0])
    k = _k(len(d))
    return _hash(b"\x01" + mth(d[:k]) + mth(d[k:]))


def path(m: int, d: Sequence[bytes]) -> list[bytes]:
    """PATH(m, D[n])."""
    if len(d) == 1:
        return []
    k = _k(len(d))
    return [*path(m, d[:k]), mth(d[k:])] if m < k else [*path(m - k, d[k:]), mth(d[:k])]


def proof(m: int, d: Sequence[bytes]) -> list[bytes]:
    """PROOF(m, D[n])."""
    return _subproof(m, d, whole=True)


def _subproof(m: int, d: Sequence[bytes], *, whole: bool) -> list[bytes]:
    n = len(d)
    if m == n:
        return [] if whole else [mth(d)]
    k = _k(n)
    if m <= k:
        return [*_subproof(m, d[:k], whole=whole), mth(d[k:])]
    return [*_subproof(m - k, d[k:], whole=False), mth(d[:k])]


def is_consistent(m: int, n: int, hashes: Sequence[bytes], old: bytes, new: bytes) -> bool:
    """Tell whether PROOF(m, D[n]) leads from *old* to *new*, by the same recursion."""
    left = list(hashes)
    try:
        found = _roots(m, n, left, old, whole=True)
    except IndexError:
        return False
    return found == (old, new) and not left


def _roots(m: int, n: int, left: list[bytes], old: bytes, *, whole: bool) -> tuple[bytes, bytes]:
    if m == n:
        same = old if whole else left.pop()
        return same, same
    k, top = _k(n), left.pop()
    if m <= k:
        before, after = _roots(m, k, left, old, whole=whole)
        return before, _hash(b"\x01" + after + top)
    before, after = _roots(m - k, n - k, left, old, whole=False)
    return _hash(b"\x01" + top + before), _hash(b"\x01" + top + after)
