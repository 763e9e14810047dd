"""Vectors of docs/format.md, sections 1 to 7: what needs no pack."""

import base64
import json
from functools import cache
from typing import Any

import msgspec

from datasync.crypto import slots
from datasync.crypto.aead import BOX_OVERHEAD, seal_box
from datasync.crypto.hashing import hash_bytes
from datasync.crypto.kdf import Argon2Cost, FixedKeys, derive
from datasync.crypto.recipients import HYBRID, X25519
from datasync.crypto.signatures import SigningKey, signer_text
from datasync.crypto.slots import Binding
from datasync.format import signed as plain
from datasync.format.encoding import encode, padme
from datasync.format.keyset import SUITE, Argon2Params, Keyset, SealedParams, Slot, write_keyset
from datasync.format.marker import Marker, write_marker
from datasync.format.names import numbered, pack_name
from datasync.format.signed import Signature, write_plain, write_signed
from datasync.format.trust import AUDITOR, OWNER, PUSH_ONLY, TAGGER, WRITER, Principal, TrustRoot, write_trust
from datasync.model.ids import ZERO_ID
from datasync.repository.keyring import key_pair, link_epochs, public_keys
from tests.vectors.fixed import (
    DAY,
    EPOCHS,
    OWNER as OWNER_KEY,
    READER,
    READER_SEED,
    SECOND,
    TAGGER as TAGGER_KEY,
    TIME,
    WRITER as WRITER_KEY,
    KeptSeals,
    randomness,
    xof,
)
from tests.vectors.notation import to_text
from tests.vectors.section import Section, replaced
from tests.vectors.two_keys import two_key_ciphertext

PASSPHRASE = "Ångström, correct horse"  # NFC and NFD differ


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
    for why, change in {
        "unknown field": {"extra": 1},
        "unknown naming": {"naming": "dated"},
        "repository id of 31 digits": {"repository": "0" * 31},
        "repository id that is a number": {"repository": 7},
        "time without a zone": {"created": "2026-11-30T08:20:45"},
        "version true": {"version": True},
        "version as text": {"version": "1"},
    }.items():
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
    for number in (1, 2, 9, 10, 4096, 2**63 - 1, 10**20 - 2):
        section.add(f"number {number}", kind="numbered", number=str(number), digest=None, component=numbered(number))
    digest = xof("digest")
    section.add("hashed", kind="numbered", number="7", digest=digest, component=numbered(7, digest))
    section.add("pack", kind="pack", dataset=xof("d"), pack=xof("p"), component=pack_name(xof("d"), xof("p")))
    for name in ("imagenet", "a", "x" * 128, "v1.2", "数据集", "with space", "..."):
        section.add(f"name {name[:12]}", kind="name", component=name)
    digits = numbered(7)
    for bad in (digits[1:], "0" + digits, digits + "-", digits + "-" + "A" * 64, digits + "-" + "a" * 63, digits + "\n"):
        _refuse_text(section, "numbered", bad, "expected a numbered name", "FormatError")
    _refuse_text(section, "numbered", "9" * 20, "numbers start at 1", "FormatError")
    _refuse_text(section, "numbered", "٠" * 20, "expected a numbered name", "FormatError")
    for bad in ("", "x" * 129, ".", "..", "-rf", "a@b", "a:b", "a/b", "a\0b", "a\nb", "\x7f"):
        _refuse_text(section, "name", bad, "expected 1 to 128 printable characters", "UsageError")
    return section


def _refuse_text(section: Section, kind: str, text: str, message: str, error: str) -> None:
    section.refusals.append({"name": f"{kind} {text[:24]!r}", "kind": kind, "text": text, "error": error, "message": message})


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
                {"name": why, "kind": kind, "text": what, "error": "UsageError", "message": "expected a line that starts with"}
            )
    return section


def _other_check(public: bytes) -> str:
    return base64.b32encode(public + hash_bytes(b"datasync/v1/other" + public)[:4]).decode().lower().rstrip("=")


def keys() -> Section:
    """Section 4: every key of an epoch from its root."""
    section = Section("4, keys")
    for epoch, held in EPOCHS.items():
        data, fixed = held.data, FixedKeys.from_metadata(held.metadata)
        if held.root is None or data is None:
            raise AssertionError("the fixed epochs have root keys")
        section.add(
            f"epoch {epoch}",
            root=held.root,
            data=data,
            metadata=held.metadata,
            chain=derive(held.root, b"datasync/v1/chain"),
            metadata_chain=derive(held.metadata, b"datasync/v1/metadata-chain"),
            data_salt=derive(data, b"datasync/v1/salt"),
            metadata_salt=derive(held.metadata, b"datasync/v1/salt"),
            data_public_hash=hash_bytes(key_pair(data).recipient.public),
            metadata_public_hash=hash_bytes(key_pair(held.metadata).recipient.public),
            **({"id_key": fixed.id_key, "page_cut": fixed.page_cut, "link": fixed.link} if epoch == 1 else {}),
            **({"chunker_seed": f"{fixed.chunker_seed:016x}"} if epoch == 1 else {}),
        )
    return section


