"""MessagePack with one encoding per value, and padded sizes (docs/format.md, section 2)."""

from typing import Annotated, Any, TypeVar

import msgspec

from datasync.errors import FormatError
from datasync.model.limits import KIB

U8 = Annotated[int, msgspec.Meta(ge=0, le=2**8 - 1)]
U16 = Annotated[int, msgspec.Meta(ge=0, le=2**16 - 1)]
U32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
U63 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Id = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
PADDED_FLOOR_BYTES = 64 * KIB

Value = TypeVar("Value")


class Record(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Base of every structure: an array of exactly its fields."""


def encode(value: Any) -> bytes:
    """Return the one encoding of *value*."""
    return msgspec.msgpack.encode(value)


def decode(kind: type[Value], data: bytes | bytearray | memoryview, what: str, decoder: Any = None) -> Value:
    """Return the value in *data*; refuse anything that is not its one encoding."""
    try:
        value: Value = (decoder or msgspec.msgpack.Decoder(kind)).decode(data)
        again = msgspec.msgpack.encode(value)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise FormatError(f"{what}: does not parse: {error}") from None
    if again != data:
        raise FormatError(f"{what}: expected the one encoding of its value, found another")
    return value


def padme(length: int) -> int:
    """Return the padded size of *length* bytes: PURBs' Padmé with a floor of 64 KiB (Nikitin et al., PETS 2019)."""
    if length <= PADDED_FLOOR_BYTES:
        return PADDED_FLOOR_BYTES
    exponent = length.bit_length() - 1
    step = 1 << (exponent - exponent.bit_length())
    return -(-length // step) * step
