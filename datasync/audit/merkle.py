"""The Merkle tree of RFC 6962, section 2.1: roots, inclusion and consistency proofs, and proofs of a range of leaves.

Pure: hashes in, hashes out; SHA-256 is passed in. Verifiers follow RFC 9162, sections 2.1.3.2 and 2.1.4.2. Raises
`IntegrityError` for a proof that does not hold.
"""

from collections.abc import Callable, Sequence

from datasync.errors import IntegrityError

HASH_BYTES = 32
MAX_SIZE = 2**63 - 1

Hasher = Callable[[bytes], bytes]


def leaf_hash(sha256: Hasher, leaf: bytes) -> bytes:
    """Return the hash of a leaf's bytes."""
    return sha256(b"\0" + leaf)


def _node(sha256: Hasher, left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right)


class Frontier:
    """The roots of the full subtrees that make up a tree of `size` leaves, the largest first: all it takes to grow."""

    def __init__(self, sha256: Hasher, size: int = 0, hashes: Sequence[bytes] = ()) -> None:
        if not 0 <= size <= MAX_SIZE or len(hashes) != size.bit_count():
            raise IntegrityError(f"tree of {size} leaves: expected {size.bit_count()} subtrees, found {len(hashes)}")
        self._sha256 = sha256
        self.size = size
        self.hashes = list(hashes)

    def append(self, leaf: bytes) -> None:
        """Add the leaf whose hash is *leaf*."""
        self._merge(leaf, 0)

    def _merge(self, subtree: bytes, level: int) -> None:
        count = self.size >> level
        while count & 1:
            subtree = self._sha256(b"\1" + self.hashes.pop() + subtree)
            count >>= 1
        self.hashes.append(subtree)
        self.size += 1 << level

    def append_subtree(self, subtree: bytes, level: int) -> None:
        """Add 2^level leaves whose root is *subtree*, at a place where such a subtree may begin."""
        if self.size % (1 << level):
            raise IntegrityError(f"tree of {self.size} leaves: no subtree of {1 << level} leaves begins here")
        self._merge(subtree, level)

    def root(self) -> bytes:
        """Return the tree's root hash."""
        if not self.hashes:
            return self._sha256(b"")
        root = self.hashes[-1]
        for left in reversed(self.hashes[:-1]):
            root = _node(self._sha256, left, root)
        return root

    def copy(self) -> "Frontier":
        """Return one that grows by itself."""
        return Frontier(self._sha256, self.size, self.hashes)


class Leaves:
    """The leaf hashes of a tree from its base on, which answer for the root of any subtree that a proof asks for."""

    def __init__(self, sha256: Hasher, base: Frontier | None = None) -> None:
        base = base or Frontier(sha256)
        self._sha256 = sha256
        self._base = base.size
        self._before = list(zip(subtrees(0, base.size), base.hashes, strict=True))
        self._hashes = bytearray()

    def append(self, leaf: bytes) -> None:
        """Add a leaf's hash."""
        self._hashes += leaf

    @property
    def size(self) -> int:
        """How many leaves the whole tree has."""
        return self._base + len(self._hashes) // HASH_BYTES

    def leaf(self, index: int) -> bytes:
        """Return the hash of the leaf *index*."""
        if not self._base <= index < self.size:
            raise IntegrityError(f"tree of {self.size} leaves from {self._base} on: no leaf {index}")
        at = (index - self._base) * HASH_BYTES
        return bytes(self._hashes[at : at + HASH_BYTES])

    def root(self, low: int, high: int) -> bytes:
        """Return the root over leaves *low* … *high* - 1, where a subtree may begin."""
        tree = Frontier(self._sha256)
        for (start, level), subtree in self._before:
            if low <= start and start + (1 << level) <= high:
                tree.append_subtree(subtree, level)
        if tree.size != max(0, min(high, self._base) - low):
            raise IntegrityError(f"leaves {low} … {high - 1}: they were removed, nothing can be proved of them alone")
        for index in range(max(low, self._base), high):
            tree.append(self.leaf(index))
        return tree.root()


def _split(size: int) -> int:
    """Return the largest power of two smaller than *size*."""
    return 1 << (size - 1).bit_length() - 1


def inclusion_proof(leaves: Leaves, index: int) -> list[bytes]:
    """Return the audit path of the leaf *index* (RFC 6962, section 2.1.1)."""
    leaves.leaf(index)
    low, high, path = 0, leaves.size, list[bytes]()
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            path.append(leaves.root(middle, high))
            high = middle
        else:
            path.append(leaves.root(low, middle))
            low = middle
    return path[::-1]


def consistency_proof(leaves: Leaves, old: int) -> list[bytes]:
    """Return the proof that the tree continues that of its first *old* leaves (RFC 6962, section 2.1.2)."""
    if not 0 < old <= leaves.size:
        raise IntegrityError(f"tree of {leaves.size} leaves: no proof from size {old}")
    low, high, whole, proof = 0, leaves.size, True, list[bytes]()
    while old != high:
        middle = low + _split(high - low)
        if old <= middle:
            proof.append(leaves.root(middle, high))
            high = middle
        else:
            proof.append(leaves.root(low, middle))
            low, whole = middle, False
    if not whole:
        proof.append(leaves.root(low, high))
    return proof[::-1]


