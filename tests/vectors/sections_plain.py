"""Vectors of docs/format.md, sections 1 to 3 and 6, and of what section 2 and 4 say about signatures and text forms."""

import base64
import json
from typing import Any

from datasync.crypto.aead import seal_box
from datasync.crypto.hashing import hash_bytes
from datasync.crypto.signatures import SigningKey, signer_text
from datasync.format import signed as plain
from datasync.format.encoding import padme
from datasync.format.labels import HolderLabel, write_label
from datasync.format.marker import Marker, write_marker
from datasync.format.names import numbered, pack_name
from datasync.format.signed import Signature, write_plain, write_signed
from datasync.format.trust import AUDITOR, OWNER, PUSH_ONLY, TAGGER, WRITER, Principal, TrustRoot, write_trust
from datasync.model.ids import ZERO_ID
from tests.vectors.fixed import (
    DAY,
    EPOCHS,
    READER,
    SECOND,
    TIME,
    randomness,
    xof,
)
from tests.vectors.fixed import (
    OWNER as OWNER_KEY,
)
from tests.vectors.fixed import (
    TAGGER as TAGGER_KEY,
)
from tests.vectors.fixed import (
    WRITER as WRITER_KEY,
)
from tests.vectors.notation import to_text
from tests.vectors.section import Section, replaced


def signature(key: SigningKey, kind: str, body: bytes) -> Signature:
    """Return *key*'s signature of *body*."""
    return Signature(key.public, key.sign(kind, body))