def box() -> Section:
    """Section 2: boxes, and one ciphertext under two keys."""
    section = Section("2, box")
    keys_ = xof("box key"), xof("other box key")
    for name, text in (("short", b"imagenet"), ("empty", b"")):
        with randomness(f"box {name}"):
            sealed = seal_box(keys_[0], "name", xof("dataset"), text)
        section.add(name, key=keys_[0], label="name", context=xof("dataset"), plaintext=text, box=sealed)
        section.base(name, sealed)
    sealed, commitment = section.held("short"), "the key commitment does not match"
    for why, at in (("salt", 0), ("commitment", 32), ("last byte of the commitment", 63)):
        bad = sealed[:at] + bytes((sealed[at] ^ 1,)) + sealed[at + 1 :]
        section.refuse("short", f"{why} edited", bad, commitment, "IntegrityError")
    section.refuse("short", "commitment zeroed", sealed[:32] + bytes(32) + sealed[64:], commitment, "IntegrityError")
    section.refuse("short", "commitment stripped", sealed[:32] + sealed[64:], "expected at least 80 bytes", "IntegrityError")
    for why, at in (("ciphertext", 64), ("tag", len(sealed) - 1)):
        bad = sealed[:at] + bytes((sealed[at] ^ 1,)) + sealed[at + 1 :]
        section.refuse("short", f"{why} edited", bad, "authentication failed", "IntegrityError")
    section.refuse("short", "byte added", sealed + b"\0", "authentication failed", "IntegrityError")
    section.refuse("short", "cut", sealed[: BOX_OVERHEAD - 1], "expected at least 80 bytes", "IntegrityError")
    _two_keys(section, keys_)
    return section


def _two_keys(section: Section, keys_: tuple[bytes, bytes]) -> None:
    salt, info = xof("two-key salt"), b"datasync/v1/box/name\0" + xof("dataset")
    okms = [derive(key, info, 64, salt=salt) for key in keys_]
    text = two_key_ciphertext(okms[0][:32], okms[1][:32], xof("two-key ciphertext", 48))
    for number, okm in enumerate(okms):
        section.add(
            f"two keys, commitment of key {number}",
            kind="two keys",
            label="name",
            context=xof("dataset"),
            key=keys_[number],
            other_key=keys_[1 - number],
            box=salt + okm[32:] + text,
            message="the key commitment does not match",
        )


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
    section.refuse_field("one signature", "65 signatures", [1], [[bytes(31) + bytes((n,)), bytes(64)] for n in range(65)], "does not parse")
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
    with randomness("trust label"):
        context = WRITER_KEY.public
        label = (2).to_bytes(4, "little") + seal_box(EPOCHS[2].metadata, "principal", context, b"build farm")
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
    section.add("object 1", kind="chain", version=1, case="version 1", signatures=list(first.signatures), object_hash=DATASET)
    signatures = sorted((signature(key, "trust", two) for key in keys_), key=lambda item: item.signer)
    stored = write_plain(plain.TRUST, write_signed(two, signatures))
    section.add("object 2", kind="chain", version=2, case="version 2", signatures=signatures, object_hash=hash_bytes(stored))
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


def _recipient_slots(kept: KeptSeals) -> list[tuple[str, Slot]]:
    found = []
    for name, scope, recipient in (
        ("hybrid, root", slots.SCOPE_ROOT, READER.recipient),
        ("hybrid, metadata", slots.SCOPE_METADATA, READER.recipient),
        ("x25519, root", slots.SCOPE_ROOT, READER.x25519_recipient),
    ):
        with randomness(f"slot {name}"), kept.replacing(f"slot, {name}", READER_SEED):
            binding = Binding(DATASET, 2, slots.new_slot_id(), slots.kind_of(recipient), scope)
            sealed, wrapped = slots.wrap_for_recipient(recipient, binding, _carried(scope))
        params = encode(SealedParams(sealed))
        found.append((name, _slot(binding, recipient.fingerprint, params, wrapped)))
    return found


def _carried(scope: int) -> bytes:
    held = EPOCHS[2]
    carried = held.root if scope == slots.SCOPE_ROOT else held.metadata
    if carried is None:
        raise AssertionError("the fixed epochs have root keys")
    return carried


