"""A second reader of the repository format, built from docs/format.md alone; imports nothing of datasync.

Promises: what it yields has passed every reader rule of that page; all else raises `Refused`, naming the object.
Works on a local directory (object name = relative path), writes nothing and keeps no memory between runs.
"""

import argparse
import json
import re
import struct
import time
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

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

MIB, FULL, ZERO = 1 << 20, 32 << 20, bytes(32)
BLOCK = 65536  # bytes: the smallest padded size, and the step of content_digest
OWNER, WRITER, PUSHER, TAGGER = 1, 2, 4, 8
SIGNED = "a signed integer"
REFERENCE = (32, int, int, int, int, int, int)  # id, raw, stored, form, pack, position, offset
PACK = (32, int, int, 32, 32, bytes)  # id, key source, epoch, salt, commitment, sealed key
VERSION, XATTRS = (int, 32), [(bytes, bytes)]
TRUST = (int, 32, 32, int, int, int, [(32, int, bytes, int, int, object)])
SLOT = (16, int, int, int, bytes, bytes, bytes, bytes, int, int, 32)
KEYSET = (32, int, 32, VERSION, int, int, int, bytes, [(int, bytes, bytes)], [(1216, 1216)], [SLOT])
ENTRY = (bytes, int, int, SIGNED, int, XATTRS, bytes, bytes, [REFERENCE], [(int, int)], [(*REFERENCE, int)])
SOURCE, ROOT = (str, bytes, str, 16), (int, SIGNED, XATTRS)
SNAPSHOT = (32, int, 32, int, int, VERSION, VERSION, SOURCE, str, str, str, bytes, ROOT, (int,) * 7, 32, [32])
CONTROL: dict[str, tuple[int, str, Any]] = {  # pack type, kind of signature, body
    "snapshots": (3, "snapshot", SNAPSHOT),
    "heads": (4, "head", (32, int, 32, int, 32, int, int)),
    "tags": (5, "tags", (32, int, 32, int, [(str, bytes)])),
    "relocations": (6, "relocation", (32, int, 32, int, int, [32])),
}