def marker() -> Section:
    """Section 3."""
    section = Section("3")
    data = write_marker(Marker(xof("repository", 16).hex(), "2026-11-30T08:20:45Z", "numbered"), hash_bytes)
    section.structure("numbered", "marker", data)
    section.structure("hashed", "marker", write_marker(Marker("0" * 32, "2030-01-01T00:00:00Z", "hashed"), hash_bytes))
    damaged = "its hash does not match its fields"
    fields = "expected the fields of format version 1"
    newer = _rehash(data, version=2, pages="new")
    section.refuse("numbered", "one byte changed", data.replace(b'"numbered"', b'"nUmbered"'), damaged)
    section.refuse("numbered", "newer version, wrong hash", data.replace(b'"version":1', b'"version":2'), damaged)
    section.refuse("numbered", "newer version, right hash", newer, "made by a newer datasync", "NewerFormat")
    section.refuse("numbered", "white space", data.replace(b'","', b'", "', 1), damaged)
    section.refuse("numbered", "trailing byte", data + b"\n", damaged)
    section.refuse("numbered", "no line end", data[:-1], damaged)
    section.refuse("numbered", "cut in the middle", data[: len(data) // 2], damaged)
    section.refuse("numbered", "a list", b"[]\n", damaged)
    edits: dict[str, dict[str, Any]] = {
        "unknown field": {"extra": 1},
        "unknown naming": {"naming": "dated"},
        "repository id of 31 digits": {"repository": "0" * 31},
        "repository id that is a number": {"repository": 7},
        "time without a zone": {"created": "2026-11-30T08:20:45"},
        "version true": {"version": True},
        "version as text": {"version": "1"},
    }
    for why, change in edits.items():
        section.refuse("numbered", why, _rehash(data, **change), fields)
    section.refuse("numbered", "version 0", _rehash(data, version=0), "expected format datasync version 1")
    section.refuse("numbered", "another format", _rehash(data, format="other"), "expected format datasync version 1")
    return section


def _rehash(data: bytes, **changes: Any) -> bytes:
    fields = json.loads(data) | changes
    del fields["hash"]
    text = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    fields["hash"] = hash_bytes(text).hex()
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def names() -> Section:
    """Section 1: numbers in names, pack names; section 12: names of datasets and tags."""
    section = Section("1 and 12")
    for number in (1, 2, 9, 10, 4096, 2**63 - 1, 10**20 - 1):
        section.add(f"number {number}", kind="numbered", number=str(number), digest=None, component=numbered(number))
    digest = xof("digest")
    section.add("hashed", kind="numbered", number="7", digest=digest, component=numbered(7, digest))
    section.add("pack", kind="pack", dataset=xof("d"), pack=xof("p"), component=pack_name(xof("d"), xof("p")))
    for name in ("imagenet", "a", "x" * 128, "v1.2", "数据集", "with space", "..."):
        section.add(f"name {name[:12]}", kind="name", component=name)
    digits = numbered(7)
    for bad in (
        digits[1:],
        "0" + digits,
        digits + "-",
        digits + "-" + "A" * 64,
        digits + "-" + "a" * 63,
        digits + "\n",
    ):
        _refuse_text(section, "numbered", bad, "expected a numbered name", "FormatError")
    _refuse_text(section, "numbered", "9" * 20, "numbers start at 1", "FormatError")
    _refuse_text(section, "numbered", "٠" * 20, "expected a numbered name", "FormatError")
    for bad in ("", "x" * 129, ".", "..", "-rf", "a@b", "a:b", "a/b", "a\0b", "a\nb", "\x7f"):
        _refuse_text(section, "name", bad, "expected 1 to 128 printable characters", "UsageError")
    return section


def _refuse_text(section: Section, kind: str, text: str, message: str, error: str) -> None:
    section.refusals.append(
        {"name": f"{kind} {text[:24]!r}", "kind": kind, "text": text, "error": error, "message": message}
    )


def sizes() -> Section:
    """Section 2: padded sizes."""
    section = Section("2, padded size")
    lengths = [0, 1, 65_535, 65_536, 65_537, 67_584, 67_585, 100_000, 131_071, 131_072, 131_073, 1_000_000]
    for length in (*lengths, 16 * 2**20, 2**25 - 1, 2**25, 2**25 + 1):
        section.add(str(length), length=length, padded=padme(length))
    return section


def text_forms() -> Section:
    """Section 4: recipients and signers as text."""
    section = Section("4, text forms")
    for kind, public, text in (
        ("recipient-h", READER.recipient.public, READER.recipient.text),
        ("recipient-x", READER.x25519_recipient.public, READER.x25519_recipient.text),
        ("signer", OWNER_KEY.public, signer_text(OWNER_KEY.public)),
    ):
        section.add(kind, kind=kind, public=public, text=text)
        flipped = text[:-1] + ("a" if text[-1] != "a" else "q")
        swapped = "dss1" + text[4:] if kind != "signer" else "dsr1x" + text[4:]
        wrong = text[:9] + ("b" if text[9] != "b" else "c") + text[10:]
        bad = {
            "check digit changed": flipped,
            "key digit changed": wrong,
            "last digit missing": text[:-1],
            "prefix of another kind": swapped,
            "capitals": text.upper(),
            "padded": text + "=",
            "white space inside": text[:12] + " " + text[12:],
            "check of another domain": text[: 5 if kind != "signer" else 4] + _other_check(public),
        }
        for why, what in list(bad.items())[: 1 if kind == "recipient-h" else None]:
            section.refusals.append(
                {
                    "name": why,
                    "kind": kind,
                    "text": what,
                    "error": "UsageError",
                    "message": "expected a line that starts with",
                }
            )
    return section


def _other_check(public: bytes) -> str:
    return base64.b32encode(public + hash_bytes(b"datasync/v1/other" + public)[:4]).decode().lower().rstrip("=")


def signed() -> Section:
    """Section 2: signatures."""
    section = Section("2, signed")
    body = b"any body"
    both = [signature(key, "head", body) for key in (OWNER_KEY, WRITER_KEY)]
    one = section.structure("one signature", "signed", write_signed(body, both[:1]))
    two = section.structure("two signatures", "signed", write_signed(body, both))
    for name, data in (("one signature", one), ("two signatures", two)):
        section.add(f"{name}, checked", kind="verify", sign_kind="head", bytes=data)
    section.base("one signature, checked", one)
    section.refuse_encodings("one signature")
    order = "expected signatures sorted by signer"
    section.refuse_field("two signatures", "signers not sorted", [1], lambda old: old[::-1], order)
    section.refuse_field("one signature", "a signer twice", [1], lambda old: old * 2, order)
    section.refuse_field("one signature", "no signature", [1], [], "does not parse")
    section.refuse_field(
        "one signature",
        "65 signatures",
        [1],
        [[bytes(31) + bytes((n,)), bytes(64)] for n in range(65)],
        "does not parse",
    )
    section.refuse_field("one signature", "signer of 31 bytes", [1, 0, 0], lambda old: old[:-1], "does not parse")
    section.refuse_field("one signature", "signature of 65 bytes", [1, 0, 1], lambda old: old + b"\0", "does not parse")
    section.refuse_field("one signature", "body as text", [0], "any body", "does not parse")
    for why, new in (
        ("body changed", write_signed(b"any bodY", both[:1])),
        ("signature of another kind", write_signed(body, [signature(OWNER_KEY, "tags", body)])),
        ("signature of another signer", write_signed(body, [Signature(both[1].signer, both[0].signature)])),
        ("one of two does not hold", write_signed(body, [both[0], Signature(both[1].signer, both[0].signature)])),
    ):
        section.refuse("one signature, checked", why, new, "does not hold", "IntegrityError")
    return section


def plain_object() -> Section:
    """Section 2: plain objects."""
    section = Section("2, plain object")
    data = section.structure("trust", "plain-trust", write_plain(plain.TRUST, b"payload"))
    section.structure("empty keyset", "plain-keyset", write_plain(plain.KEYSET, b""))
    section.structure("above the floor", "plain-keyset", write_plain(plain.KEYSET, b"\xaa" * 70_000))
    other, size = "expected a trust object, found other bytes", "does not make an object of"
    section.refuse("trust", "wrong magic", b"DSYNPLN2" + data[8:], other)
    section.refuse("trust", "kind of a keyset", data[:8] + b"\2" + data[9:], other)
    section.refuse("trust", "kind 3", data[:8] + b"\3" + data[9:], other)
    section.refuse("trust", "reserved byte set", data[:10] + b"\1" + data[11:], other)
    section.refuse("trust", "shorter than its header", data[:15], other)
    section.refuse("trust", "empty", b"", other)
    section.refuse("trust", "padding not zero at its start", data[:23] + b"\1" + data[24:], "expected zero padding")
    section.refuse("trust", "padding not zero at its end", data[:-1] + b"\1", "expected zero padding")
    section.refuse("trust", "payload length in the padding", data[:12] + b"\6" + data[13:], "expected zero padding")
    section.refuse("trust", "one byte more", data + b"\0", size)
    section.refuse("trust", "one byte less", data[:-1], size)
    section.refuse("trust", "no padding", data[:23], size)
    section.refuse("trust", "length over the limit", data[:12] + (2**24 + 1).to_bytes(4, "little") + data[16:], size)
    section.refuse("trust", "length over the object", data[:12] + (2**16).to_bytes(4, "little") + data[16:], size)
    return section


def first_trust() -> bytes:
    """Return trust root version 1 as stored; its hash is the dataset id of all vectors."""
    people = sorted(
        (
            Principal(OWNER_KEY.public, OWNER | WRITER, b"", TIME, 0, None),
            Principal(SECOND.public, OWNER, b"", TIME, 0, None),
        ),
        key=lambda item: item.signer,
    )
    body = write_trust(TrustRoot(1, ZERO_ID, ZERO_ID, TIME, 0, 2, tuple(people)))
    return write_plain(plain.TRUST, write_signed(body, [signature(key, "trust", body) for key in (OWNER_KEY, SECOND)]))


DATASET = hash_bytes(first_trust())


def second_trust_body() -> bytes:
    """Return the body of version 2: more principals, one removed, one with a sealed label."""
    text = write_label(HolderLabel("build farm", b"", WRITER_KEY.public))
    with randomness("trust label"):
        context = WRITER_KEY.public
        label = (2).to_bytes(4, "little") + seal_box(EPOCHS[2].metadata, "principal", context, text)
    people = [
        Principal(OWNER_KEY.public, OWNER | WRITER, b"", TIME, 0, None),
        Principal(SECOND.public, OWNER, b"", TIME, 0, None),
        Principal(WRITER_KEY.public, WRITER, label, TIME + 1, TIME + 90 * DAY, None),
        Principal(TAGGER_KEY.public, TAGGER | AUDITOR, b"", TIME + 1, 0, None),
        Principal(SigningKey(xof("removed writer")).public, PUSH_ONLY, b"", TIME, 0, (7, xof("snapshot 7"))),
    ]
    ordered = tuple(sorted(people, key=lambda item: item.signer))
    return write_trust(TrustRoot(2, DATASET, DATASET, TIME + 1, TIME + 365 * DAY, 1, ordered))


def trust() -> Section:
    """Section 6."""
    section = Section("6", dataset=DATASET.hex())
    first = plain.read_signed(plain.read_plain(plain.TRUST, first_trust(), "trust"), "trust")
    one = section.structure("version 1", "trust", first.body)
    two = section.structure("version 2", "trust", second_trust_body())
    keys_ = (OWNER_KEY, SECOND)
    section.add(
        "object 1", kind="chain", version=1, case="version 1", signatures=list(first.signatures), object_hash=DATASET
    )
    signatures = sorted((signature(key, "trust", two) for key in keys_), key=lambda item: item.signer)
    stored = write_plain(plain.TRUST, write_signed(two, signatures))
    section.add(
        "object 2", kind="chain", version=2, case="version 2", signatures=signatures, object_hash=hash_bytes(stored)
    )
    section.refuse_encodings("version 2")
    order, first_only = "expected principals sorted by signer", "expected zero dataset id and previous hash"
    section.refuse_field("version 2", "principals not sorted", [6], lambda old: old[::-1], order)
    section.refuse_field("version 2", "a principal twice", [6], lambda old: [old[0], *old], order)
    section.refuse_field("version 1", "version 1 with a dataset id", [1], DATASET, first_only)
    section.refuse_field("version 1", "version 1 with a previous hash", [2], DATASET, first_only)
    section.refuse_field("version 2", "version 2 without a dataset id", [1], ZERO_ID, first_only)
    section.refuse_field("version 2", "version 2 without a previous hash", [2], ZERO_ID, first_only)
    section.refuse_field("version 1", "version 0", [0], 0, first_only)
    for why, path, new in (
        ("negative version", [0], -1),
        ("version of 64 bits", [0], 2**63),
        ("dataset id of 31 bytes", [1], bytes(31)),
        ("time of 64 bits", [3], 2**63),
        ("threshold 0", [5], 0),
        ("threshold 65", [5], 65),
        ("no principals", [6], []),
        ("signer of 33 bytes", [6, 0, 0], bytes(33)),
        ("roles of 9 bits", [6, 0, 1], 256),
        ("label as text", [6, 0, 2], ""),
        ("removed with one field", [6, 0, 5], [7]),
        ("removed with a short id", [6, 0, 5], [7, bytes(31)]),
        ("removed false", [6, 0, 5], False),
    ):
        section.refuse_field("version 2", why, path, new, "does not parse")
    _refuse_chains(section, one, two)
    return section


def _refuse_chains(section: Section, one: bytes, two: bytes) -> None:
    """Version 2 that does not follow version 1 is refused; each is a body and who signs it."""
    owners = [OWNER_KEY, SECOND]
    for why, body, keys_, message in (
        ("one owner of two signs", two, owners[:1], "signatures"),
        ("only new principals sign", two, [WRITER_KEY, TAGGER_KEY], "signatures"),
        ("another previous", replaced(two, [2], xof("elsewhere")), owners, "does not follow version 1"),
        ("another dataset", replaced(two, [1], xof("elsewhere")), owners, "does not follow version 1"),
        ("another version", replaced(two, [0], 3), owners, "it says version 3"),
    ):
        signatures = sorted((signature(key, "trust", body) for key in keys_), key=lambda item: item.signer)
        section.refusals.append(
            {
                "name": why,
                "kind": "chain",
                "body": to_text(body),
                "signatures": [{"signer": item.signer.hex(), "signature": item.signature.hex()} for item in signatures],
                "error": "IntegrityError",
                "message": message,
            }
        )