def _passphrase_slot() -> Slot:
    cost = Argon2Cost()
    with randomness("slot argon2id"):
        binding = Binding(DATASET, 2, slots.new_slot_id(), slots.KIND_ARGON2ID, slots.SCOPE_ROOT)
        salt, wrapped = slots.wrap_for_passphrase(PASSPHRASE, binding, _carried(slots.SCOPE_ROOT), cost)
    return _slot(binding, b"", encode(Argon2Params(salt, cost.memory, cost.passes, cost.lanes)), wrapped)


def _slot(binding: Binding, fingerprint: bytes, params: bytes, wrapped: bytes) -> Slot:
    with randomness("slot label"):
        label = (2).to_bytes(4, "little") + seal_box(EPOCHS[2].metadata, "slot", binding.slot, b"laptop")
    return Slot(
        binding.slot, binding.kind, binding.scope, 2, label, fingerprint, params, wrapped, TIME, 0, OWNER_KEY.public
    )


@cache
def all_slots(kept: KeptSeals) -> list[tuple[str, Slot]]:
    """Return one slot of each kind and scope, by name."""
    return [*_recipient_slots(kept), ("argon2id, root", _passphrase_slot())]


def slot_section(kept: KeptSeals) -> Section:
    """Section 7: slots of each kind."""
    section = Section("7, slots", dataset=DATASET.hex(), reader_seed=READER_SEED.hex(), passphrase=PASSPHRASE)
    for name, slot in all_slots(kept):
        read = "argon2-params" if slot.kind == slots.KIND_ARGON2ID else "sealed-params"
        section.add(name, kind="slot", slot=msgspec.structs.replace(slot, params=b""), carried=_carried(slot.scope))
        section.structure(f"{name}, params", read, slot.params)
    for base in ("hybrid, root, params", "argon2id, root, params"):
        section.refuse_encodings(base)
    section.refuse_field("argon2id, root, params", "salt of 16 bytes", [0], bytes(16), "does not parse")
    section.refuse_field("argon2id, root, params", "memory of 33 bits", [1], 2**32, "does not parse")
    for base, path, new, error, message in (
        ("hybrid, root", "scope", 2, "WrongKey", "does not open"),
        ("hybrid, root", "epoch", 1, "WrongKey", "does not open"),
        ("x25519, root", "id", bytes(16).hex(), "WrongKey", "does not open"),
        ("hybrid, root", "wrapped", "flip 0", "IntegrityError", "the key commitment does not match"),
        ("hybrid, root", "wrapped", "flip 32", "IntegrityError", "the key commitment does not match"),
        ("hybrid, root", "wrapped", "flip 64", "IntegrityError", "authentication failed"),
        ("argon2id, root", "wrapped", "flip 32", "WrongKey", "does not open"),
        ("argon2id, root", "passphrase", PASSPHRASE + "!", "WrongKey", "does not open"),
        ("argon2id, root", "memory", 65_535, "IntegrityError", "expected Argon2id of at least"),
        ("argon2id, root", "memory", 4_194_305, "IntegrityError", "expected Argon2id of at least"),
        ("argon2id, root", "passes", 2, "IntegrityError", "expected Argon2id of at least"),
        ("argon2id, root", "passes", 65, "IntegrityError", "expected Argon2id of at least"),
        ("argon2id, root", "lanes", 0, "IntegrityError", "expected Argon2id of at least"),
        ("argon2id, root", "lanes", 17, "IntegrityError", "expected Argon2id of at least"),
    ):
        section.refusals.append(
            {"name": f"{path} {new}", "base": base, "kind": "slot", "field": path, "new": new, "error": error, "message": message}
        )
    return section


def keyset_body(kept: KeptSeals) -> bytes:
    """Return the body of keyset version 2: two epochs, every kind of slot."""
    older, newest = EPOCHS[1], EPOCHS[2]
    found = [slot for _, slot in all_slots(kept)]
    with randomness("keyset"):
        chain = (link_epochs(DATASET, older, newest),)
        name = seal_box(newest.metadata, "name", DATASET, b"imagenet")
    public = (public_keys(older), public_keys(newest))
    trust_hash = xof("stored trust root 2")
    ordered = tuple(sorted(found, key=lambda slot: slot.id))
    previous = xof("stored keyset 1")
    return write_keyset(Keyset(DATASET, 2, previous, (2, trust_hash), TIME, SUITE, 2, name, chain, public, ordered))


