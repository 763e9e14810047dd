"""A second reader of the repository format, built from docs/format.md alone; imports nothing of datasync.

Promises: what it yields has passed every reader rule of that page; all else raises `Refused`, naming the object.
It reads a local directory (object name = relative path), writes nothing and keeps no memory between runs.
"""

import argparse
import os
import re
import stat
import struct
import time
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import zstandard
from blake3 import blake3
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Meta

MIB, FULL, BLOCK, ZERO = 1 << 20, 32 << 20, 1 << 16, bytes(32)
OWNER, WRITER, PUSHER, TAGGER = 1, 2, 4, 8
FAILURES = (ValueError, OSError, InvalidSignature, InvalidTag, msgspec.MsgspecError, zstandard.ZstdError)
MARKER = (  # section 3
    rb'{"created":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ","format":"datasync","hash":"[0-9a-f]{64}",'
    rb'"naming":"(numbered|hashed)","repository":"[0-9a-f]{32}","version":1}\n'
)
HEADER = struct.Struct("<8s4BI32s32s32sI")  # section 8: magic … sealed key length

U = Annotated[int, Meta(ge=0)]
Epoch = Annotated[int, Meta(ge=1, le=65535)]
Mode = Annotated[int, Meta(ge=0, le=0o7777)]
Length = Annotated[int, Meta(ge=1, le=4 * MIB)]
B16 = Annotated[bytes, Meta(min_length=16, max_length=16)]
B32 = Annotated[bytes, Meta(min_length=32, max_length=32)]
B64 = Annotated[bytes, Meta(min_length=64, max_length=64)]
B80 = Annotated[bytes, Meta(min_length=80, max_length=80)]
B1168 = Annotated[bytes, Meta(min_length=1168, max_length=1168)]
B1216 = Annotated[bytes, Meta(min_length=1216, max_length=1216)]
Version = tuple[U, B32]  # number and hash of a stored object
Xattrs = Annotated[list[tuple[bytes, bytes]], Meta(max_length=256)]
Signed = tuple[bytes, Annotated[list[tuple[B32, B64]], Meta(min_length=1, max_length=64)]]
Principal = tuple[B32, Annotated[int, Meta(ge=0, le=31)], bytes, U, U, Version | None]
Principals = Annotated[list[Principal], Meta(max_length=4096)]
Trust = tuple[U, B32, B32, U, U, Annotated[int, Meta(ge=1, le=64)], Principals]
Slot = tuple[B16, U, Literal[1, 2], Epoch, bytes, bytes, bytes, bytes, U, U, B32]
Slots = Annotated[list[Slot], Meta(max_length=4096)]
Chain, Public = list[tuple[Epoch, bytes, bytes]], list[tuple[B1216, B1216]]
Keyset = tuple[B32, U, B32, Version, U, Literal[1], Epoch, bytes, Chain, Public, Slots]
Memory = Annotated[int, Meta(ge=1 << 16, le=1 << 22)]
Passes, Lanes = Annotated[int, Meta(ge=3, le=64)], Annotated[int, Meta(ge=1, le=16)]
PARAMS: dict[int, Any] = {1: tuple[B1168], 2: tuple[B80], 3: tuple[B32, Memory, Passes, Lanes]}  # by kind of slot


class Refused(Exception):
    """The object *name* breaks a rule of the format: *why*."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name, self.why = name, why


@contextmanager
def refusing(name: str) -> Iterator[None]:
    try:
        yield
    except FAILURES as error:
        raise Refused(name, str(error) or f"authentication failed ({type(error).__name__})") from error


def check(holds: object, why: str) -> None:
    if not holds:
        raise ValueError(why)


def ascending(values: Iterable[Any]) -> bool:
    return all(a < b for a, b in pairwise(values))


class Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A structure whose fields are decoded, and refused, by their types."""


class PackRef(Record, frozen=True):
    id: B32
    size: Annotated[int, Meta(ge=BLOCK, le=FULL)]
    source: int
    epoch: Epoch
    salt: B32
    commitment: B32
    sealed: bytes


class Reference(Record, frozen=True):
    id: B32
    raw: Length
    stored: Length
    form: Literal[0, 1]
    pack: U
    position: U
    offset: U


class ListRef(Reference, frozen=True):
    bytes: U


class PageRef(Reference, frozen=True):
    entries: U
    bytes: U
    first: bytes


class Entry(Record, frozen=True):
    path: Annotated[bytes, Meta(max_length=65535)]
    kind: Literal[1, 2, 3]
    mode: Mode
    mtime_ns: int
    size: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    xattrs: Xattrs
    target: Annotated[bytes, Meta(max_length=65535)]
    link: bytes
    chunks: Annotated[list[Reference], Meta(max_length=1024)]
    holes: Annotated[list[tuple[U, Length]], Meta(max_length=16384)]
    lists: list[ListRef]

    def __post_init__(self) -> None:
        rules = {
            "path": b"\0" not in self.path and all(0 < len(p) < 256 for p in self.path.split(b"/")),
            "path, has a dot component": not {b".", b".."} & set(self.path.split(b"/")),
            "size": self.kind == 1 or not (self.size or self.holes or self.chunks or self.lists),
            "target": (self.kind == 3) == bool(self.target) and b"\0" not in self.target,
            "link": not self.link or (len(self.link) == 32 and self.kind != 2),
            "holes": all(a + n < b for (a, n), (b, _) in pairwise(self.holes)),
            "holes, pass the end": not self.holes or sum(self.holes[-1]) <= self.size,
            "chunks, has lists too": not (self.chunks and self.lists),
        }
        check(all(rules.values()), f"{self.path!r}: wrong {', '.join(k for k, v in rules.items() if not v)}")
        check_xattrs(self.xattrs)
        covered = sum(c.raw for c in self.chunks) + sum(ref.bytes for ref in self.lists)
        check(covered == self.size - sum(n for _, n in self.holes), f"{self.path!r}: chunks do not fill the file")
        deque(self.place(self.chunks), 0)
