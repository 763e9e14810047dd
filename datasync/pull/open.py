"""Open fetched chunks, each verified by its id. Raises `IntegrityError`."""

from collections.abc import Iterable, Iterator

from datasync.crypto.aead import PackOpener
from datasync.crypto.hashing import keyed_hash
from datasync.errors import IntegrityError
from datasync.format.pack import TAG_BYTES
from datasync.model.entries import ChunkRef
from datasync.repository.opening import Buffer, open_chunk

__all__ = ["Buffer", "Opening"]


class Opening:
    """What opens the chunks of one pack that lie in a buffer."""

    def __init__(self, opener: PackOpener, head: bytes, id_key: bytes, name: str, plain: memoryview) -> None:
        """*plain* has room for any chunk; *name* names the pack in errors."""
        self._opener = opener
        self._head = head
        self._id_key = id_key
        self._name = name
        self._plain = plain

    def chunks(self, refs: Iterable[ChunkRef], sealed: memoryview, base: int) -> Iterator[Buffer]:
        """Yield the raw bytes of each of *refs*, whose offsets in *sealed* are those in the pack and *base*; they may
        lie in the plaintext's buffer, good until the next ones. The same chunk twice in a row is opened once.
        """
        last: ChunkRef | None = None
        raw: Buffer = b""
        for ref in refs:
            if ref != last:
                at = base + ref.offset
                raw = self._open(ref, sealed[at : at + ref.stored + TAG_BYTES])
                last = ref
            yield raw

    def _open(self, ref: ChunkRef, sealed: memoryview) -> Buffer:
        raw = open_chunk(self._opener, self._head, ref, ref.position, sealed, self._plain, self._name)
        if keyed_hash(self._id_key, raw) != ref.id:
            raise IntegrityError(f"{self._name}: the chunk at position {ref.position} does not hash to its id")
        return raw
