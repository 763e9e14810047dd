"""A second reader of the repository format, built from docs/format.md alone; imports nothing of datasync.

Promises: what it yields has passed the reader rules of that page; all else raises `Refused`, naming the object.
"""

import argparse
import errno
import os
import re
import stat
import struct
import time
import tomllib
import unicodedata
from collections import namedtuple
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from itertools import accumulate, chain, pairwise
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any

import zstandard
from blake3 import blake3
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric import ed25519, mlkem, x25519
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Meta, msgpack


def shape(of: Any) -> Any:
    """Return a type to decode: (exactly these), [any number of this, at most], a range of integers, n bytes."""
    match of:
        case range():
            return Annotated[int, Meta(ge=of.start, le=of.stop - 1)]
        case tuple():
            return GenericAlias(tuple, tuple(map(shape, of)))
        case [item, *most]:
            return Annotated[GenericAlias(list, shape(item)), Meta(max_length=most[0] if most else None)]
        case int():
            return Annotated[bytes, Meta(min_length=of, max_length=of)]
    return of


MIB, FULL, BLOCK, ZERO = 1 << 20, 32 << 20, 1 << 16, bytes(32)
OWNER, WRITER, PUSHER, TAGGER = 1, 2, 4, 8
HEADER = struct.Struct("<8s4BI32s32s32sI")  # of a pack: magic … length of the sealed key
U, EPOCH, LENGTH, MODE = range(1 << 63), range(1, 65536), range(1, 4 * MIB + 1), range(0o10000)
XATTRS: list[Any] = [(bytes, bytes), 256]
VERSION, PACKS = (U, 32), [(32, range(FULL + 1), range(1, 3), EPOCH, 32, 32, bytes)]
REF = (32, LENGTH, LENGTH, range(2), U, U, U)
SIGNED = shape((bytes, [(32, 64), 64]))
TRUST = shape((U, 32, 32, U, U, range(1, 65), [(32, range(32), bytes, U, U, shape(VERSION) | None), 4096]))
SLOT = (16, range(256), range(1, 3), EPOCH, bytes, bytes, bytes, bytes, U, U, 32)
KEYSET = shape(
    (32, U, 32, VERSION, U, range(1, 2), EPOCH, bytes, [(EPOCH, bytes, bytes)], [(1216, 1216)], [SLOT, 4096])
)
ARGON2 = (32, range(65536, 4194305), range(3, 65), range(1, 17))
PARAMS = {1: shape((1168,)), 2: shape((80,)), 3: shape(ARGON2)}  # by kind of slot
ENTRY = (bytes, range(1, 4), MODE, int, U, XATTRS, bytes, bytes, [REF, 1024], [(U, U), 16384], [(*REF, U)])
PAGE, CHUNKS = shape((range(1, 2), PACKS, [ENTRY])), shape((range(2, 3), PACKS, [REF]))
PAGES = shape((PACKS, [(*REF, U, U, bytes)]))
SNAPSHOT = (32, U, 32, U, EPOCH, VERSION, VERSION, (str, bytes, str, 16), str, str, str, bytes, (MODE, int, XATTRS))
CONTROL = {  # pack type, kind of signature, body
    "snapshots": (3, "snapshot", shape((*SNAPSHOT, (U,) * 7, 32, [32, 7]))),
    "heads": (4, "head", shape((32, U, 32, U, 32, U, U))),
    "tags": (5, "tags", shape((32, U, 32, U, [(str, bytes)]))),
    "relocations": (6, "relocation", shape((32, U, 32, U, EPOCH, [32]))),
    "forgotten": (9, "forgotten", shape((32, U, 32, U, [32]))),
}
GONE, EMPTIED = shape(([(range(1, 1 << 63), 32, bytes)],)), shape(([32, 65536],))
MOVED = shape((PACKS, [(32, LENGTH, range(2), U, U, U)]))
TAG = shape((32, str, U, 32, U))
MARKER = (
    rb'{"created":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ","format":"datasync","hash":"[0-9a-f]{64}",'
    rb'"naming":"(numbered|hashed)","repository":"[0-9a-f]{32}","version":1}\n'
)
Reference = namedtuple("Reference", "id raw stored form pack position offset covers bytes first", defaults=(0, 0, b""))
Entry = namedtuple("Entry", "path kind mode mtime_ns size xattrs target link chunks holes lists")
Pieces = Iterator[tuple[int, bytes]]  # (offset, bytes) of a file in order; what is between them is holes