def _check_hashes(proof: Sequence[bytes]) -> None:
    for item in proof:
        if len(item) != HASH_BYTES:
            raise IntegrityError(f"proof: expected hashes of {HASH_BYTES} bytes, found one of {len(item)}")


def verify_inclusion(sha256: Hasher, index: int, size: int, leaf: bytes, proof: Sequence[bytes], root: bytes) -> None:
    """Raise `IntegrityError` unless *leaf* (a hash) is number *index* of the tree of *size* leaves with *root*."""
    _check_hashes([*proof, leaf])
    if not 0 <= index < size:
        raise IntegrityError(f"inclusion proof: expected an index below {size}, found {index}")
    number, last, current = index, size - 1, leaf
    for item in proof:
        if last == 0:
            raise IntegrityError("inclusion proof: it has hashes to spare")
        if number & 1 or number == last:
            current = _node(sha256, item, current)
            while not number & 1 and number:
                number, last = number >> 1, last >> 1
        else:
            current = _node(sha256, current, item)
        number, last = number >> 1, last >> 1
    if last or current != root:
        raise IntegrityError(f"inclusion proof: leaf {index} is not in the tree of {size} leaves with that root")


def verify_consistency(
    sha256: Hasher, old: int, size: int, proof: Sequence[bytes], old_root: bytes, root: bytes
) -> None:
    """Raise `IntegrityError` unless the tree of *size* leaves begins with that of *old* leaves."""
    if not 0 < old <= size:
        raise IntegrityError(f"consistency proof: expected sizes 1 … {size}, found {old}")
    verify_subtree(sha256, 0, old, size, proof, old_root, root)


def verify_subtree(
    sha256: Hasher, start: int, end: int, size: int, proof: Sequence[bytes], subtree: bytes, root: bytes
) -> None:
    """Raise `IntegrityError` unless leaves *start* … *end* - 1 of the tree of *size* leaves have the root *subtree*.

    A subtree begins at a multiple of the power of two that holds it (draft-ietf-plants-merkle-tree-certs, section 4).
    """
    _check_hashes(proof)
    width = 1 << max(0, end - start - 1).bit_length()
    if not 0 <= start <= end <= size or start % width:
        raise IntegrityError(f"consistency proof: leaves {start} … {end - 1} of {size} are no subtree")
    if start == end:
        if proof or subtree != sha256(b""):
            raise IntegrityError("consistency proof: that is not the root hash of nothing")
        return
    first, number, last = start, end - 1, size - 1
    while first != number and (number == last or number & 1):
        first, number, last = first >> 1, number >> 1, last >> 1
    path = list(proof) if first != number else [subtree, *proof]
    if not path:
        raise IntegrityError("consistency proof: it is empty")
    one = both = path[0]
    for item in path[1:]:
        if last == 0:
            raise IntegrityError("consistency proof: it has hashes to spare")
        if number & 1 or number == last:
            if first < number:
                one = _node(sha256, item, one)
            both = _node(sha256, item, both)
            while not number & 1 and number:
                first, number, last = first >> 1, number >> 1, last >> 1
        else:
            both = _node(sha256, both, item)
        first, number, last = first >> 1, number >> 1, last >> 1
    if last or one != subtree or both != root:
        raise IntegrityError(f"consistency proof: the tree of {size} leaves does not hold leaves {start} … {end - 1}")


def subtrees(start: int, end: int) -> list[tuple[int, int]]:
    """Return the (first leaf, level) of the largest aligned subtrees that fill leaves *start* … *end* - 1."""
    found = []
    while start < end:
        level = (start & -start).bit_length() - 1 if start else end.bit_length() - 1
        while start + (1 << level) > end:
            level -= 1
        found.append((start, level))
        start += 1 << level
    return found


def verify_range(
    sha256: Hasher,
    start: int,
    leaves: Sequence[bytes],
    size: int,
    before: Sequence[bytes],
    after: Sequence[bytes],
    root: bytes,
) -> None:
    """Raise `IntegrityError` unless *leaves* (hashes) are numbers *start* … of the tree of *size* leaves with *root*.

    *before* and *after* are the roots of `subtrees` left and right of the leaves.
    """
    _check_hashes([*before, *after])
    tree = Frontier(sha256, start, before)
    for leaf in leaves:
        tree.append(leaf)
    places = subtrees(tree.size, size)
    if len(places) != len(after):
        raise IntegrityError(f"range proof: expected {len(places)} subtrees after the range, found {len(after)}")
    for (_, level), subtree in zip(places, after, strict=True):
        tree.append_subtree(subtree, level)
    if tree.size != size or tree.root() != root:
        raise IntegrityError(f"range proof: events {start} … are not those of the tree of {size} leaves with that root")
