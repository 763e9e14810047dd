"""One AES-GCM ciphertext that is valid under two keys (Dodis, Grubbs, Ristenpart, Woodage, "Fast Message Franking",
CRYPTO 2018): what AES-GCM alone allows, and a key commitment does not.

The tag is a polynomial in H = AES_K(0) over GF(2^128), plus AES_K(nonce | 1). One block of the ciphertext is solved so
that both keys give the same tag (NIST SP 800-38D has the field and the order of bits).
"""

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB

BLOCK = 16
_R = 0xE1 << 120
NONCE = bytes(12)


def _aes(key: bytes, block: bytes) -> int:
    encryptor = Cipher(AES256(key), ECB()).encryptor()  # one block: what GCM computes
    return int.from_bytes(encryptor.update(block), "big")


def _multiply(x: int, y: int) -> int:
    product = 0
    for bit in range(127, -1, -1):
        if y >> bit & 1:
            product ^= x
        x = x >> 1 ^ (_R if x & 1 else 0)
    return product


def _power(x: int, exponent: int) -> int:
    result = 1 << 127
    while exponent:
        if exponent & 1:
            result = _multiply(result, x)
        x, exponent = _multiply(x, x), exponent >> 1
    return result


def _blocks(data: bytes) -> list[int]:
    padded = data + bytes(-len(data) % BLOCK)
    return [int.from_bytes(padded[at : at + BLOCK], "big") for at in range(0, len(padded), BLOCK)]


def _tag(key: bytes, blocks: list[int]) -> int:
    h, total = _aes(key, bytes(BLOCK)), 0
    for block in blocks:
        total = _multiply(total ^ block, h)
    return total ^ _aes(key, NONCE + b"\0\0\0\1")


def collide(first: bytes, second: bytes, aad: bytes, count: int) -> bytes:
    """Return ciphertext and tag of *count* blocks that AES-256-GCM opens under both keys, with *aad* and nonce 0."""
    body = [int.from_bytes(bytes((number + 1,)) * BLOCK, "big") for number in range(count - 1)]
    lengths = (8 * len(aad)) << 64 | 8 * BLOCK * count
    blocks = [*_blocks(aad), *body, 0, lengths]
    difference = _tag(first, blocks) ^ _tag(second, blocks)
    factor = _power(_aes(first, bytes(BLOCK)), 2) ^ _power(_aes(second, bytes(BLOCK)), 2)  # of the block before lengths
    body.append(_multiply(difference, _power(factor, 2**128 - 2)))
    tag = _tag(first, [*_blocks(aad), *body, lengths])
    return b"".join(block.to_bytes(BLOCK, "big") for block in [*body, tag])