class Refused(Exception):
    """The object *name* breaks a rule of the format: *why*."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name, self.why = name, why


@contextmanager
def refusing(name: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError, InvalidSignature, InvalidTag, zstandard.ZstdError) as error:
        raise Refused(name, str(error) or type(error).__name__) from error


def check(holds: object, why: str) -> None:
    if not holds:
        raise ValueError(why)


def digest(data: bytes, key: bytes | None = None) -> bytes:
    return (blake3(data, key=key) if key else blake3(data)).digest()


def hkdf(key: bytes, info: bytes, length: int = 32, salt: bytes = b"") -> bytes:
    return HKDF(algorithm=SHA512(), length=length, salt=salt, info=b"datasync/v1/" + info).derive(key)


def padme(size: int) -> int:
    exponent = size.bit_length() - 1
    unit = 1 << (exponent - exponent.bit_length())
    return max(BLOCK, -(-size // unit) * unit)


def ascending(values: Iterable[Any]) -> bool:
    return all(a < b for a, b in pairwise(values))


def parse(data: bytes, fields: Any) -> Any:
    value = msgpack.decode(data, type=fields)
    check(msgpack.encode(value) == data, "not the one MessagePack encoding")
    return value


def open_signed(data: bytes, kind: str) -> tuple[bytes, set[bytes]]:
    """Return the body and its signers; every listed signature is valid."""
    body, signatures = parse(data, SIGNED)
    check(signatures and ascending(signer for signer, _ in signatures), "signatures not in order")
    for signer, signature in signatures:
        message = f"datasync/v1/sign/{kind}\0".encode() + body
        ed25519.Ed25519PublicKey.from_public_bytes(signer).verify(signature, message)
    return body, {signer for signer, _ in signatures}


def open_plain(data: bytes, kind: int) -> tuple[bytes, set[bytes]]:
    check(data[:12] == b"DSYNPLN1" + bytes([kind, 0, 0, 0]), "wrong header of a plain object")
    end = 16 + int.from_bytes(data[12:16], "little")
    check(end <= 16 + 16 * MIB and len(data) == padme(end), "wrong payload length or padded size")
    check(not data[end:].strip(b"\0"), "padding is not zero")
    return open_signed(data[16:end], ("trust", "keyset")[kind - 1])


def committed(key: bytes, info: bytes, salt: bytes, commitment: bytes) -> AESGCM:
    keys = hkdf(key, info, 64, salt)
    check(keys[32:] == commitment, "key commitment does not match")
    return AESGCM(keys[:32])


def open_box(box: bytes, key: bytes, label: str, context: bytes) -> bytes:
    aead = committed(key, f"box/{label}\0".encode() + context, box[:32], box[32:64])
    return aead.decrypt(bytes(12), box[64:], b"")


def key_pair(secret: bytes) -> tuple[Any, bytes, hpke.KEM]:
    """Return private key, public key and KEM: X-Wing of 96 bytes (ML-KEM seed, X25519), X25519 of 32."""
    second = x25519.X25519PrivateKey.from_private_bytes(secret[-32:])
    public = second.public_key().public_bytes_raw()
    if len(secret) == 32:
        return second, public, hpke.KEM.X25519
    first = mlkem.MLKEM768PrivateKey.from_seed_bytes(secret[:64])
    public = first.public_key().public_bytes_raw() + public
    return hpke.MLKEM768X25519PrivateKey(first, second), public, hpke.KEM.MLKEM768_X25519


def open_hpke(sealed: bytes, secret: bytes, info: bytes) -> bytes:
    private, _, kem = key_pair(secret)
    suite = hpke.Suite(kem, hpke.KDF.HKDF_SHA512, hpke.AEAD.AES_256_GCM)
    key = suite.decrypt(sealed, private, b"datasync/v1/" + info)
    check(len(key) == 32, "not a 32-byte key")
    return key


def check_title(title: str) -> None:
    plain = not any(c in "@:/" or unicodedata.category(c) == "Cc" for c in title)
    check(plain and 1 <= len(title) <= 128 and title not in (".", "..") and title[0] != "-", "forbidden name")


def check_xattrs(xattrs: list[tuple[bytes, bytes]]) -> None:
    size = sum(len(key) + len(value) for key, value in xattrs)
    check(ascending(key for key, _ in xattrs) and size <= 65536, "extended attributes too large or not in order")


def resolve(packs: list[Any], items: list[Any]) -> Iterator[Any]:
    """Yield the references with their pack's; the lengths in them are sound."""
    for item in items:
        check(item[2] < item[1] if item[3] else item[2] == item[1], "wrong lengths in a reference")
        yield Reference(**dict(zip(Reference._fields, (*item[:4], packs[item[4]], *item[5:]), strict=False)))


def check_packs(packs: list[Any], items: Iterable[Any]) -> None:
    check(list(dict.fromkeys(r[4] for r in items)) == list(range(len(packs))), "packs not in order of first use")
    check(len({pack[0] for pack in packs}) == len(packs), "a pack is listed twice")


