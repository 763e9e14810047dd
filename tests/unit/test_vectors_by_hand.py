"""The vectors hold by docs/format.md alone: recomputed from primitives, without any code of datasync."""

import base64
import hashlib
import hmac
import json
import struct
import unicodedata
from math import floor, log2
from typing import Any

import msgspec
import pytest
import zstandard
from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from tests.vectors.fixed import FOLDER
from tests.vectors.notation import to_bytes

Case = dict[str, Any]


def load(file: str) -> Case:
    found: Case = json.loads((FOLDER / f"{file}.json").read_text(encoding="ascii"))
    return found


def of_kind(file: str, kind: str) -> list[Case]:
    return [case for case in load(file)["cases"] if case.get("kind") == kind]


def hkdf(key: bytes, info: str | bytes, length: int = 32, salt: bytes = b"") -> bytes:
    """RFC 5869 with SHA-512."""
    told = info.encode() if isinstance(info, str) else info
    prk = hmac.new(salt or bytes(64), key, hashlib.sha512).digest()
    block, out = b"", b""
    for count in range(1, -(-length // 64) + 1):
        block = hmac.new(prk, block + told + bytes((count,)), hashlib.sha512).digest()
        out += block
    return out[:length]


def digest(data: bytes, key: bytes | None = None) -> bytes:
    made: bytes = (blake3(data, key=key) if key else blake3(data)).digest()
    return made


def open_box(key: bytes, label: str, context: bytes, box: bytes) -> bytes:
    okm = hkdf(key, b"datasync/v1/box/" + label.encode() + b"\0" + context, 64, box[:32])
    assert okm[32:] == box[32:64]
    return AESGCM(okm[:32]).decrypt(bytes(12), box[64:], None)


def test_keys() -> None:
    for case in load("keys")["cases"]:
        key = {name: to_bytes(value) for name, value in case.items() if name not in ("name", "chunker_seed")}
        assert key["data"] == hkdf(key["root"], "datasync/v1/data")
        assert key["metadata"] == hkdf(key["root"], "datasync/v1/metadata")
        assert key["chain"] == hkdf(key["root"], "datasync/v1/chain")
        assert key["metadata_chain"] == hkdf(key["metadata"], "datasync/v1/metadata-chain")
        assert key["data_salt"] == hkdf(key["data"], "datasync/v1/salt")
        assert key["metadata_salt"] == hkdf(key["metadata"], "datasync/v1/salt")
        if "chunker_seed" in case:
            for name, label in (("id_key", "id"), ("page_cut", "page-cut"), ("link", "link")):
                assert key[name] == hkdf(key["metadata"], f"datasync/v1/{label}")
            seed = int.from_bytes(hkdf(key["metadata"], "datasync/v1/chunker", 8), "little")
            assert int(case["chunker_seed"], 16) == seed & (2**63 - 1)


def test_padded_sizes() -> None:
    for case in load("padme")["cases"]:
        length = case["length"]
        unit = 65_536
        if length > 65_536:
            exponent = floor(log2(length))
            unit = 2 ** (exponent - floor(log2(exponent)) - 1)
        assert case["padded"] == max(65_536, (length + unit - 1) // unit * unit)


def test_numbers_in_names() -> None:
    for case in of_kind("names", "numbered"):
        number = str(10**20 - 1 - int(case["number"])).rjust(20, "0")
        assert case["component"] == number + (f"-{case['digest']}" if case["digest"] else "")


def test_text_forms() -> None:
    for case in load("text_forms")["cases"]:
        public, kem = to_bytes(case["public"]), case["kind"][-1]
        signer = case["kind"] == "signer"
        domain, prefix = (
            (b"datasync/v1/signer", "dss1") if signer else (f"datasync/v1/recipient{kem}".encode(), f"dsr1{kem}")
        )
        check = digest(domain + public)[:4]
        assert case["text"] == prefix + base64.b32encode(public + check).decode().lower().rstrip("=")


def test_the_marker_hashes_itself() -> None:
    for case in load("marker")["cases"]:
        text = to_bytes(case["bytes"]).decode("ascii")
        fields = json.loads(text)
        at = text.index('"hash":')
        without = text[:at] + text[at + len('"hash":"",') + 64 : -1]
        assert digest(without.encode()).hex() == fields["hash"]


@pytest.mark.parametrize("case", load("box")["cases"], ids=lambda case: case["name"])
def test_boxes(case: Case) -> None:
    key, context, box = (to_bytes(case[name]) for name in ("key", "context", "box"))
    opened = open_box(key, case["label"], context, box)
    if case.get("kind") != "two keys":
        assert opened == to_bytes(case["plaintext"])
        return
    info = b"datasync/v1/box/" + case["label"].encode() + b"\0" + context
    other = hkdf(to_bytes(case["other_key"]), info, 64, box[:32])
    also = AESGCM(other[:32]).decrypt(bytes(12), box[64:], None)  # the tag alone stops nothing
    assert also != opened
    assert other[32:] != box[32:64]


@pytest.mark.parametrize("file", ["signed", "tags"])
def test_signatures(file: str) -> None:
    for case in of_kind(file, "verify"):
        body, signatures = msgspec.msgpack.decode(to_bytes(case["bytes"]))
        for signer, signature in signatures:
            message = b"datasync/v1/sign/" + case["sign_kind"].encode() + b"\0" + body
            Ed25519PublicKey.from_public_bytes(signer).verify(signature, message)


def test_slots() -> None:
    document = load("slots")
    kept = {case["name"]: case for case in load("hpke")["cases"]}
    params = {case["name"]: case["value"] for case in document["cases"] if "value" in case}
    for case in of_kind("slots", "slot"):
        slot, found = case["slot"], params[f"{case['name']}, params"]
        place = struct.pack("<I16sBB", slot["epoch"], to_bytes(slot["id"]), slot["kind"], slot["scope"])
        binding = to_bytes(document["dataset"]) + place
        if slot["kind"] == 3:
            secret = unicodedata.normalize("NFC", document["passphrase"]).encode()
            cost = {"iterations": found["passes"], "lanes": found["lanes"], "memory_cost": found["memory"]}
            key = Argon2id(salt=to_bytes(found["salt"]), length=32, **cost).derive(secret)
        elif slot["kind"] >= 16:
            key = to_bytes(case["slot_key"])
            assert slot["fingerprint"] == blake3(b"datasync/v1/kms\0" + case["service"].encode()).hexdigest()
        else:
            sealed = kept[f"slot, {case['name']}"]
            assert (sealed["sealed"], to_bytes(sealed["info"])) == (found["sealed"], b"datasync/v1/slot\0" + binding)
            key = to_bytes(sealed["plaintext"])
        assert open_box(key, "slot-key", binding, to_bytes(slot["wrapped"])) == to_bytes(case["carried"])


@pytest.mark.parametrize("name", ["derived", "sealed"])
def test_packs(name: str) -> None:
    document, id_key = load("pack"), to_bytes(load("ids")["id_key"])
    case = next(case for case in document["cases"] if case["name"] == name)
    data, reference = to_bytes(case["bytes"]), case["reference"]
    head_size = 116 + int.from_bytes(data[112:116], "little")
    header, bound = data[:head_size], data[:48]
    assert bound == struct.pack("<8sBBBBI", b"DSYNPACK", 1, 1, 1, {"derived": 1, "sealed": 2}[name], 2) + to_bytes(
        document["dataset"]
    )
    material = hkdf(to_bytes(document["roots"]["2"]), "datasync/v1/data")
    if name == "sealed":
        kept = next(case for case in load("hpke")["cases"] if case["name"] == "pack key of type 1")
        assert to_bytes(kept["sealed"]) == header[116:]
        assert to_bytes(kept["info"]) == b"datasync/v1/sealed-pack\0" + bound
        assert to_bytes(kept["seed"]) == hkdf(material, "datasync/v1/key-pair", 96)
        material = to_bytes(kept["plaintext"])
    okm = hkdf(material, b"datasync/v1/pack\0" + bound, 64, data[48:80])
    assert okm[32:] == data[80:112]
    cipher = AESGCM(okm[:32])

    def opened(start: int, end: int, what: int, position: int, form: int, raw: int, id_: bytes = bytes(32)) -> bytes:
        aad = header + struct.pack("<BIBI32s", what, position, form, raw, id_)
        return cipher.decrypt(position.to_bytes(12, "little"), data[start:end], aad)

    end, length = len(data) - 4, int.from_bytes(data[-4:], "little")
    footer = opened(end - length, end, 3, 4, 0, length - 16)
    assert int.from_bytes(footer[:4], "little") == 3
    at, salted = head_size, to_bytes(case["random"])
    for position, row in enumerate(struct.iter_unpack("<32sBII", footer[4:])):
        id_, form, raw, stored = row
        text = opened(at, at + stored + 16, 1, position, form, raw, id_)
        plain = zstandard.ZstdDecompressor().decompress(text) if form else text
        assert (len(plain), digest(plain, id_key)) == (raw, id_)
        salted += struct.pack("<32sBI", id_, form, stored) + (digest(text) if form else b"")
        at += stored + 16
    padding = end - length - at - 16
    assert opened(at, end - length, 2, 3, 0, padding) == bytes(padding)
    assert digest(salted + struct.pack("<Q", len(data)), hkdf(material, "datasync/v1/salt")) == data[48:80]
    assert (digest(data).hex(), len(data)) == (reference["id"], reference["size"])