def keyset(kept: KeptSeals) -> Section:
    """Section 7: the keyset."""
    roots = {str(epoch): xof(f"root {epoch}").hex() for epoch in EPOCHS}
    section = Section("7, keyset", dataset=DATASET.hex(), roots=roots, name="imagenet")
    body = section.structure("two epochs", "keyset", keyset_body(kept))
    signed_by = [signature(OWNER_KEY, "keyset", body)]
    stored = write_plain(plain.KEYSET, write_signed(body, signed_by))
    section.add("object", kind="object", case="two epochs", signatures=signed_by, object_hash=hash_bytes(stored))
    section.refuse_encodings("two epochs")
    chain, order = "expected a chain and public keys", "expected slots sorted by id"
    section.refuse_field("two epochs", "suite 2", [5], 2, "expected suite 1, found 2")
    section.refuse_field("two epochs", "epoch 1 with a chain", [6], 1, chain)
    section.refuse_field("two epochs", "epoch 3 without a chain", [6], 3, chain)
    section.refuse_field("two epochs", "no chain", [8], [], chain)
    section.refuse_field("two epochs", "chain of another epoch", [8, 0, 0], 2, chain)
    section.refuse_field("two epochs", "public keys of one epoch", [9], lambda old: old[:1], chain)
    section.refuse_field("two epochs", "version 0", [1], 0, order)
    section.refuse_field("two epochs", "slots not sorted", [10, 0, 0], b"\xff" * 16, order)
    section.refuse_field("two epochs", "a slot id twice", [10, 1, 0], lambda old: min(s.id for _, s in all_slots(kept)), order)
    for why, path, new in (
        ("epoch 0", [6], 0),
        ("epoch 65536", [6], 65_536),
        ("dataset id of 31 bytes", [0], bytes(31)),
        ("trust without a hash", [3], [2]),
        ("name as text", [7], "imagenet"),
        ("data public key of 1215 bytes", [9, 0, 0], lambda old: old[:-1]),
        ("slot id of 15 bytes", [10, 0, 0], bytes(15)),
        ("kind of 9 bits", [10, 0, 1], 256),
        ("negative epoch of a slot", [10, 0, 3], -1),
        ("granted by of 31 bytes", [10, 0, 10], bytes(31)),
        ("one field of a slot missing", [10, 0], lambda old: old[:-1]),
    ):
        section.refuse_field("two epochs", why, path, new, "does not parse")
    _refuse_keys(section, body)
    return section


def _refuse_keys(section: Section, body: bytes) -> None:
    """What parses but does not go with the keys that its slots carry."""
    swap = replaced(body, [9], lambda old: [[old[1][0], old[0][1]], old[1]])
    swap_metadata = replaced(body, [9], lambda old: [[old[0][0], old[1][1]], old[1]])
    other = link_of(EPOCHS[2].metadata)
    commitment = "the key commitment does not match"
    for why, bad, message in (
        ("another data public key", swap, "the public keys of epoch 1 are not the dataset's"),
        ("another metadata public key", swap_metadata, "the public keys of epoch 1 are not the dataset's"),
        ("another metadata key wrapped", replaced(body, [8, 0, 2], other), "a metadata key that is not its root key's"),
        ("chain commitment edited", replaced(body, [8, 0, 1], lambda old: old[:40] + bytes(24) + old[64:]), commitment),
        ("name commitment edited", replaced(body, [7], lambda old: old[:40] + bytes(24) + old[64:]), commitment),
    ):
        section.refuse("two epochs", why, bad, message, "IntegrityError")
        section.refusals[-1]["kind"] = "open"


def link_of(metadata: bytes) -> bytes:
    """Return a wrapped metadata key of epoch 1 that its root key does not make."""
    context = DATASET + (1).to_bytes(4, "little")
    with randomness("another link"):
        return seal_box(derive(metadata, b"datasync/v1/metadata-chain"), "metadata-chain", context, xof("not M_1"))


KEMS = {"hybrid": HYBRID, "x25519": X25519}


def hpke(kept: KeptSeals) -> Section:
    """Section 4: all HPKE ciphertexts that other files use, and plain ones; run last."""
    section = Section("4, HPKE; made once, kept for ever")
    for name, kem in KEMS.items():
        kept.seal(f"text, {name}", kem, READER_SEED, b"any text", b"any info")
    seen: dict[str, dict[str, Any]] = {}
    for case in kept.cases:
        seen.setdefault(case["name"], case)
    section.cases = list(seen.values())
    for base in ("text, hybrid", "text, x25519"):
        for why in ("flip first", "flip last", "cut", "add", "empty", "other info", "other seed"):
            section.refusals.append({"name": why, "base": base, "error": "WrongKey", "message": "does not open the sealed key"})
    return section