def place(entry: Any, chunks: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield each chunk with its file offset; they fill what is not holes, and none spans a hole."""
    marks, at, end = [0, *(m for o, n in entry.holes for m in (o, o + n)), entry.size], 0, 0
    extents = iter([e for e in zip(marks[::2], marks[1::2], strict=True) if e[0] < e[1]])
    for chunk in chunks:
        at, end = next(extents, (at, end)) if at == end else (at, end)
        check(at + chunk.raw <= end, "a chunk passes the end of its extent")
        yield at, chunk
        at += chunk.raw
    check(at == end and not next(extents, None), "the chunks do not fill the file")


def check_entry(e: Any) -> None:
    parts, holes = e.path.split(b"/"), sum(length for _, length in e.holes)
    check(all(0 < len(p) < 256 and p not in (b".", b"..") for p in parts) and len(e.path) < BLOCK, "wrong path")
    check(b"\0" not in e.path + e.target and len(e.target) < BLOCK and (e.kind == 3) == bool(e.target), "wrong target")
    check(e.kind == 1 or not (e.size or e.holes or e.chunks or e.lists), "content of what is not a file")
    check(len(e.link) in ((0,) if e.kind == 2 else (0, 32)), "wrong link")
    apart = all(a + n < b for (a, n), (b, _) in pairwise(e.holes)) and all(n for _, n in e.holes)
    check(apart and sum(e.holes[-1] if e.holes else ()) <= e.size, "wrong holes")
    check_xattrs(e.xattrs)
    check(not e.lists or (not e.chunks and sum(r.covers for r in e.lists) + holes == e.size), "wrong lists")
    if not e.lists:
        list(place(e, e.chunks))


class Pack:
    """A sealed object: header, footer and padding are checked now, each chunk when it is asked for."""

    def __init__(self, data: bytes, dataset: "Dataset", kind: int) -> None:
        check(BLOCK <= len(data) <= FULL, "not the size of a pack")
        *fixed, source, self.epoch, id, salt, commitment, sealed = HEADER.unpack_from(data)
        check((*fixed, id) == (b"DSYNPACK", 1, 1, kind, dataset.id), "wrong magic, version, suite, type or dataset")
        check((source, sealed) in ((1, 0), (2, 1168)), "wrong key source or length of the sealed key")
        key = (dataset.data if kind == 1 else dataset.meta).get(self.epoch, b"")
        check(key, f"no key for epoch {self.epoch}")
        self.raw, self.header = data, data[: 116 + sealed]
        if source == 2:
            key = open_hpke(self.header[116:], hkdf(key, b"key-pair", 96), b"sealed-pack\0" + data[:48])
        self.aead = committed(key, b"pack\0" + data[:48], salt, commitment)
        n, rest = divmod(int.from_bytes(data[-4:], "little") - 20, 41)
        start = len(data) - 24 - 41 * n
        check(not rest and 0 <= n <= 16384 and start >= len(self.header) + 16, "wrong footer length")
        footer = self._open(3, n + 1, start, 4 + 41 * n)
        self.chunks = list(struct.iter_unpack("<32sBII", footer[4:]))  # id, form, raw, stored
        sound = all(0 < s <= r <= 4 * MIB and form == (s < r) for _, form, r, s in self.chunks)
        self.offsets = list(accumulate((chunk[3] + 16 for chunk in self.chunks), initial=len(self.header)))
        size = start - self.offsets[n] - 16
        check(sound and size >= 0 and int.from_bytes(footer[:4], "little") == n, "wrong number, form or lengths")
        check(not self._open(2, n, self.offsets[n], size).strip(b"\0"), "padding is not zero")
        check(len(data) in (FULL, padme(len(data) - size)), "not the padded size")

    def _open(self, what: int, at: int, start: int, size: int, form: int = 0, raw: int = 0, id: bytes = ZERO) -> bytes:
        aad = self.header + struct.pack("<BIBI", what, at, form, raw or size) + id
        return self.aead.decrypt(at.to_bytes(12, "little"), self.raw[start : start + size + 16], aad)

    def chunk(self, position: int, id_key: bytes | None = None) -> bytes:
        """Return the plaintext at *position*; chunks of control objects have no id key."""
        id, form, raw, stored = self.chunks[position]
        data = self._open(1, position, self.offsets[position], stored, form, raw, id)
        if form:
            check(zstandard.frame_content_size(data) in (raw, -1), "a zstd frame of another length")
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=raw, allow_extra_data=False)
        check(len(data) == raw and digest(data, id_key) == id, f"position {position}: wrong length or id")
        return data


class Dataset:
    """One dataset, opened by its chain of trust roots, its newest keyset and one slot of that."""

    def __init__(self, directory: Path, id: bytes, identity: bytes | None, passphrase: str | None) -> None:
        self.directory, self.id, self.prefix = directory, id, f"d/{id.hex()}"
        self.data: dict[int, bytes] = {}  # keys by epoch; none for a slot that carries metadata keys alone
        self.meta: dict[int, bytes] = {}
        self.roots: list[Any] = []  # hash, threshold, principals
        self.keysets: dict[int, bytes] = {}
        self.pack = lru_cache(maxsize=6)(self._load_pack)  # at most 192 MiB
        for group, read in (("trust", self._add_root), ("keyset", self._read_keyset)):
            for n in self.numbered(group):
                name, data = self.load(group, n)
                with refusing(name):
                    read(n, data)
        with refusing(f"{self.prefix}/keyset"):
            check(self.keysets, "no keyset")
            check(self.keyset[7], "the dataset was shredded")
            self._check_owners(self.keyset_signers, *self.roots[-1][1:])
            check(not self.expires or time.time() * 1000 <= self.expires, "the newest trust root has expired")
            self._unlock(*self._open_slot(identity, passphrase))
            self.name = open_box(self.keyset[7], self.meta[self.keyset[6]], "name", id).decode()
            check_title(self.name)

    def numbered(self, group: str) -> dict[int, list[str]]:
        """Return the names in *group* by number, ascending; more than one for a number is a conflict."""
        found: dict[int, list[str]] = {}
        folder = self.directory / self.prefix / group
        for leaf in sorted((p.name for p in folder.iterdir()) if folder.is_dir() else (), reverse=True):
            name, form = f"{self.prefix}/{group}/{leaf}", re.fullmatch(r"([0-9]{20})(-[0-9a-f]{64})?", leaf)
            with refusing(name):
                check(form and int(form[1]) < 10**20 - 1, "not the name of a numbered object")
            found.setdefault(10**20 - 1 - int(leaf[:20]), []).append(name)
        return found

    def read(self, name: str) -> bytes:
        with refusing(name):
            check((self.directory / name).stat().st_size <= FULL, "larger than 32 MiB")
            data = (self.directory / name).read_bytes()
            check(name[-65] != "-" or name[-64:] == digest(data).hex(), "is not the hash in its name")
        return data

    def load(self, group: str, n: int, id: bytes | None = None) -> tuple[str, bytes]:
        names = [name for name in self.numbered(group).get(n, []) if id is None or digest(self.read(name)) == id]
        with refusing(f"{self.prefix}/{group}/{10**20 - 1 - n}"):
            check(len(names) == 1, "conflict between " + " and ".join(names) if names else "missing")
        return names[0], self.read(names[0])

    def _check_previous(self, group: str, n: int, previous: bytes) -> None:
        before = [digest(self.read(name)) for name in self.numbered(group).get(n - 1, [])]
        before += [self.forgotten[n - 1]] if group == "snapshots" and n - 1 in self.forgotten else []
        check(previous == ZERO if n == 1 else not before or previous in before, "previous does not match")

    def _check_owners(self, signers: set[bytes], threshold: int, principals: list[Any]) -> None:
        owners = {p[0] for p in principals if p[1] & OWNER and not p[5]}
        check(len(owners & signers) >= threshold, "fewer owners have signed than the threshold")

    def _add_root(self, n: int, data: bytes) -> None:
        body, signers = open_plain(data, 1)
        version, dataset, previous, _, self.expires, threshold, principals = parse(body, TRUST)
        check(version == n == len(self.roots) + 1, "version is not the name's, or one is missing before it")
        before = (self.id, self.roots[-1][0]) if self.roots else (ZERO, ZERO)
        check((dataset, previous) == before, "dataset id or previous does not match")
        check(n > 1 or digest(data) == self.id, "is not the dataset's id")
        check(ascending(p[0] for p in principals), "principals not in order")
        self.roots.append((digest(data), threshold, principals))
        self._check_owners(signers, *self.roots[max(n - 2, 0)][1:])

    def _read_keyset(self, n: int, data: bytes) -> None:
        body, signers = open_plain(data, 2)
        self.keyset = parse(body, KEYSET)
        dataset, version, previous, trust, _, _, epoch, _, wrapped, public, slots = self.keyset
        check((dataset, version) == (self.id, n), "wrong dataset id or version")
        self._check_previous("keyset", n, previous)
        self._check_owners(signers, *self._root(trust)[1:])
        self.keyset_signers = signers
        self.keysets[n] = digest(data)
        if not self.keyset[7]:
            check(n > 1 and not (wrapped or public or slots), "not the last keyset of a shredded dataset")
            return
        check([w[0] for w in wrapped] == list(range(1, epoch)) and len(public) == epoch, "wrong number of epochs")
        check(ascending(slot[0] for slot in slots), "slots not in order")
        for _, kind, _, at, _, fingerprint, params, *_ in slots:
            check(at <= epoch and len(fingerprint) == {1: 32, 2: 32, 3: 0}.get(kind, len(fingerprint)), "wrong slot")
            if kind in PARAMS:
                parse(params, PARAMS[kind])

    def _root(self, version: tuple[int, bytes]) -> Any:
        n, stored = version
        check(1 <= n <= len(self.roots) and self.roots[n - 1][0] == stored, "names a trust root that is not stored")
        return self.roots[n - 1]

    def _open_slot(self, identity: bytes | None, phrase: str | None) -> tuple[bytes, int]:
        """Return the key that the widest slot of the current epoch carries, and its scope."""
        secrets = {1: identity, 2: identity[64:]} if identity else {}
        for id, kind, scope, epoch, _, fingerprint, params, wrapped, *_ in sorted(self.keyset[10], key=lambda s: s[2]):
            binding, key = self.id + struct.pack("<I16sBB", epoch, id, kind, scope), b""
            if epoch == self.keyset[6] and kind in secrets and digest(key_pair(secrets[kind])[1]) == fingerprint:
                key = open_hpke(parse(params, PARAMS[kind])[0], secrets[kind], b"slot\0" + binding)
                return open_box(wrapped, key, "slot-key", binding), scope
            if epoch == self.keyset[6] and kind == 3 and phrase is not None:
                salt, memory, passes, lanes = parse(params, PARAMS[3])
                argon2 = Argon2id(salt=salt, length=32, iterations=passes, lanes=lanes, memory_cost=memory)
                key = argon2.derive(unicodedata.normalize("NFC", phrase).encode())
                with suppress(ValueError):  # another passphrase than this slot's
                    return open_box(wrapped, key, "slot-key", binding), scope
        raise ValueError("no slot of the current epoch opens with the given secrets")

    def _unlock(self, carried: bytes, scope: int) -> None:
        """Derive or unwrap every epoch's keys, newest first, and compare the public ones."""
        root, meta = (carried, hkdf(carried, b"metadata")) if scope == 1 else (b"", carried)
        for epoch in range(self.keyset[6], 0, -1):
            check(len(meta) == 32 and len(root) == (32 if scope == 1 else 0), "not a 32-byte key")
            check(not root or meta == hkdf(root, b"metadata"), f"epoch {epoch}: another metadata key")
            self.meta[epoch] = meta
            self.data |= {epoch: hkdf(root, b"data")} if root else {}
            for key, public in zip((self.data.get(epoch), meta), self.keyset[9][epoch - 1], strict=True):
                check(not key or key_pair(hkdf(key, b"key-pair", 96))[1] == public, f"epoch {epoch}: other public key")
            if epoch > 1:
                _, wrapped_root, wrapped_meta = self.keyset[8][epoch - 2]
                context = self.id + struct.pack("<I", epoch - 1)
                meta = open_box(wrapped_meta, hkdf(meta, b"metadata-chain"), "metadata-chain", context)
                root = open_box(wrapped_root, hkdf(root, b"chain"), "chain", context) if root else b""

    def authorize(self, signers: set[bytes], roles: int, seq: int = 0, id: bytes = b"") -> None:
        """Refuse unless one signer has one of *roles*; a removed one only up to its last snapshot."""
        for signer, held, _, _, _, removed in self.roots[-1][2]:
            past = removed and (seq > removed[0] or (seq == removed[0] and id != removed[1]))
            if signer in signers and held & roles and not past:
                return
        raise ValueError("not signed by anyone with the role for it")

    def control(self, group: str, n: int, id: bytes | None = None) -> tuple[str, Pack, Any, set[bytes]]:
        name, data = self.load(group, n, id)
        kind, label, fields = CONTROL[group]
        with refusing(name):
            pack = Pack(data, self, kind)
            check(pack.chunks, "no chunk")
            body, signers = open_signed(pack.chunk(0), label)
            found = parse(body, fields)
            check(found[:2] == (self.id, n), "another dataset's, or another number than in its name")
            self._check_previous(group, n, found[2])
            lists = found[-1] if group in ("snapshots", "relocations", "forgotten") else []
            check([chunk[0] for chunk in pack.chunks[1:]] == lists, "chunks are not those that its body lists")
        return name, pack, found, signers

    def snapshots(self) -> "list[Snapshot]":
        return [Snapshot(self, n) for n in self.numbered("snapshots") if n not in self.forgotten]

    @cached_property
    def forgotten(self) -> dict[int, bytes]:
        """Return the seq and id of each forgotten snapshot; every object of the series counts, the newest vouches."""
        gone: dict[int, bytes] = {}
        found = self.numbered("forgotten")
        for n in found:
            name, pack, _, signers = self.control("forgotten", n)
            with refusing(name):
                check(n == 1 or n - 1 in found, "the object before it is missing")
                owners = {p[0] for p in self.roots[-1][2] if p[1] & OWNER and (n < max(found) or not p[5])}
                check(owners & signers, "not signed by an owner")
                for position in range(1, len(pack.chunks)):
                    (rows,) = parse(pack.chunk(position), GONE)
                    check(rows and ascending(row[:2] for row in rows), "forgotten snapshots not in order")
                    for seq, id, header in rows:
                        body, writers = open_signed(header, "snapshot")
                        fields = parse(body, CONTROL["snapshots"][2])
                        check(fields[:2] == (self.id, seq) and len(writers) == 1, "another snapshot's header")
                        gone.setdefault(seq, id)
        return gone

    def head(self) -> "Snapshot | None":
        """Return the snapshot that the newest head names; None before the first."""
        if not (found := self.numbered("heads")):
            return None
        name, _, (*_, seq, id, _, expires), signers = self.control("heads", max(found))
        with refusing(name):
            self.authorize(signers, WRITER | PUSHER, seq, id)
            check(time.time() * 1000 <= expires, "the newest head has expired")
        return Snapshot(self, seq, id)

    def tags(self) -> dict[str, tuple[int, bytes]]:
        """Return the seq and snapshot id of each tag."""
        tags: dict[str, tuple[int, bytes]] = {}
        if found := self.numbered("tags"):
            name, _, (*_, table), signers = self.control("tags", max(found))
            with refusing(name):
                self.authorize(signers, OWNER | WRITER | TAGGER)
                check(ascending(title for title, _ in table), "tags not in order")
                for title, assignment in table:
                    check_title(title)
                    body, signers = open_signed(assignment, "tag")
                    dataset, assigned, seq, id, _ = parse(body, TAG)
                    check((dataset, assigned) == (self.id, title), f"tag {title!r}: another's assignment")
                    self.authorize(signers, OWNER | WRITER | TAGGER, seq, id)
                    tags |= {title: (seq, id)} if seq else {}
        return tags

    @cached_property
    def moved(self) -> dict[bytes, Any]:
        """Return where chunks lie that were sealed again; `emptied` are the packs that nothing is in any more."""
        found: dict[bytes, Any] = {}
        self.emptied: set[bytes] = set()
        for n in self.numbered("relocations"):
            name, pack, _, signers = self.control("relocations", n)
            with refusing(name):
                self.authorize(signers, OWNER | WRITER)
                for number in range(1, len(pack.chunks)):
                    if pack.chunk(number)[:1] == b"\x91":
                        (ids,) = parse(pack.chunk(number), EMPTIED)
                        check(ids and ascending(ids), "emptied packs not in order")
                        self.emptied |= set(ids)
                        continue
                    packs, rows = parse(pack.chunk(number), MOVED)
                    check(ascending(row[0] for row in rows), "relocations not in order")
                    found |= {id: (stored, form, packs[p], at, offset) for id, stored, form, p, at, offset in rows}
        return found

    def _load_pack(self, id: bytes, kind: int) -> Pack:
        name = f"{self.prefix}/packs/{id.hex()[:2]}/{id.hex()}"
        data = self.read(name)
        with refusing(name):
            check(digest(data) == id, "is not its id")
            return Pack(data, self, kind)

    def fetch(self, ref: Any, kind: int, id_key: bytes) -> bytes:
        """Return the plaintext that *ref* names, from where it lies now."""
        to = self.moved.get(ref.id)
        if to and to[2][0] not in self.emptied and (ref.pack[0] in self.emptied or ref.pack[3] < to[2][3]):
            ref = ref._replace(**dict(zip(("stored", "form", "pack", "position", "offset"), to, strict=True)))
        pack_id, size, source, epoch, salt, commitment, sealed = ref.pack
        pack = self.pack(pack_id, kind)
        with refusing(f"chunk {ref.id.hex()}"):
            head = HEADER.pack(b"DSYNPACK", 1, 1, kind, source, epoch, self.id, salt, commitment, len(sealed))
            check((head + sealed, size) == (pack.header, len(pack.raw)), "its pack reference is not the pack's header")
            there = list(zip(pack.chunks, pack.offsets, strict=False))[ref.position : ref.position + 1]
            check(there == [((ref.id, ref.form, ref.raw, ref.stored), ref.offset)], "is not where its reference says")
            return pack.chunk(ref.position, id_key)


class Snapshot:
    """One verified snapshot; its pages are read as `entries` goes."""

    def __init__(self, dataset: Dataset, seq: int, id: bytes | None = None) -> None:
        self.dataset, self.seq = dataset, seq
        self.name, pack, self.body, signers = dataset.control("snapshots", seq, id)
        _, _, _, _, epoch, (version, keyset), trust, self.source, tool, message, chunker, id_key = self.body[:12]
        self.root, self.totals, manifest, _ = self.body[12:]
        with refusing(self.name):
            self.id = digest(pack.raw)
            check(len(signers) == 1, "not signed by one writer alone")
            dataset.authorize(signers, WRITER | PUSHER, seq, self.id)
            dataset._root(trust)
            known = 1 <= version <= max(dataset.keysets) and dataset.keysets.get(version, keyset) == keyset
            check(known and epoch == pack.epoch, "names a keyset that is not stored, or another epoch than its pack's")
            check(re.fullmatch("datasync .+", tool) and len(message.encode()) <= 4096, "wrong tool or message")
            check(chunker in ("cdc", "fixed"), "wrong chunker")
            check_xattrs(self.root[2])
            self.id_key, self.own_key = hkdf(dataset.meta[1], b"id"), bool(id_key)
            if id_key:
                secret = hkdf(dataset.meta[epoch], b"key-pair", 96)
                self.id_key = open_hpke(id_key, secret, b"id-key\0" + dataset.id)
            self.pages: list[Any] = []
            for position in range(1, len(pack.chunks)):
                packs, pages = parse(pack.chunk(position), PAGES)
                check(pages, "an empty page list")
                check_packs(packs, pages)
                self.pages += resolve(packs, pages)
            check(digest(b"".join(page.id for page in self.pages)) == manifest, "wrong root hash")

    def _page(self, ref: Any, fields: Any) -> tuple[list[Any], list[Any]]:
        data = self.dataset.fetch(ref, 2, self.id_key)
        check(len(data) <= 2 * MIB, "larger than 2 MiB")
        _, packs, items = parse(data, fields)
        check(items, "empty")
        return packs, items

    def entries(self) -> Iterator[tuple[Any, Pieces]]:
        """Yield each entry with its content to read; order, parents, links and totals are checked across pages."""
        last, folders, totals = b"", {b""}, [0] * 6
        groups: dict[bytes, Any] = {}
        for page in self.pages:
            with refusing(f"page {page.id.hex()}"):
                packs, items = self._page(page, PAGE)
                check_packs(packs, [ref for item in items for ref in (*item[8], *item[10])])
                summary = (len(items), sum(item[4] for item in items), items[0][0])
                check(summary == page[7:], "other entries, bytes or first path than its page list says")
                for item in items:
                    chunks, lists = list(resolve(packs, item[8])), list(resolve(packs, item[10]))
                    e = Entry._make(item)._replace(chunks=chunks, lists=lists)
                    check_entry(e)
                    check(last < e.path.replace(b"/", b"\0"), f"{e.path!r}: not in order")
                    check(e.path.rpartition(b"/")[0] in folders, f"{e.path!r}: no parent directory before it")
                    last = e.path.replace(b"/", b"\0")
                    folders |= {e.path} if e.kind == 2 else set()
                    inode = (*e[1:8], [c.id for c in e.chunks], e.holes)
                    first, same = groups.setdefault(e.link, (e.path, inode)) if e.link else (b"", inode)
                    named = not e.link or self.own_key or e.link == digest(first, hkdf(self.dataset.meta[1], b"link"))
                    check(named and same == inode, f"{e.path!r}: wrong link, or differs from its hard links")
                    counts = (1, e.kind == 1, e.kind == 2, e.kind == 3, e.size, sum(n for _, n in e.holes))
                    totals = [a + b for a, b in zip(totals, counts, strict=True)]
                    yield e, self._pieces(e)
        with refusing(self.name):
            check(tuple(totals) == self.totals[:6], "totals do not match the entries")

    def _chunks(self, entry: Any) -> Iterator[Any]:
        yield from entry.chunks
        for ref in entry.lists:
            packs, items = self._page(ref, CHUNKS)
            check_packs(packs, items)
            check(sum(item[1] for item in items) == ref.covers, "covers other bytes than its reference says")
            yield from resolve(packs, items)

    def _pieces(self, entry: Any) -> Pieces:
        with refusing(f"content of {entry.path!r}"):
            for offset, chunk in place(entry, self._chunks(entry)):
                yield offset, self.dataset.fetch(chunk, 1, self.id_key)

    def tree_digest(self) -> str:
        """Hash the entries with their content; how it is chunked, and where holes are, does not matter."""
        return hash_tree((*e[:7], e.link, pieces) for e, pieces in self.entries())


def hash_tree(lines: Iterable[tuple[Any, ...]]) -> str:
    tree = blake3()
    firsts: dict[Any, bytes] = {}
    for path, *fields, link, pieces in lines:
        first = firsts.setdefault(link, path) if link else path
        tree.update(msgpack.encode((path, fields, hash_content(pieces), first)))
    return tree.hexdigest()


def hash_content(pieces: Pieces) -> bytes:
    """Hash each 64 KiB block that is not all zero after its index: the same for a hole and for written zeros."""
    content, index, block = blake3(), 0, bytearray(BLOCK)
    for offset, data in chain(pieces, [(1 << 63, b"\0")]):
        for at in range(offset // BLOCK * BLOCK, offset + len(data), BLOCK):
            if at != index:
                content.update(struct.pack("<Q", index) + block if block.count(0) < BLOCK else b"")
                index, block = at, bytearray(BLOCK)
            part = data[max(at - offset, 0) : at - offset + BLOCK]
            block[max(offset - at, 0) : max(offset - at, 0) + len(part)] = part
    return content.digest()


def read_extents(fd: int, size: int) -> Pieces:
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # no data up to the end
                return
            raise
        end = os.lseek(fd, start, os.SEEK_HOLE)
        for at in range(start, end, MIB):
            yield at, os.pread(fd, min(MIB, end - at), at)


def walk(root: Path, xattrs: bool) -> Iterator[tuple[Any, ...]]:
    """Yield what `hash_tree` needs of each path below *root*, in the manifest's order, by open directories alone."""
    kinds = {stat.S_IFREG: 1, stat.S_IFDIR: 2, stat.S_IFLNK: 3}
    fd = os.open(root, os.O_RDONLY)
    stack = [(fd, b"", iter(sorted(map(os.fsencode, os.listdir(fd)))))]
    while stack:
        parent, prefix, leaves = stack[-1]
        if (name := next(leaves, None)) is None:
            os.close(stack.pop()[0])
            continue
        info = os.stat(name, dir_fd=parent, follow_symlinks=False)
        kind, size = kinds.get(stat.S_IFMT(info.st_mode), 0), info.st_size
        line = (prefix + name, kind, stat.S_IMODE(info.st_mode), info.st_mtime_ns, size if kind == 1 else 0)
        link = (info.st_ino, info.st_dev) if kind == 1 else b""
        if kind == 3:
            yield *line, [], os.readlink(name, dir_fd=parent), link, iter(())
        elif kind:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=parent)
            names = [key for key in os.listxattr(fd) if key.startswith("user.")] if xattrs else []
            found = sorted((os.fsencode(key), os.getxattr(fd, key)) for key in names)
            yield *line, found, b"", link, read_extents(fd, size if kind == 1 else 0)
            if kind == 1:
                os.close(fd)
            else:
                stack.append((fd, prefix + name + b"/", iter(sorted(map(os.fsencode, os.listdir(fd))))))


def describe(root: Path, xattrs: bool = False) -> str:
    """Return the `tree_digest` of a directory tree; the root's own metadata is not part of it."""
    return hash_tree(walk(root, xattrs))


def open_repository(directory: Path, identity: bytes | None = None, passphrase: str | None = None) -> list[Dataset]:
    """Open every dataset with the given secrets; *identity* is the ML-KEM seed and the X25519 key."""
    with refusing("datasync.json"):
        data = (directory / "datasync.json").read_bytes()
        stored = re.search(rb'"hash":"([0-9a-f]{64})",', data)
        text = data.replace(stored[0], b"", 1)[:-1] if stored else b""
        check(len(data) <= 4096 and stored and digest(text).hex().encode() == stored[1], "its hash does not match")
        version = re.search(rb'"version":([0-9]+)[,}]', data)
        check(version and int(version[1]) <= 1, "made by a newer datasync")
        check(re.fullmatch(MARKER, data), "not in its one form")
    folders = sorted(p.name for p in (directory / "d").iterdir()) if (directory / "d").is_dir() else []
    for folder in folders:
        with refusing(f"d/{folder}"):
            check(re.fullmatch("[0-9a-f]{64}", folder), "not a dataset id")
    return [Dataset(directory, bytes.fromhex(folder), identity, passphrase) for folder in folders]


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the datasets, snapshots and tree digests of a repository.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--identity", type=Path, required=True, help="TOML file with mlkem_seed and x25519 in hex")
    parser.add_argument("--passphrase-env", metavar="NAME", help="environment variable that holds the passphrase")
    arguments = parser.parse_args()
    secrets = tomllib.loads(arguments.identity.read_text())
    identity = bytes.fromhex(secrets["mlkem_seed"] + secrets["x25519"])
    for dataset in open_repository(arguments.directory, identity, os.environ.get(arguments.passphrase_env or "")):
        print(f"dataset {dataset.id.hex()} {dataset.name}")
        for snapshot in dataset.snapshots():
            print(f"snapshot {snapshot.seq} {snapshot.id.hex()} tree {snapshot.tree_digest()}")


if __name__ == "__main__":
    main()