class Refused(Exception):
    """The object *name* breaks a rule of the format: *why*."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name, self.why = name, why


def need(holds: object, name: str, why: str) -> None:
    if not holds:
        raise Refused(name, why)


@contextmanager
def refusing(name: str, why: str) -> Iterator[None]:
    try:
        yield
    except (InvalidSignature, InvalidTag, msgspec.MsgspecError, zstandard.ZstdError) as error:
        raise Refused(name, why) from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, OSError) as error:
        raise Refused(name, f"{why}: {error}") from error


def digest(data: bytes, key: bytes | None = None) -> bytes:
    return (blake3(data, key=key) if key else blake3(data)).digest()


def hkdf(key: bytes, info: bytes, length: int = 32, salt: bytes = b"") -> bytes:
    return HKDF(algorithm=SHA512(), length=length, salt=salt, info=b"datasync/v1/" + info).derive(key)


def ascending(values: Iterable[Any]) -> bool:
    return all(a < b for a, b in pairwise(values))


def padme(size: int) -> int:
    exponent = size.bit_length() - 1
    unit = 1 << max(exponent - exponent.bit_length(), 0)
    return BLOCK if size <= BLOCK else -(-size // unit) * unit


def conforms(value: Any, shape: Any) -> bool:
    """Tuple: exactly these fields; list: any number of one; number: bytes of that length; int: unsigned."""
    if isinstance(shape, tuple):
        return type(value) is list and len(value) == len(shape) and all(map(conforms, value, shape))
    if isinstance(shape, list):
        return type(value) is list and all(conforms(item, shape[0]) for item in value)
    if isinstance(shape, int):
        return type(value) is bytes and len(value) == shape
    if shape is int or shape is SIGNED:
        return type(value) is int and (shape is SIGNED or value >= 0)
    return shape is object or type(value) is shape


def parse(name: str, data: bytes, shape: Any) -> Any:
    with refusing(name, "not MessagePack"):
        value = msgspec.msgpack.decode(data)
        need(msgspec.msgpack.encode(value) == data, name, "not the one MessagePack encoding")
    need(conforms(value, shape), name, "not exactly the format's fields")
    return value


def open_signed(name: str, data: bytes, kind: str) -> tuple[bytes, set[bytes]]:
    """Return the body and its signers; every listed signature is valid."""
    body, signatures = parse(name, data, (bytes, [(32, 64)]))
    need(1 <= len(signatures) <= 64 and ascending(s for s, _ in signatures), name, "signatures: not 1 to 64 in order")
    for signer, signature in signatures:
        with refusing(name, f"invalid signature by {signer.hex()}"):
            message = f"datasync/v1/sign/{kind}\0".encode() + body
            Ed25519PublicKey.from_public_bytes(signer).verify(signature, message)
    return body, {signer for signer, _ in signatures}


def open_plain(name: str, data: bytes, kind: int) -> tuple[bytes, set[bytes]]:
    need(data[:12] == b"DSYNPLN1" + bytes([kind, 0, 0, 0]) and len(data) >= 16, name, "wrong plain object header")
    end = 16 + int.from_bytes(data[12:16], "little")
    need(end <= 16 + 16 * MIB and len(data) == padme(end), name, "wrong payload length or padded size")
    need(data.count(0, end) == len(data) - end, name, "padding is not zero")
    return open_signed(name, data[16:end], ("trust", "keyset")[kind - 1])


def open_box(name: str, box: bytes, key: bytes, label: str, context: bytes) -> bytes:
    need(len(box) >= 80, name, f"box {label}: too short")
    keys = hkdf(key, f"box/{label}\0".encode() + context, 64, box[:32])
    need(keys[32:] == box[32:64], name, f"box {label}: commitment does not match")
    with refusing(name, f"box {label}: authentication failed"):
        return AESGCM(keys[:32]).decrypt(bytes(12), box[64:], b"")


def hpke_open(name: str, sealed: bytes, private: Any, info: bytes) -> bytes:
    kem = hpke.KEM.X25519 if isinstance(private, X25519PrivateKey) else hpke.KEM.MLKEM768_X25519
    with refusing(name, "HPKE: authentication failed"):
        suite = hpke.Suite(kem, hpke.KDF.HKDF_SHA512, hpke.AEAD.AES_256_GCM)
        key = suite.decrypt(sealed, private, b"datasync/v1/" + info)
    need(len(key) == 32, name, "HPKE: not a 32-byte key")
    return key


def key_pair(secret: bytes) -> tuple[Any, bytes]:
    """Return the private and public key: X-Wing of 96 bytes (ML-KEM seed, X25519), X25519 of 32."""
    second = X25519PrivateKey.from_private_bytes(secret[-32:])
    if len(secret) == 32:
        return second, second.public_key().public_bytes_raw()
    first = MLKEM768PrivateKey.from_seed_bytes(secret[:64])
    public = first.public_key().public_bytes_raw() + second.public_key().public_bytes_raw()
    return hpke.MLKEM768X25519PrivateKey(first, second), public


def epoch_pair(key: bytes) -> tuple[Any, bytes]:
    return key_pair(hkdf(key, b"key-pair", 96))


def check_slot(name: str, slot: list[Any], current: int) -> None:
    id, kind, scope, epoch, label, fingerprint, params, *_ = slot
    known = kind < 256 and scope in (1, 2) and 1 <= epoch <= current and (not label or len(label) >= 84)
    need(known, name, f"slot {id.hex()}: wrong kind, scope, epoch or label")
    if kind in (1, 2, 3):
        need(len(fingerprint) == (32, 32, 0)[kind - 1], name, f"slot {id.hex()}: wrong fingerprint")
        values = parse(name, params, ((1168,), (80,), (32, int, int, int))[kind - 1])
        costs = values[1:] or [65536, 3, 1]
        bounded = 65536 <= costs[0] <= 4194304 and 3 <= costs[1] <= 64 and 1 <= costs[2] <= 16
        need(bounded, name, f"slot {id.hex()}: Argon2id costs out of bounds")


def check_title(name: str, title: str) -> None:
    plain = not any(c in "@:/" or unicodedata.category(c) == "Cc" for c in title)
    need(plain and 1 <= len(title) <= 128 and title not in (".", "..") and title[0] != "-", name, "forbidden name")


def check_xattrs(name: str, xattrs: list[list[bytes]]) -> None:
    small = len(xattrs) <= 256 and sum(len(k) + len(v) for k, v in xattrs) <= 65536
    need(small and ascending(k for k, _ in xattrs), name, "extended attributes: too large or not in order")


def content_digest(pieces: Iterable[tuple[int, bytes]]) -> bytes:
    """Hash each 64 KiB block that is not all zero after its u64 index: the same for a hole and for written zeros."""
    content, block, index = blake3(), bytearray(BLOCK), 0
    for offset, data in pieces:
        for at in range(offset // BLOCK, -(-(offset + len(data)) // BLOCK)):
            if at != index:
                content.update(b"" if block.count(0) == BLOCK else struct.pack("<Q", index) + block)
                block, index = bytearray(BLOCK), at
            start = max(at * BLOCK, offset)
            part = data[start - offset : (at + 1) * BLOCK - offset]
            block[start - at * BLOCK : start - at * BLOCK + len(part)] = part
    content.update(b"" if block.count(0) == BLOCK else struct.pack("<Q", index) + block)
    return content.digest()


@dataclass(frozen=True)
class Identity:
    mlkem_seed: bytes
    x25519: bytes


class Reference(NamedTuple):
    id: bytes
    raw: int
    stored: int
    form: int
    pack: tuple[Any, ...]  # pack reference, looked up in the page's table
    position: int
    offset: int
    rest: tuple[Any, ...] = ()  # what the page adds to a chunk reference


def fits(form: int, raw: int, stored: int) -> bool:
    return 1 <= raw <= 4 * MIB and (stored == raw if form == 0 else form == 1 and 1 <= stored < raw)


def check_packs(name: str, packs: list[list[Any]], used: Iterable[int]) -> None:
    need(list(dict.fromkeys(used)) == list(range(len(packs))), name, "packs: not in order of first use")
    need(len({pack[0] for pack in packs}) == len(packs), name, "packs: one is listed twice")


def references(name: str, packs: list[list[Any]], fields: list[Any]) -> list[Reference]:
    need(all(fits(f[3], f[1], f[2]) for f in fields), name, "wrong lengths or form in a reference")
    return [Reference(f[0], f[1], f[2], f[3], tuple(packs[f[4]]), f[5], f[6], tuple(f[7:])) for f in fields]


@dataclass(frozen=True)
class Entry:
    """One file, directory or symbolic link, fields as in section 10."""

    path: bytes
    kind: int
    mode: int
    mtime_ns: int
    size: int
    xattrs: list[list[bytes]]
    target: bytes
    link: bytes
    chunks: list[Reference]
    holes: list[list[int]]
    lists: list[Reference]

    def inode(self) -> tuple[object, ...]:
        ids = [chunk.id for chunk in self.chunks]
        return (self.kind, self.mode, self.mtime_ns, self.size, self.xattrs, self.target, ids, self.holes)

    def extents(self) -> list[tuple[int, int]]:
        starts, ends = [0, *(o + n for o, n in self.holes)], [*(o for o, _ in self.holes), self.size]
        return [(a, b) for a, b in zip(starts, ends, strict=True) if a < b]

    def place(self, name: str, chunks: Iterable[Reference]) -> Iterator[tuple[int, Reference]]:
        """Yield each chunk with its file offset; refuse unless they fill the extents exactly."""
        extents, at, end = iter(self.extents()), 0, 0
        for chunk in chunks:
            at, end = next(extents, (0, 0)) if at == end else (at, end)
            need(at + chunk.raw <= end, name, f"{self.path!r}: a chunk passes the end of its extent")
            yield at, chunk
            at += chunk.raw
        need(at == end and next(extents, None) is None, name, f"{self.path!r}: the chunks do not fill the file")

    def check(self, name: str) -> None:
        say, parts, ends = f"{self.path!r}: wrong ", self.path.split(b"/"), [o + n for o, n in self.holes]
        whole = b"\0" not in self.path and len(self.path) <= 65535
        need(whole and all(p not in (b"", b".", b"..") and len(p) <= 255 for p in parts), name, say + "path")
        need(self.kind in (1, 2, 3) and self.mode <= 0o7777, name, say + "kind or mode")
        need(self.size < 1 << 63 and (self.kind == 1 or not self.size), name, say + "size")
        target = 1 <= len(self.target) <= 65535 and b"\0" not in self.target
        need(target if self.kind == 3 else not self.target, name, say + "target")
        need(not self.link or (len(self.link) == 32 and self.kind != 2), name, say + "link")
        check_xattrs(name, self.xattrs)
        apart = all(hole[0] > end for hole, end in zip(self.holes[1:], ends, strict=False))
        inside = all(n > 0 for _, n in self.holes) and (not ends or ends[-1] <= self.size)
        need(len(self.holes) <= 16384 and apart and inside, name, say + "holes")
        need(len(self.chunks) <= 1024 and not (self.chunks and self.lists), name, say + "chunks or lists")
        if self.lists:
            covered = sum(r.rest[0] for r in self.lists)
            need(covered == sum(b - a for a, b in self.extents()), name, say + "length covered by its chunk lists")
        else:
            list(self.place(name, self.chunks))


class Keys(NamedTuple):
    dataset: bytes
    data: dict[int, bytes]  # by epoch; empty for a slot that carries metadata keys only
    meta: dict[int, bytes]


class Pack:
    """An opened pack: header, footer and padding are checked now, each chunk when it is asked for."""

    def __init__(self, name: str, data: bytes, keys: Keys, kind: int) -> None:
        self.name, self.data = name, data
        need(len(data) >= 116 + 16 + 20 + 4, name, "shorter than a pack")
        source, self.epoch, sealed = data[11], *struct.unpack("<I96xI", data[12:116])
        need(data[:11] == b"DSYNPACK\1\1" + bytes([kind]), name, f"wrong magic, version, suite or type (not {kind})")
        need(data[16:48] == keys.dataset, name, "another dataset's")
        need((source, sealed) in ((1, 0), (2, 1168)), name, "wrong key source or sealed key length")
        key = (keys.data if kind == 1 else keys.meta).get(self.epoch, b"")
        need(key, name, f"no key for epoch {self.epoch}")
        if source == 2:
            key = hpke_open(name, data[116:1284], epoch_pair(key)[0], b"sealed-pack\0" + data[:48])
        material, self.header = hkdf(key, b"pack\0" + data[:48], 64, data[48:80]), data[: 116 + sealed]
        need(material[32:] == data[80:112], name, "key commitment does not match")
        self.aead = AESGCM(material[:32])
        self._read_footer()

    def _read_footer(self) -> None:
        length = int.from_bytes(self.data[-4:], "little")
        n, start = (length - 20) // 41, len(self.data) - 4 - length
        possible = length == 20 + 41 * n and 0 <= n <= 16384 and start >= len(self.header) + 16
        need(possible, self.name, "wrong footer length")
        footer = self._open(3, n + 1, 0, length - 16, ZERO, start)
        need(footer[:4] == struct.pack("<I", n), self.name, "wrong number of chunks in the footer")
        self.chunks: list[tuple[bytes, int, int, int]] = list(struct.iter_unpack("<32sBII", footer[4:]))
        self.offsets = [len(self.header)]
        for _, form, raw, stored in self.chunks:
            need(fits(form, raw, stored), self.name, "wrong lengths or form in the footer")
            self.offsets.append(self.offsets[-1] + stored + 16)
        size = start - self.offsets[n] - 16
        need(size >= 0, self.name, "the chunks reach into the footer")
        padding = self._open(2, n, 0, size, ZERO, self.offsets[n])
        need(padding.count(0) == size, self.name, "padding is not zero")
        need(len(self.data) in (FULL, padme(len(self.data) - size)), self.name, "not the padded size")

    def _open(self, what: int, at: int, form: int, raw: int, id: bytes, start: int, stored: int | None = None) -> bytes:
        end = start + (raw if stored is None else stored) + 16
        with refusing(self.name, f"position {at}: authentication failed"):
            aad = self.header + struct.pack("<BIBI", what, at, form, raw) + id
            return self.aead.decrypt(at.to_bytes(12, "little"), self.data[start:end], aad)

    def chunk(self, position: int, id_key: bytes | None = None) -> bytes:
        """Return the plaintext at *position*; chunks of control objects have no id key."""
        id, form, raw, stored = self.chunks[position]
        data = self._open(1, position, form, raw, id, self.offsets[position], stored)
        if form == 1:
            with refusing(self.name, f"position {position}: not one zstd frame of its raw length"):
                frame = zstandard.get_frame_parameters(data)
                known = frame.content_size in (raw, zstandard.CONTENTSIZE_UNKNOWN) and not frame.dict_id
                need(known, self.name, f"position {position}: frame of another length, or with a dictionary")
                data = zstandard.ZstdDecompressor().decompress(data, max_output_size=raw, allow_extra_data=False)
        need(len(data) == raw and digest(data, id_key) == id, self.name, f"position {position}: wrong length or id")
        return data


class Store:
    """The objects of one dataset, each read whole."""

    def __init__(self, directory: Path, prefix: str) -> None:
        self.directory, self.prefix = directory, prefix

    def read(self, name: str) -> bytes:
        with refusing(name, "cannot be read"):
            need((self.directory / name).stat().st_size <= FULL, name, "larger than 32 MiB")
            data = (self.directory / name).read_bytes()
        hashed = re.search(r"/\d{20}-([0-9a-f]{64})$", name)
        need(not hashed or hashed[1] == digest(data).hex(), name, "is not the hash in its name")
        return data

    def numbered(self, group: str) -> dict[int, list[str]]:
        """Return the names in *group* by number, ascending; two names of one number are a conflict."""
        found: dict[int, list[str]] = {}
        folder = self.directory / self.prefix / group
        for leaf in sorted((p.name for p in folder.iterdir()) if folder.is_dir() else (), reverse=True):
            form = re.fullmatch(r"([0-9]{20})(-[0-9a-f]{64})?", leaf)
            number = 10**20 - 1 - int(form[1]) if form else 0
            need(number > 0, f"{self.prefix}/{group}/{leaf}", "not the name of a numbered object")
            found.setdefault(number, []).append(f"{self.prefix}/{group}/{leaf}")
        return found

    def only(self, names: list[str]) -> str:
        need(len(names) == 1, names[0], "conflict between " + " and ".join(names))
        return names[0]

    def check_previous(self, group: str, n: int, previous: bytes, name: str) -> None:
        """Refuse unless *previous* is the stored n - 1, where that was not deleted."""
        before = self.numbered(group).get(n - 1, [])
        right = not before or previous in [digest(self.read(b)) for b in before]
        need(previous == ZERO if n == 1 else right, name, "previous does not match")


class Head(NamedTuple):
    n: int
    seq: int
    snapshot: bytes
    issued_ms: int
    expires_ms: int


class Dataset:
    """One dataset, opened by the trust root's chain, the newest keyset and one of its slots."""

    def __init__(self, directory: Path, id: bytes, identity: Identity | None, passphrase: str | None) -> None:
        self.id, self.store = id, Store(directory, f"d/{id.hex()}")
        self._roots: list[tuple[list[Any], bytes]] = []
        self._keysets: dict[int, bytes] = {}
        self._read_trust()
        keyset, name = self._read_keysets()
        self._keys = self._unlock(name, keyset, *self._open_slot(name, keyset, identity, passphrase))
        with refusing(name, "the dataset's name is not UTF-8"):
            self.name = open_box(name, keyset[7], self._keys.meta[keyset[6]], "name", id).decode()
        check_title(name, self.name)
        self._pack = lru_cache(maxsize=6)(self._load_pack)  # at most 192 MiB

    def _read_trust(self) -> None:
        for n, names in self.store.numbered("trust").items():
            name = self.store.only(names)
            data = self.store.read(name)
            body, signers = open_plain(name, data, 1)
            root = parse(name, body, TRUST)
            version, dataset, previous, _, expires, threshold, principals = root
            need(n == version == len(self._roots) + 1, name, "version: not the name's, or one is missing before it")
            before = (self.id, self._roots[-1][1]) if self._roots else (ZERO, ZERO)
            need((dataset, previous) == before, name, "dataset id or previous does not match")
            need(n > 1 or digest(data) == self.id, name, "is not the dataset's id")
            need(1 <= threshold <= 64 and len(principals) <= 4096, name, "threshold or number of principals")
            removed = all(p[5] is None or conforms(p[5], VERSION) for p in principals)
            sound = removed and all(p[1] < 32 and (not p[2] or len(p[2]) >= 84) for p in principals)
            need(sound and ascending(p[0] for p in principals), name, "principals: malformed or not in order")
            self._need_owners(name, signers, self._roots[-1][0] if self._roots else root)
            self._roots.append((root, digest(data)))
        need(self._roots, f"{self.store.prefix}/trust", "no trust root")
        need(not expires or time.time() * 1000 <= expires, name, "the newest trust root has expired")

    def _need_owners(self, name: str, signers: set[bytes], root: list[Any]) -> None:
        owners = {p[0] for p in root[6] if p[1] & OWNER and p[5] is None}
        need(len(owners & signers) >= root[5], name, "fewer owners have signed than the threshold")

    def _check_trust(self, name: str, version: int, stored: bytes) -> None:
        right = 1 <= version <= len(self._roots) and self._roots[version - 1][1] == stored
        need(right, name, f"names a trust root {version} that is not the stored one")

    def _read_keysets(self) -> tuple[list[Any], str]:
        """Verify every stored keyset; return the newest."""
        for n, names in self.store.numbered("keyset").items():
            name = self.store.only(names)
            data = self.store.read(name)
            body, signers = open_plain(name, data, 2)
            keyset = parse(name, body, KEYSET)
            dataset, version, previous, trust, _, suite, epoch, _, chain, public, slots = keyset
            need((dataset, version, suite) == (self.id, n, 1), name, "wrong dataset id, version or suite")
            self.store.check_previous("keyset", n, previous, name)
            self._check_trust(name, *trust)
            self._need_owners(name, signers, self._roots[trust[0] - 1][0])
            epochs = 1 <= epoch <= 65535 and [c[0] for c in chain] == list(range(1, epoch)) and len(public) == epoch
            need(epochs, name, "epoch, chain and public keys do not agree")
            need(len(slots) <= 4096 and ascending(s[0] for s in slots), name, "slots: too many or not in order")
            for slot in slots:
                check_slot(name, slot, epoch)
            self._keysets[n] = digest(data)
        need(self._keysets, f"{self.store.prefix}/keyset", "no keyset")
        return keyset, name

    def _open_slot(
        self, name: str, keyset: list[Any], identity: Identity | None, phrase: str | None
    ) -> tuple[bytes, int]:
        """Return the key of the current epoch and its scope, from the widest slot that opens."""
        pairs = {1: key_pair(identity.mlkem_seed + identity.x25519), 2: key_pair(identity.x25519)} if identity else {}
        for id, kind, scope, epoch, _, fingerprint, params, wrapped, *_ in sorted(keyset[10], key=lambda slot: slot[2]):
            binding = self.id + struct.pack("<I16sBB", epoch, id, kind, scope)
            if epoch != keyset[6]:
                continue
            if kind in pairs and digest(pairs[kind][1]) == fingerprint:
                key = hpke_open(name, msgspec.msgpack.decode(params)[0], pairs[kind][0], b"slot\0" + binding)
                return self._carried(name, wrapped, key, binding), scope
            if kind == 3 and phrase is not None:
                salt, memory, passes, lanes = msgspec.msgpack.decode(params)
                argon = Argon2id(salt=salt, length=32, iterations=passes, lanes=lanes, memory_cost=memory)
                key = argon.derive(unicodedata.normalize("NFC", phrase).encode())
                with suppress(Refused):  # another passphrase than this slot's
                    return self._carried(name, wrapped, key, binding), scope
        raise Refused(name, "no slot of the current epoch opens with the given secrets")

    def _carried(self, name: str, wrapped: bytes, key: bytes, binding: bytes) -> bytes:
        carried = open_box(name, wrapped, key, "slot-key", binding)
        need(len(carried) == 32, name, "slot: not a 32-byte key")
        return carried

    def _unlock(self, name: str, keyset: list[Any], carried: bytes, scope: int) -> Keys:
        """Derive or unwrap every epoch's keys, newest first, and compare the public ones."""
        keys, root = Keys(self.id, {}, {}), carried if scope == 1 else b""
        meta = hkdf(root, b"metadata") if root else carried
        for epoch in range(keyset[6], 0, -1):
            need(not root or meta == hkdf(root, b"metadata"), name, f"epoch {epoch}: another metadata key")
            keys.meta[epoch] = meta
            if root:
                keys.data[epoch] = hkdf(root, b"data")
                need(keyset[9][epoch - 1][0] == epoch_pair(keys.data[epoch])[1], name, "another public data key")
            need(keyset[9][epoch - 1][1] == epoch_pair(meta)[1], name, "another public metadata key")
            if epoch > 1:
                _, wrapped_root, wrapped_meta = keyset[8][epoch - 2]
                context = self.id + struct.pack("<I", epoch - 1)
                meta = open_box(name, wrapped_meta, hkdf(meta, b"metadata-chain"), "metadata-chain", context)
                root = open_box(name, wrapped_root, hkdf(root, b"chain"), "chain", context) if root else b""
                need(len(meta) == 32 and len(root) in (0, 32), name, "chain: not a 32-byte key")
        return keys

    def derived(self, info: bytes) -> bytes:
        return hkdf(self._keys.meta[1], info)  # epoch 1 for ever: ids survive rotation

    def _authorize(self, name: str, signers: set[bytes], roles: int, at: tuple[int, bytes] | None = None) -> None:
        """Refuse unless one signer has one of *roles*; a removed one only up to its last snapshot."""
        for signer, held, _, _, _, removed in self._roots[-1][0][6]:
            past = removed and at and (at[0] > removed[0] or (at[0] == removed[0] and at[1] != removed[1]))
            if signer in signers and held & roles and not past:
                return
        raise Refused(name, "not signed by anyone with the role for it")

    def _control(self, group: str, n: int, name: str) -> tuple[Pack, list[Any], set[bytes]]:
        kind, label, shape = CONTROL[group]
        pack = Pack(name, self.store.read(name), self._keys, kind)
        need(pack.chunks, name, "no chunk")
        body, signers = open_signed(name, pack.chunk(0), label)
        fields = parse(name, body, shape)
        need(fields[:2] == [self.id, n], name, "another dataset's, or another number than in its name")
        self.store.check_previous(group, n, fields[2], name)
        lists = fields[-1] if group in ("snapshots", "relocations") else []
        need([chunk[0] for chunk in pack.chunks[1:]] == lists, name, "chunks are not those that its body lists")
        return pack, fields, signers

    def _newest(self, group: str) -> tuple[str, list[Any], set[bytes]] | None:
        found = self.store.numbered(group)
        n = max(found, default=0)
        return (name := self.store.only(found[n]), *self._control(group, n, name)[1:]) if found else None

    def _snapshot(self, seq: int, names: list[str], id: bytes | None = None) -> "Snapshot":
        if id is None:
            self.store.only(names)
        for name in names:
            if (found := digest(self.store.read(name))) == id or id is None:
                pack, fields, signers = self._control("snapshots", seq, name)
                need(len(signers) == 1, name, "not signed by one writer alone")
                self._authorize(name, signers, WRITER | PUSHER, (seq, found))
                self._check_trust(name, *fields[6])
                version, stored = fields[5]
                right = version <= max(self._keysets) and self._keysets.get(version, stored) == stored
                need(version and right, name, "names a keyset that is not the stored one")
                return Snapshot(self, found, name, pack, fields)
        raise Refused(f"{self.store.prefix}/snapshots/{10**20 - 1 - seq}", "no such snapshot")

    def snapshots(self) -> "list[Snapshot]":
        return [self._snapshot(seq, names) for seq, names in self.store.numbered("snapshots").items()]

    def head(self) -> Head | None:
        """Return the newest head, whose snapshot was verified; None before the first."""
        if (newest := self._newest("heads")) is None:
            return None
        name, (_, n, _, seq, id, issued, expires), signers = newest
        self._authorize(name, signers, WRITER | PUSHER, (seq, id))
        need(time.time() * 1000 <= expires, name, "the newest head has expired")
        self._snapshot(seq, self.store.numbered("snapshots").get(seq, []), id)
        return Head(n, seq, id, issued, expires)

    def tags(self) -> dict[str, tuple[int, bytes]]:
        """Return the seq and snapshot id of each tag."""
        if (newest := self._newest("tags")) is None:
            return {}
        name, fields, signers = newest
        self._authorize(name, signers, OWNER | WRITER | TAGGER)
        need(ascending(title for title, _ in fields[-1]), name, "tags not in order")
        found = {}
        for title, assignment in fields[-1]:
            check_title(name, title)
            body, signers = open_signed(name, assignment, "tag")
            dataset, assigned, seq, id, _ = parse(name, body, (32, str, int, 32, int))
            need((dataset, assigned) == (self.id, title), name, f"tag {title!r}: another's assignment")
            self._authorize(name, signers, OWNER | WRITER | TAGGER, (seq, id))
            found[title] = (seq, id)
        return {title: at for title, at in found.items() if at[0]}

    @cached_property
    def relocations(self) -> dict[bytes, tuple[int, int, Any, int, int]]:
        """Where chunks have moved: stored length, form, pack, position and offset by id."""
        found: dict[bytes, tuple[int, int, Any, int, int]] = {}
        for n, names in self.store.numbered("relocations").items():
            name = self.store.only(names)
            pack, _, signers = self._control("relocations", n, name)
            self._authorize(name, signers, OWNER | WRITER)
            for position in range(1, len(pack.chunks)):
                packs, moved = parse(name, pack.chunk(position), ([PACK], [(32, int, int, int, int, int)]))
                check_packs(name, packs, [m[3] for m in moved])
                need(ascending(m[0] for m in moved), name, "entries not in order")
                found |= {id: (stored, form, tuple(packs[p]), at, offset) for id, stored, form, p, at, offset in moved}
        return found

    def _pack_name(self, id: bytes) -> str:
        return f"{self.store.prefix}/packs/{id.hex()[:2]}/{id.hex()}"

    def _load_pack(self, id: bytes, kind: int) -> Pack:
        data = self.store.read(self._pack_name(id))
        need(digest(data) == id, self._pack_name(id), "is not its id")
        return Pack(self._pack_name(id), data, self._keys, kind)

    def fetch(self, by: str, ref: Reference, kind: int, id_key: bytes) -> bytes:
        """Return the plaintext that *ref* (of the page *by*) names, where it is or where it has moved to."""
        place = (ref.stored, ref.form, ref.pack, ref.position, ref.offset)
        if not (self.store.directory / self._pack_name(ref.pack[0])).is_file():
            place = self.relocations.get(ref.id, place)
        stored, form, (pack_id, source, epoch, salt, commitment, sealed), position, offset = place
        pack = self._pack(pack_id, kind)
        header = (pack.header[11], pack.epoch, pack.header[48:80], pack.header[80:112], pack.header[116:])
        need(
            header == (source, epoch, salt, commitment, sealed), by, f"pack reference is not the header of {pack.name}"
        )
        need(position < len(pack.chunks), by, f"position {position} is not in {pack.name}")
        there = (pack.chunks[position], pack.offsets[position]) == ((ref.id, form, ref.raw, stored), offset)
        need(there, by, f"position {position} of {pack.name} is another chunk")
        return pack.chunk(position, id_key)


