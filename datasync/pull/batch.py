"""What a transfer and its worker processes say to each other: MessagePack with a length before it, over a socket.

First `Start`, then a `Batch` for each range that has small files, each answered by one `Done`. A closed socket is the
end. Bytes come from our own process, so they are trusted; `read` raises `EOFError` at the end.
"""

import socket
import struct
from typing import BinaryIO, TypeVar

import msgspec

UP = b"+"  # a worker's first word, before it is asked anything
_LENGTH = struct.Struct("<Q")

Placed = tuple[bytes, bytes]
"""A file's id, and its packed extents (`datasync.cache.sums`)."""


class Start(msgspec.Struct, array_like=True, frozen=True):
    """What all batches have in common."""

    id_key: bytes
    reflinks: bool


class Batch(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Small files of one pack, as a `Job` has them; their chunks lie in the shared memory from `base` on (offsets in
    the pack are added to it).
    """

    name: str
    key: bytes
    head: bytes
    base: int
    small: bytes


class Done(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What was placed, or the class and message of the error that stopped it."""

    placed: list[Placed]
    files: int
    bytes: int
    error: str = ""
    message: str = ""


Message = TypeVar("Message", Start, Batch, Done)


def write(connection: socket.socket, message: Start | Batch | Done) -> None:
    """Send *message*."""
    body = msgspec.msgpack.encode(message)
    connection.sendall(_LENGTH.pack(len(body)) + body)


def read(file: BinaryIO, type_: type[Message]) -> Message:
    """Return the next message from *file*, the buffered reading side of a socket."""
    head = file.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (size,) = _LENGTH.unpack(head)
    body = file.read(size)
    if len(body) < size:
        raise EOFError
    return msgspec.msgpack.decode(body, type=type_)
