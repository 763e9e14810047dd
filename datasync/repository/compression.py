"""zstd (RFC 8878) per chunk, kept only when it pays (docs/format.md, section 8).

Thread-safe: each thread has its own contexts.
"""

import threading

import zstandard

from datasync.errors import FormatError, IntegrityError
from datasync.model.entries import FORM_RAW, FORM_ZSTD

LEVEL = 3
PROBE_LEVEL = 1  # its tables stay in a core's cache: half the time of the other one for a sample
WORTH = 0.97  # keep zstd when the result has at most this share of the raw length
PROBE_BYTES = 4 * 1024  # incompressible data is found out on samples of this size
PROBE_FROM_BYTES = 16 * 1024  # smaller chunks are just tried

Buffer = bytes | bytearray | memoryview


class _Contexts(threading.local):
    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL)
        self.prober = zstandard.ZstdCompressor(level=PROBE_LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _Contexts()


def compress(raw: Buffer) -> tuple[int, Buffer]:
    """Return (form, stored bytes) of *raw*, which are *raw* itself where zstd saves less than 3 %."""
    limit = int(len(raw) * WORTH)
    if len(raw) >= PROBE_FROM_BYTES and not _sample_shrinks(memoryview(raw)):
        return FORM_RAW, raw
    packed = _contexts.compressor.compress(raw)
    return (FORM_ZSTD, packed) if len(packed) <= limit else (FORM_RAW, raw)


def _sample_shrinks(raw: memoryview) -> bool:
    middle = len(raw) // 2
    for start in (0, middle):
        sample = raw[start : start + PROBE_BYTES]
        if len(_contexts.prober.compress(sample)) <= len(sample) * WORTH:
            return True
    return False


def decompress(form: int, stored: Buffer, raw_length: int, what: str) -> Buffer:
    """Return the raw bytes of *stored*; memory is bounded by *raw_length*, any other length is refused."""
    if form == FORM_RAW:
        if len(stored) != raw_length:
            raise FormatError(f"{what}: expected {raw_length} raw bytes, found {len(stored)}")
        return stored
    if form != FORM_ZSTD:
        raise FormatError(f"{what}: unknown form {form}")
    try:
        if zstandard.frame_content_size(stored) != raw_length:
            raise FormatError(f"{what}: the zstd frame does not hold {raw_length} bytes")
        raw = _contexts.decompressor.decompress(stored, max_output_size=raw_length, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise IntegrityError(f"{what}: does not decompress: {error}") from None
    if len(raw) != raw_length:
        raise FormatError(f"{what}: expected {raw_length} bytes after decompression, found {len(raw)}")
    return raw