class Snapshot:
    """One verified snapshot; its pages are read as `entries` goes."""

    def __init__(self, dataset: Dataset, id: bytes, name: str, pack: Pack, fields: list[Any]) -> None:
        self.dataset, self.id, self.object, self.fields, self.pack = dataset, id, name, fields, pack
        _, self.seq, self.previous, self.created_ms, epoch, _, _, self.source, tool, self.message = fields[:10]
        self.root, self.totals, self.manifest = fields[12:15]
        need(epoch == pack.epoch, name, "another epoch than its pack's")
        need(re.fullmatch(r"datasync .+", tool) and len(self.message.encode()) <= 4096, name, "wrong tool or message")
        need(fields[10] in ("cdc", "fixed") and len(fields[15]) <= 7, name, "wrong chunker or number of page lists")
        need(self.root[0] <= 0o7777, name, "wrong mode of the root directory")
        check_xattrs(name, self.root[2])
        self.id_key = dataset.derived(b"id")
        if fields[11]:
            need(len(fields[11]) == 1168, name, "wrong length of the sealed id key")
            private = epoch_pair(dataset._keys.meta[epoch])[0]
            self.id_key = hpke_open(name, fields[11], private, b"id-key\0" + dataset.id)
        self.pages = [page for position in range(1, len(pack.chunks)) for page in self._page_list(position)]
        need(digest(b"".join(page.id for page in self.pages)) == self.manifest, name, "wrong root hash")

    def _page_list(self, position: int) -> list[Reference]:
        packs, pages = parse(self.object, self.pack.chunk(position), ([PACK], [(*REFERENCE, int, int, bytes)]))
        check_packs(self.object, packs, [page[4] for page in pages])
        need(pages, self.object, "an empty page list")
        return references(self.object, packs, pages)

    def _page(self, ref: Reference, kind: int, shape: Any) -> tuple[list[Any], list[Any], str]:
        name = f"page {ref.id.hex()}"
        need(ref.raw <= 2 * MIB, name, "larger than 2 MiB")
        found, packs, items = parse(name, self.dataset.fetch(self.object, ref, 2, self.id_key), (int, [PACK], [shape]))
        need(found == kind and items, name, "of another kind, or empty")
        return packs, items, name

    def _read_page(self, page: Reference) -> Iterator[Entry]:
        """Yield the entries of one page, each checked by itself."""
        packs, items, name = self._page(page, 1, ENTRY)
        check_packs(name, packs, [ref[4] for item in items for ref in (*item[8], *item[10])])
        right = page.rest == (len(items), sum(item[4] for item in items), items[0][0])
        need(right, name, "other entries, bytes or first path than its page list says")
        for item in items:
            item[8], item[10] = references(name, packs, item[8]), references(name, packs, item[10])
            entry = Entry(*item)
            entry.check(name)
            yield entry

    def entries(self) -> Iterator[Entry]:
        """Yield all entries in order; order, parents, links and totals are checked across pages."""
        last, folders, totals = b"", {b""}, [0] * 6
        groups: dict[bytes, Entry] = {}
        for page in self.pages:
            for entry in self._read_page(page):
                name, path = f"page {page.id.hex()}", entry.path
                need(path.replace(b"/", b"\0") > last, name, f"{path!r}: not in order")
                need(path.rpartition(b"/")[0] in folders, name, f"{path!r}: no parent directory before it")
                last = path.replace(b"/", b"\0")
                if entry.kind == 2:
                    folders.add(path)
                self._check_link(name, entry, groups)
                holes = sum(length for _, length in entry.holes)
                counts = (1, *(entry.kind == kind for kind in (1, 2, 3)), entry.size, holes)
                totals = [a + b for a, b in zip(totals, counts, strict=True)]
                yield entry
        need(totals == self.totals[:6], self.object, "totals do not match the entries")

    def _check_link(self, name: str, entry: Entry, groups: dict[bytes, Entry]) -> None:
        """Refuse unless the group is named by its first member and all members are one file."""
        if entry.link:
            first = groups.setdefault(entry.link, entry)
            named = self.fields[11] or entry.link == digest(first.path, self.dataset.derived(b"link"))
            need(named, name, f"{entry.path!r}: link is not of its group's first member")
            need(first.inode() == entry.inode(), name, f"{entry.path!r}: differs from its hard links")

    def _chunks(self, entry: Entry) -> Iterator[Reference]:
        yield from entry.chunks
        for ref in entry.lists:
            packs, items, name = self._page(ref, 2, REFERENCE)
            check_packs(name, packs, [item[4] for item in items])
            chunks = references(name, packs, items)
            need(sum(chunk.raw for chunk in chunks) == ref.rest[0], name, "covers other bytes than its reference says")
            yield from chunks

    def entry_pieces(self, entry: Entry) -> Iterator[tuple[int, bytes]]:
        """Yield a file's (offset, bytes) in order; what is between them is holes."""
        for offset, chunk in entry.place(self.object, self._chunks(entry)):
            yield offset, self.dataset.fetch(self.object, chunk, 1, self.id_key)

    def tree_digest(self) -> bytes:
        """Hash the entries with their content; how it is chunked, and where holes are, does not matter."""
        tree, firsts = blake3(), {b"": b""}
        for e in self.entries():
            first = firsts.setdefault(e.link, e.path)
            content = content_digest(self.entry_pieces(e))
            line = (e.path, e.kind, e.mode, e.mtime_ns, e.size, e.xattrs, e.target, content, first)
            tree.update(msgspec.msgpack.encode(line))
        return tree.digest()


