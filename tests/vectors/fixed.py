"""What all vectors share: fixed keys and times, randomness by the letter, and HPKE ciphertexts that were made once.

HPKE takes its randomness from the library, so its ciphertexts are kept in hpke.json: a run opens what is kept and adds
only what is missing.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from blake3 import blake3

from datasync.crypto.kdf import EpochKeys
from datasync.crypto.recipients import HYBRID, KeyPair, Recipient
from datasync.crypto.signatures import SigningKey
from tests.vectors.notation import to_bytes, to_text

FOLDER = Path(__file__).parent
TIME = 1_800_000_000_000  # ms
DAY = 86_400_000
_SEAL = Recipient.seal  # the real one, while another stands in for it


def xof(label: str, length: int = 32) -> bytes:
    """Return *length* bytes that belong to *label* for ever."""
    made: bytes = blake3(b"datasync/v1/vectors/" + label.encode()).digest(length=length)
    return made


OWNER = SigningKey(xof("owner"))
SECOND = SigningKey(xof("second owner"))
WRITER = SigningKey(xof("writer"))
TAGGER = SigningKey(xof("tagger"))
READER_SEED = xof("reader", 96)
READER = KeyPair(READER_SEED)
EPOCHS = {epoch: EpochKeys.from_root(epoch, xof(f"root {epoch}")) for epoch in (1, 2)}


@contextmanager
def randomness(label: str) -> Iterator[list[bytes]]:
    """Make every random value inside a block one of *label*; yield the list of them as they are taken.

    The order of chunks in a pack is reversed.
    """
    taken: list[bytes] = []

    def take(count: int = 32) -> bytes:
        taken.append(xof(f"{label}/{len(taken)}", count))
        return taken[-1]

    names = ("crypto.aead.random_bytes", "crypto.slots.random_bytes", "crypto.slots.random_key")
    with ExitStack() as stack:
        for name in (*names, "repository.packs.random_bytes"):
            stack.enter_context(patch(f"datasync.{name}", take))
        stack.enter_context(patch("datasync.repository.packs.shuffle", lambda count: list(range(count))[::-1]))
        yield taken


class KeptSeals:
    """HPKE ciphertexts by (recipient, info, plaintext); `missing` counts those that had to be made."""

    def __init__(self, path: Path = FOLDER / "hpke.json") -> None:
        kept = json.loads(path.read_text(encoding="ascii"))["cases"] if path.is_file() else []
        self._kept = {(case["kem"], case["seed"], case["info"], case["plaintext"]): case for case in kept}
        self.cases: list[dict[str, Any]] = []
        self.missing = 0

    def seal(self, name: str, kem: str, seed: bytes, plaintext: bytes, info: bytes) -> bytes:
        """Return the kept ciphertext of *plaintext*, which the key pair of *seed* opens."""
        key = kem, to_text(seed), to_text(info), to_text(plaintext)
        pair = KeyPair(seed)
        if key in self._kept:
            sealed = to_bytes(self._kept[key]["sealed"])
        else:
            self.missing += 1
            sealed = _SEAL(_recipient(pair, kem), plaintext, info)
        if pair.open(kem, sealed, info) != plaintext:
            raise AssertionError(f"hpke.json: {name} opens to another text")
        fields = zip(("kem", "seed", "info", "plaintext"), key, strict=True)
        self._kept[key] = {"name": name, **dict(fields), "sealed": to_text(sealed)}
        self.cases.append(self._kept[key])
        return sealed

    @contextmanager
    def replacing(self, name: str, seed: bytes) -> Iterator[None]:
        """Let `Recipient.seal` return kept ciphertexts for the key pair of *seed*."""

        def seal(recipient: Recipient, plaintext: bytes, info: bytes) -> bytes:
            return self.seal(name, recipient.kem, seed, plaintext, info)

        with patch.object(Recipient, "seal", seal):
            yield


def _recipient(pair: KeyPair, kem: str) -> Recipient:
    return pair.recipient if kem == HYBRID else pair.x25519_recipient
