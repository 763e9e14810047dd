"""One AES-GCM ciphertext that is authentic under two keys: why a key commitment is required.

GHASH is linear in each block, so one free block makes the tags of two keys equal (NIST SP 800-38D, section 6). The
nonce is 12 zero bytes and there is no associated data, as in a box.
"""

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

_BLOCK = 16
_POLYNOMIAL = 0xE1 << 120  # x^128 + x^7 + x^2 + x + 1, the first bit is the coefficient of x^0
_ONE = 1 << 127


def _product(left: int, right: int) -> int:
    result = 0
    for bit in range(127, -1, -1):
        if right >> bit & 1:
            result ^= left
        left = (left >> 1) ^ (_POLYNOMIAL if left & 1 else 0)
    return result


def _power(base: int, exponent: int) -> int:
    result = _ONE
    while exponent:
        if exponent & 1:
            result = _product(result, base)
        base = _product(base, base)
        exponent >>= 1
    return result


def _encrypt(key: bytes, block: bytes) -> int:
    encryptor = Cipher(AES(key), ECB()).encryptor()  # one block each: the hash key and the tag's mask
    return int.from_bytes(encryptor.update(block) + encryptor.finalize(), "big")


def _tag(key: bytes, blocks: list[int]) -> int:
    hash_key, state = _encrypt(key, bytes(_BLOCK)), 0
    for block in (*blocks, len(blocks) * _BLOCK * 8):
        state = _product(state ^ block, hash_key)
    return state ^ _encrypt(key, bytes(12) + b"\0\0\0\1")


def two_key_ciphertext(first: bytes, second: bytes, ciphertext: bytes) -> bytes:
    """Return *ciphertext* (whole blocks), one block and a tag, authentic under both AES keys."""
    blocks = [int.from_bytes(ciphertext[at : at + _BLOCK], "big") for at in range(0, len(ciphertext), _BLOCK)]
    difference = _tag(first, [*blocks, 0]) ^ _tag(second, [*blocks, 0])
    weight = _power(_encrypt(first, bytes(_BLOCK)), 2) ^ _power(_encrypt(second, bytes(_BLOCK)), 2)
    free = _product(difference, _power(weight, 2**128 - 2))  # the last block is hashed twice; the inverse is a power
    made = [*blocks, free]
    return b"".join(block.to_bytes(_BLOCK, "big") for block in (*made, _tag(first, made)))
