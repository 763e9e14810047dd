"""Opening what was fetched: each chunk is decrypted and verified, also one that looks like the one before it."""

import os

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from datasync.crypto.aead import PackOpener
from datasync.crypto.hashing import keyed_hash
from datasync.errors import IntegrityError
from datasync.format import pack as packs
from datasync.model.entries import FORM_RAW, ChunkRef
from datasync.pull.open import Opening

KEY, ID_KEY, HEAD, SIZE = bytes(32), bytes([1]) * 32, b"header", 1000
BASE = 77


def sealed_chunks(count: int) -> tuple[list[bytes], list[ChunkRef], bytes]:
    """Return plaintexts, references and what is fetched of a pack of *count* chunks."""
    raws = [os.urandom(SIZE) for _ in range(count)]
    refs, sealed = [], b""
    for n, raw in enumerate(raws):
        ref = ChunkRef(keyed_hash(ID_KEY, raw), SIZE, SIZE, FORM_RAW, 0, n, len(sealed))
        about = packs.aad(HEAD, packs.WHAT_CHUNK, n, FORM_RAW, SIZE, ref.id)
        sealed += AESGCM(KEY).encrypt(n.to_bytes(12, "little"), raw, about)
        refs.append(ref)
    return raws, refs, bytes(BASE) + sealed


def opened(refs: list[ChunkRef], sealed: bytes, opener: PackOpener | None = None) -> list[bytes]:
    opening = Opening(opener or PackOpener.taken_over(KEY, "p"), HEAD, ID_KEY, "p", memoryview(bytearray(SIZE)))
    return [bytes(raw) for raw in opening.chunks(refs, memoryview(sealed), BASE)]


def test_chunks_come_in_the_order_that_they_are_asked_for() -> None:
    raws, refs, sealed = sealed_chunks(3)
    assert opened([refs[2], refs[0], refs[1], refs[0]], sealed) == [raws[2], raws[0], raws[1], raws[0]]


def test_a_chunk_twice_in_a_row_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    raws, refs, sealed = sealed_chunks(2)
    positions: list[int] = []
    real = PackOpener.open_into

    def counted(self: PackOpener, position: int, *rest: memoryview) -> None:
        positions.append(position)
        real(self, position, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(PackOpener, "open_into", counted)
    assert opened([refs[0], refs[0], refs[1], refs[1]], sealed) == [raws[0], raws[0], raws[1], raws[1]]
    assert positions == [0, 1]


@pytest.mark.parametrize("wrong", [{"raw": SIZE - 1, "stored": SIZE - 1}, {"position": 1}, {"offset": 1}, {"form": 1}])
def test_one_that_has_the_id_of_the_one_before_and_says_something_else_is_refused(wrong: dict[str, int]) -> None:
    _, refs, sealed = sealed_chunks(2)
    with pytest.raises(IntegrityError):
        opened([refs[0], msgspec.structs.replace(refs[0], **wrong)], sealed)


def test_one_whose_id_is_anothers_is_refused() -> None:
    raws, refs, _ = sealed_chunks(2)
    false = msgspec.structs.replace(refs[0], id=refs[1].id)
    about = packs.aad(HEAD, packs.WHAT_CHUNK, 0, FORM_RAW, SIZE, false.id)  # by a writer who lies
    sealed = bytes(BASE) + AESGCM(KEY).encrypt(bytes(12), raws[0], about)
    with pytest.raises(IntegrityError, match="does not hash to its id"):
        opened([false], sealed)
