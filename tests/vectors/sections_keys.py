"""Vectors of docs/format.md, sections 2, 4 and 7, that need keys: the key tree, boxes, HPKE, slots, keysets."""

from functools import cache
from typing import Any

import msgspec

from datasync.crypto import slots
from datasync.crypto.aead import BOX_OVERHEAD, seal_box
from datasync.crypto.hashing import hash_bytes
from datasync.crypto.kdf import Argon2Cost, FixedKeys, derive
from datasync.crypto.recipients import HYBRID, X25519
from datasync.crypto.slots import Binding
from datasync.format import signed as plain
from datasync.format.encoding import encode
from datasync.format.keyset import SUITE, Argon2Params, Keyset, KmsParams, SealedParams, Slot, write_keyset
from datasync.format.labels import HolderLabel, write_label
from datasync.format.signed import write_plain, write_signed
from datasync.repository.keyring import key_pair, link_epochs, public_keys
from tests.vectors.fixed import (
    EPOCHS,
    READER,
    READER_SEED,
    TIME,
    KeptSeals,
    randomness,
    xof,
)
from tests.vectors.fixed import (
    OWNER as OWNER_KEY,
)
from tests.vectors.section import Section, replaced
from tests.vectors.sections_plain import DATASET, signature
from tests.vectors.stand_in import StandIn
from tests.vectors.two_keys import two_key_ciphertext

KMS_URIS = (
    "aws-kms://eu-central-1/1234abcd-12ab-34cd-56ef-1234567890ab",
    "alibaba-kms://cn-hangzhou/key-hzz62f1cb66fa42qo0001",
    "tencent-kms://ap-singapore/23e80852-1e38-11e9-b129-5cb9019b4b01",
    "google-kms://projects/p1/locations/global/keyRings/ring/cryptoKeys/datasets",
    "azure-kv://team.vault.azure.net/datasets/0123456789abcdef0123456789abcdef",
    "vault://transit/datasets",
)
PASSPHRASE = "Ångström, correct horse"  # NFC and NFD differ


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
    section.refuse(
        "short", "commitment stripped", sealed[:32] + sealed[64:], "expected at least 80 bytes", "IntegrityError"
    )
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


def _kms_slots() -> list[tuple[str, Slot, StandIn]]:
    found = []
    for uri in KMS_URIS:
        service = StandIn(uri, xof(f"blob of {uri}", 60))
        with randomness(f"slot {uri}"):
            binding = Binding(DATASET, 2, slots.new_slot_id(), service.uri.kind, slots.SCOPE_ROOT)
            blob, wrapped = slots.wrap_for_kms(service, binding, _carried(slots.SCOPE_ROOT))
        slot = _slot(binding, service.uri.fingerprint, encode(KmsParams(blob)), wrapped)
        found.append((f"{service.uri.scheme}, root", slot, service))
    return found


def _slot(binding: Binding, fingerprint: bytes, params: bytes, wrapped: bytes) -> Slot:
    public = READER.recipient.public if binding.kind == slots.KIND_HYBRID else b""
    text = write_label(HolderLabel("laptop", public, OWNER_KEY.public if public else b""))
    with randomness("slot label"):
        label = (2).to_bytes(4, "little") + seal_box(EPOCHS[2].metadata, "slot", binding.slot, text)
    return Slot(
        binding.slot, binding.kind, binding.scope, 2, label, fingerprint, params, wrapped, TIME, 0, OWNER_KEY.public
    )


@cache
def all_slots(kept: KeptSeals) -> list[tuple[str, Slot]]:
    """Return one slot of each kind that a holder opens alone, and scope, by name."""
    return [*_recipient_slots(kept), ("argon2id, root", _passphrase_slot())]


def slot_section(kept: KeptSeals) -> Section:
    """Section 7: slots of each kind."""
    section = Section("7, slots", dataset=DATASET.hex(), reader_seed=READER_SEED.hex(), passphrase=PASSPHRASE)
    for name, slot in all_slots(kept):
        read = "argon2-params" if slot.kind == slots.KIND_ARGON2ID else "sealed-params"
        section.add(name, kind="slot", slot=msgspec.structs.replace(slot, params=b""), carried=_carried(slot.scope))
        section.structure(f"{name}, params", read, slot.params)
    for name, slot, service in _kms_slots():
        section.add(
            name,
            kind="slot",
            slot=msgspec.structs.replace(slot, params=b""),
            carried=_carried(slot.scope),
            service=service.uri.name,
            context=service.context,
            slot_key=service.key,
        )
        section.structure(f"{name}, params", "kms-params", slot.params)
    for base in ("hybrid, root, params", "argon2id, root, params", "vault, root, params"):
        section.refuse_encodings(base)
    section.refuse_field("vault, root, params", "empty blob", [0], b"", "does not parse")
    section.refuse_field("vault, root, params", "blob of 4097 bytes", [0], bytes(4097), "does not parse")
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
        ("vault, root", "scope", 2, "IntegrityError", "is not its slot key"),
        ("vault, root", "epoch", 1, "IntegrityError", "is not its slot key"),
        ("aws-kms, root", "id", bytes(16).hex(), "IntegrityError", "is not its slot key"),
        ("aws-kms, root", "slot_key", xof("another slot key").hex(), "IntegrityError", "is not its slot key"),
        ("aws-kms, root", "slot_key", bytes(31).hex(), "IntegrityError", "expected a slot key of 32 bytes"),
        ("aws-kms, root", "wrapped", "flip 32", "IntegrityError", "the key commitment does not match"),
        *(
            (name, "wrapped", "cut 32 64", "IntegrityError", "expected a wrapped key of 112 bytes")
            for name in ("hybrid, root", "x25519, root", "argon2id, root", "vault, root")
        ),
    ):
        section.refusals.append(
            {
                "name": f"{path} {new}",
                "base": base,
                "kind": "slot",
                "field": path,
                "new": new,
                "error": error,
                "message": message,
            }
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
    section.refuse_field(
        "two epochs", "a slot id twice", [10, 1, 0], lambda old: min(s.id for _, s in all_slots(kept)), order
    )
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
    _labels(section)
    _shredded(section)
    return section


def _labels(section: Section) -> None:
    for name, label in (
        ("label of a reader", HolderLabel("Rita, lab 4", READER.recipient.public, b"")),
        ("label of a writer", HolderLabel("build farm", READER.recipient.public, OWNER_KEY.public)),
        ("label without keys", HolderLabel("", b"", b"")),
    ):
        section.structure(name, "holder-label", write_label(label))
    section.refuse_encodings("label of a writer")
    long = "a label whose name or signer is too long"
    section.refuse_field("label of a writer", "signer of 31 bytes", [2], bytes(31), long)
    section.refuse_field("label of a writer", "name of 257 bytes", [0], "n" * 257, long)
    section.refuse_field("label of a writer", "name as bytes", [0], b"build farm", "does not parse")


def _shredded(section: Section) -> None:
    """The last keyset of a dataset: nobody's name, no key."""
    last = Keyset(DATASET, 3, xof("stored keyset 2"), (2, xof("stored trust root 2")), TIME, SUITE, 2, b"", (), (), ())
    section.structure("shredded", "keyset", write_keyset(last))
    end = "has to be the last of a shredded dataset"
    section.refuse_field("shredded", "version 1", [1], 1, end)
    section.refuse_field("shredded", "previous of zeros", [2], bytes(32), end)
    section.refuse_field("two epochs", "no name", [7], b"", end)


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
            section.refusals.append(
                {"name": why, "base": base, "error": "WrongKey", "message": "does not open the sealed key"}
            )
    return section