def check_marker(directory: Path) -> None:
    name = "datasync.json"
    with refusing(name, "not a repository marker"):
        data = (directory / name).read_bytes()
        need(len(data) <= 4096, name, "larger than 4,096 bytes")
        marker = json.loads(data.decode("ascii"))
        text = json.dumps(marker, sort_keys=True, separators=(",", ":")) + "\n"
        stored = marker.pop("hash")
        body = json.dumps(marker, sort_keys=True, separators=(",", ":"))
        need(digest(body.encode()).hex() == stored, name, "its hash does not match")
        need(text.encode() == data, name, "not in its one form")
        need(type(marker["version"]) is int and marker["version"] >= 1, name, "wrong version")
        need(marker["version"] == 1, name, "made by a newer datasync")
        need(set(marker) == {"created", "format", "naming", "repository", "version"}, name, "wrong members")
        named = marker["format"] == "datasync" and marker["naming"] in ("numbered", "hashed")
        dated = re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", marker["created"])
        need(named and dated and re.fullmatch("[0-9a-f]{32}", marker["repository"]), name, "wrong value")


def open_repository(directory: Path, identity: Identity | None = None, passphrase: str | None = None) -> list[Dataset]:
    """Open every dataset with the given secrets; refuse if one does not open."""
    check_marker(directory)
    folders = sorted(p.name for p in (directory / "d").iterdir()) if (directory / "d").is_dir() else []
    for folder in folders:
        need(re.fullmatch("[0-9a-f]{64}", folder), f"d/{folder}", "not a dataset id")
    return [Dataset(directory, bytes.fromhex(folder), identity, passphrase) for folder in folders]


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the datasets, snapshots and tree digests of a repository.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--identity", type=Path, required=True, help="TOML file with mlkem_seed and x25519 in hex")
    arguments = parser.parse_args()
    secrets = tomllib.loads(arguments.identity.read_text())
    identity = Identity(bytes.fromhex(secrets["mlkem_seed"]), bytes.fromhex(secrets["x25519"]))
    for dataset in open_repository(arguments.directory, identity):
        print(f"dataset {dataset.id.hex()} {dataset.name}")
        for snapshot in dataset.snapshots():
            print(f"snapshot {snapshot.seq} {snapshot.id.hex()} tree {snapshot.tree_digest().hex()}")
        if head := dataset.head():
            print(f"head {head.n} names snapshot {head.seq}")
        for tag, (seq, _) in dataset.tags().items():
            print(f"tag {tag} names snapshot {seq}")


if __name__ == "__main__":
    main()
