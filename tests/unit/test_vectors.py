"""The code makes and reads the golden vectors to the letter, and refuses what they say must be refused."""

from types import SimpleNamespace
from unittest.mock import patch

import msgspec
import pytest

from datasync import errors
from datasync.crypto import slots
from datasync.crypto.aead import open_box, seal_box
from datasync.crypto.hashing import hash_bytes, keyed_hash
from datasync.crypto.identity import Identity
from datasync.crypto.kdf import Argon2Cost, EpochKeys, FixedKeys, derive
from datasync.crypto.kms.protocol import KMS_NAMES, parse_key_uri
from datasync.crypto.recipients import KeyPair, Recipient
from datasync.crypto.signatures import SigningKey, parse_signer, signer_text
from datasync.crypto.slots import Binding
from datasync.format import pack as packs
from datasync.format import signed as plain
from datasync.format.encoding import padme
from datasync.format.keyset import Argon2Params, KmsParams, SealedParams, read_keyset
from datasync.format.names import check_name, numbered, pack_name, parse_numbered
from datasync.format.signed import Signature, read_signed, write_plain, write_signed
from datasync.model.entries import Entry
from datasync.pull.fileid import file_id
from datasync.repository.control import SIGN_KINDS, open_control, seal_control
from datasync.repository.holders import Secrets
from datasync.repository.keyring import Keyring, SealingKeys, key_pair, open_name, unchain
from datasync.repository.keysets import ReadKeyset, open_keyset
from datasync.repository.local import LocalCopies
from datasync.repository.packs import Piece, check_pack_id, open_pack, seal_pack
from datasync.repository.trust import Trusted, check_signatures, load_trust
from datasync.storage.memory import MemoryStore
from tests.vectors import generate
from tests.vectors.cases import FILES, Case, changed, every, field, kind_of, load, must_refuse, named
from tests.vectors.codecs import CODECS
from tests.vectors.notation import to_bytes, to_json
from tests.vectors.stand_in import StandIn


def test_the_generator_makes_every_file_and_the_same_bytes_again() -> None:
    assert sorted(f"{name}.json" for name in FILES) == sorted(generate.documents()[0])
    assert generate.differing() == []


def test_every_case_is_of_a_kind_that_is_tested() -> None:
    kinds = {kind_of(file, case) for file in FILES for part in ("cases", "refusals") for case in load(file)[part]}
    text = {"numbered", "pack", "name", "recipient-h", "recipient-x", "signer", "padme"}
    sealed = {"box", "two keys", "hpke", "slot", "control", "pack", "object", "open", "verify", "chain"}
    assert kinds == text | sealed | {"structure", "keys", "hash", "file id"}


@every("structure")
def test_a_structure_has_the_value_and_is_written_back(file: str, case: Case) -> None:
    codec = CODECS[case["read"]]
    value = codec.read(field(case, "bytes"), case["args"])
    assert to_json(value) == case["value"]
    assert codec.write(value, case["args"]) == field(case, "bytes")


@every("structure", "refusals")
def test_a_structure_is_refused(file: str, case: Case) -> None:
    base = named(file, case["base"])
    must_refuse(case, lambda: CODECS[base["read"]].read(changed(file, case), base["args"]))


@every("numbered")
def test_a_number_has_its_name(file: str, case: Case) -> None:
    digest = to_bytes(case["digest"]) if case["digest"] else None
    assert numbered(int(case["number"]), digest) == case["component"]
    assert parse_numbered(case["component"]) == (int(case["number"]), digest)


@every("numbered", "refusals")
def test_a_numbered_name_is_refused(file: str, case: Case) -> None:
    must_refuse(case, lambda: parse_numbered(case["text"]))


@every("name")
def test_a_name_can_name_a_dataset(file: str, case: Case) -> None:
    assert check_name(case["component"], "dataset") == case["component"]


@every("name", "refusals")
def test_a_name_is_refused(file: str, case: Case) -> None:
    must_refuse(case, lambda: check_name(case["text"], "tag"))


def test_a_pack_has_its_name() -> None:
    case = named("names", "pack")
    assert pack_name(field(case, "dataset"), field(case, "pack")) == case["component"]


@every("padme")
def test_a_size_is_padded(file: str, case: Case) -> None:
    assert padme(case["length"]) == case["padded"]


def _parse_text(kind: str, text: str) -> bytes:
    return parse_signer(text) if kind == "signer" else Recipient.parse(text).public


@pytest.mark.parametrize("case", load("text_forms")["cases"], ids=lambda case: case["kind"])
def test_a_public_key_has_its_text(case: Case) -> None:
    public, kind = field(case, "public"), case["kind"]
    assert (signer_text(public) if kind == "signer" else Recipient(kind[-1], public).text) == case["text"]
    assert _parse_text(kind, case["text"]) == public


@pytest.mark.parametrize("case", load("text_forms")["refusals"], ids=lambda case: f"{case['kind']}: {case['name']}")
def test_a_text_form_is_refused(case: Case) -> None:
    must_refuse(case, lambda: _parse_text(case["kind"], case["text"]))


@every("keys")
def test_keys_come_from_the_root_key(file: str, case: Case) -> None:
    root, metadata = field(case, "root"), field(case, "metadata")
    held = EpochKeys.from_root(1, root)
    assert (held.data, held.metadata) == (field(case, "data"), metadata)
    assert derive(root, b"datasync/v1/chain") == field(case, "chain")
    assert derive(metadata, b"datasync/v1/metadata-chain") == field(case, "metadata_chain")
    for name, key in (("data", field(case, "data")), ("metadata", metadata)):
        assert derive(key, b"datasync/v1/salt") == field(case, f"{name}_salt")
        assert hash_bytes(key_pair(key).recipient.public) == field(case, f"{name}_public_hash")
    if "id_key" in case:
        fixed = FixedKeys.from_metadata(metadata)
        assert [fixed.id_key, fixed.page_cut, fixed.link] == [
            field(case, name) for name in ("id_key", "page_cut", "link")
        ]
        assert fixed.chunker_seed == int(case["chunker_seed"], 16)


@pytest.mark.parametrize(("derived", "seed"), [(bytes(8), 1), (b"\xff" * 8, 2**63 - 1), (b"\0" * 7 + b"\x80", 1)])
def test_the_chunker_seed_is_never_zero_and_has_63_bits(derived: bytes, seed: int) -> None:
    with patch("datasync.crypto.kdf.derive", lambda key, info, length=32: derived[:length]):
        assert FixedKeys.from_metadata(bytes(32)).chunker_seed == seed


@every("box")
def test_a_box_opens_and_is_sealed_the_same(file: str, case: Case) -> None:
    key, context, box = field(case, "key"), field(case, "context"), field(case, "box")
    assert open_box(key, case["label"], context, box) == field(case, "plaintext")
    with patch("datasync.crypto.aead.random_bytes", lambda count: box[:count]):
        assert seal_box(key, case["label"], context, field(case, "plaintext")) == box
    for other, label, told in ((bytes(32), "name", context), (key, "slot", context), (key, "name", context + b"\0")):
        with pytest.raises(errors.IntegrityError, match="key commitment"):
            open_box(other, label, told, box)


@every("box", "refusals")
def test_a_box_is_refused(file: str, case: Case) -> None:
    base = named(file, case["base"])
    bad = changed(file, case, "box")
    must_refuse(case, lambda: open_box(field(base, "key"), base["label"], field(base, "context"), bad))


@every("two keys")
def test_a_ciphertext_of_two_keys_opens_only_under_the_committed_one(file: str, case: Case) -> None:
    opened = open_box(field(case, "key"), case["label"], field(case, "context"), field(case, "box"))
    assert len(opened) == 64
    with pytest.raises(errors.IntegrityError, match=case["message"]):
        open_box(field(case, "other_key"), case["label"], field(case, "context"), field(case, "box"))


@every("hpke")
def test_a_kept_ciphertext_opens(file: str, case: Case) -> None:
    pair = KeyPair(field(case, "seed"))
    assert pair.open(case["kem"], field(case, "sealed"), field(case, "info")) == field(case, "plaintext")


@every("hpke", "refusals")
def test_a_changed_ciphertext_is_refused(file: str, case: Case) -> None:
    base = named(file, case["base"])
    sealed, seed, info = field(base, "sealed"), field(base, "seed"), field(base, "info")
    last = len(sealed) - 1
    bad = {
        "flip first": bytes((sealed[0] ^ 1,)) + sealed[1:],
        "flip last": sealed[:last] + bytes((sealed[last] ^ 1,)),
        "cut": sealed[:last],
        "add": sealed + b"\0",
        "empty": b"",
    }.get(case["name"], sealed)
    pair = KeyPair(
        seed[:63] + bytes((seed[63] ^ 1, seed[64], seed[65] ^ 1)) + seed[66:] if case["name"] == "other seed" else seed
    )
    told = info + b"\0" if case["name"] == "other info" else info
    must_refuse(case, lambda: pair.open(base["kem"], bad, told))


def _open_slot(slot: SimpleNamespace, params: bytes, dataset: bytes, passphrase: str, **cost: int) -> bytes:
    binding = Binding(dataset, slot.epoch, to_bytes(slot.id), slot.kind, slot.scope)
    wrapped = to_bytes(slot.wrapped)
    if slot.kind in KMS_NAMES:
        blob = msgspec.msgpack.decode(params, type=KmsParams).blob
        return slots.unwrap_with_kms(StandIn(slot.service, blob, to_bytes(slot.slot_key)), binding, blob, wrapped)
    if slot.kind != slots.KIND_ARGON2ID:
        pair = KeyPair(to_bytes(load("slots")["reader_seed"]))
        sealed = msgspec.msgpack.decode(params, type=SealedParams).sealed
        return slots.unwrap_with_key_pair(pair, binding, sealed, wrapped)
    found = msgspec.structs.replace(msgspec.msgpack.decode(params, type=Argon2Params), **cost)
    argon2 = Argon2Cost(found.memory, found.passes, found.lanes)
    return slots.unwrap_with_passphrase(passphrase, binding, found.salt, argon2, wrapped)


def _slot_of(case: Case) -> Case:
    """Return a slot's fields, and for a KMS kind which service opens it to what."""
    found: Case = {**case["slot"], **{name: case[name] for name in ("service", "slot_key") if name in case}}
    return found


@every("slot")
def test_a_slot_opens(file: str, case: Case) -> None:
    document = load(file)
    params = field(named(file, f"{case['name']}, params"), "bytes")
    slot = SimpleNamespace(**_slot_of(case))
    assert _open_slot(slot, params, to_bytes(document["dataset"]), document["passphrase"]) == field(case, "carried")


@every("slot")
def test_a_key_service_is_told_the_slots_place_and_found_by_its_name(file: str, case: Case) -> None:
    slot = case["slot"]
    if slot["kind"] not in KMS_NAMES:
        assert "service" not in case
        return
    binding = Binding(to_bytes(load(file)["dataset"]), slot["epoch"], to_bytes(slot["id"]), slot["kind"], slot["scope"])
    assert slots.kms_context(binding) == case["context"]
    assert parse_key_uri(case["service"]).fingerprint == to_bytes(slot["fingerprint"])


@every("slot", "refusals")
def test_a_slot_is_refused(file: str, case: Case) -> None:
    document, base, new = load(file), named(file, case["base"]), case["new"]
    slot, passphrase, cost = _slot_of(base), document["passphrase"], {}
    if case["field"] == "passphrase":
        passphrase = new
    elif case["field"] not in slot:
        cost[case["field"]] = new
    elif case["field"] == "wrapped":
        data, (edit, at, *end) = bytearray(to_bytes(slot["wrapped"])), new.split()
        if edit == "cut":
            del data[int(at) : int(*end)]
        else:
            data[int(at)] ^= 1
        slot["wrapped"] = data.hex()
    else:
        slot[case["field"]] = new
    params = field(named(file, f"{case['base']}, params"), "bytes")
    dataset = to_bytes(document["dataset"])
    must_refuse(case, lambda: _open_slot(SimpleNamespace(**slot), params, dataset, passphrase, **cost))


def signatures_of(case: Case) -> list[Signature]:
    return [Signature(field(item, "signer"), field(item, "signature")) for item in case["signatures"]]


@every("verify")
def test_signatures_hold(file: str, case: Case) -> None:
    signed = read_signed(field(case, "bytes"), "vector")
    assert check_signatures(signed, case["sign_kind"], "vector") == [item.signer for item in signed.signatures]


@every("verify", "refusals")
def test_signatures_do_not_hold(file: str, case: Case) -> None:
    kind = named(file, case["base"])["sign_kind"]
    must_refuse(case, lambda: check_signatures(read_signed(changed(file, case), "vector"), kind, "vector"))


def _trust_object(body: bytes, case: Case) -> bytes:
    return write_plain(plain.TRUST, write_signed(body, signatures_of(case)))


def _follow(second: bytes) -> Trusted:
    document, first = load("trust"), named("trust", "object 1")
    dataset, store = to_bytes(document["dataset"]), MemoryStore()
    prefix = f"d/{dataset.hex()}/trust/"
    store.put_if_absent(prefix + numbered(1), _trust_object(field(named("trust", first["case"]), "bytes"), first))
    store.put_if_absent(prefix + numbered(2), second)
    return load_trust(store, LocalCopies(None), dataset)


def test_a_chain_of_trust_roots_is_followed() -> None:
    case = named("trust", "object 2")
    stored = _trust_object(field(named("trust", case["case"]), "bytes"), case)
    assert hash_bytes(stored) == field(case, "object_hash")
    assert _follow(stored).root.version == 2


@every("chain", "refusals")
def test_a_trust_root_that_does_not_follow_is_refused(file: str, case: Case) -> None:
    must_refuse(case, lambda: _follow(_trust_object(field(case, "body"), case)))


def _open_keyset(body: bytes) -> str:
    document = load("keyset")
    keyset = read_keyset(body, "vector")
    newest = EpochKeys.from_root(2, to_bytes(document["roots"]["2"]))
    assert unchain(keyset, newest)[1].root == to_bytes(document["roots"]["1"])
    return open_name(newest.metadata, keyset.dataset, keyset.name)


def test_a_keyset_opens_from_its_newest_root_and_by_its_slots() -> None:
    document, case = load("keyset"), named("keyset", "object")
    body = field(named("keyset", case["case"]), "bytes")
    stored = write_plain(plain.KEYSET, write_signed(body, signatures_of(case)))
    assert hash_bytes(stored) == field(case, "object_hash")
    assert _open_keyset(body) == document["name"]
    found = ReadKeyset(read_keyset(body, "vector"), b"")
    reader = Identity(to_bytes(load("slots")["reader_seed"]), bytes(32))
    by_key = open_keyset(found, Secrets(reader), found.keyset.created)
    by_passphrase = open_keyset(found, Secrets(passphrase=load("slots")["passphrase"]), found.keyset.created)
    assert by_key[1] == by_passphrase[1] == document["name"]
    assert by_key[0].fixed == by_passphrase[0].fixed
    assert by_key[0].fixed.id_key == to_bytes(load("ids")["id_key"])


@every("open", "refusals")
def test_a_keyset_that_is_not_its_keys_is_refused(file: str, case: Case) -> None:
    must_refuse(case, lambda: _open_keyset(changed(file, case)))


def keyring_of(document: Case) -> Keyring:
    roots = document.get("roots") or {"1": load("pack")["roots"]["1"], "2": document["root_2"]}
    epochs = {int(epoch): EpochKeys.from_root(int(epoch), to_bytes(root)) for epoch, root in roots.items()}
    return Keyring(to_bytes(document["dataset"]), epochs, 2)


def _pieces(case: Case) -> list[Piece]:
    return [Piece(field(p, "id"), p["form"], p["raw"], field(p, "stored")) for p in case["pieces"]]


PACKS = [case for case in load("pack")["cases"] if case.get("kind") == "pack"]


@pytest.mark.parametrize("case", PACKS, ids=lambda case: case["name"])
def test_a_pack_is_sealed_the_same_and_opens(case: Case) -> None:
    document, ref = load("pack"), case["reference"]
    keyring = keyring_of(document)
    material, sealed = field(case, "material"), field(ref, "sealed_key")
    salt_key = derive(material, b"datasync/v1/salt")
    keys = SealingKeys(keyring.dataset, ref["source"], ref["epoch"], material, sealed, salt_key)
    with (
        patch("datasync.repository.packs.random_bytes", lambda count: field(case, "random")),
        patch("datasync.repository.packs.shuffle", lambda count: document["order"]),
    ):
        made = seal_pack(keys, case["type"], _pieces(case), memoryview(bytearray(1 << 17)), full=False)
    assert (to_json(made.ref), to_json(made.places)) == (ref, case["places"])
    data = to_bytes(case["bytes"]) if "bytes" in case else bytes(made.data)
    assert bytes(made.data) == data
    check_pack_id(field(ref, "id"), data, "vector")
    _check_opens(keyring, data, case)


def _check_opens(keyring: Keyring, data: bytes, case: Case) -> None:
    opened = open_pack(keyring, data, case["type"], "vector")
    opened.check_padding("vector")
    id_key = to_bytes(load("ids")["id_key"])
    expected = sorted(zip(case["places"], _pieces(case), strict=True), key=lambda item: item[0][0])
    for (row, raw), ((_, offset), piece) in zip(opened.chunks("vector"), expected, strict=True):
        assert (row.id, row.form, row.raw, row.offset) == (piece.id, piece.form, piece.raw, offset)
        assert keyed_hash(id_key, bytes(raw)) == row.id


@pytest.mark.parametrize(
    "case",
    [case for case in load("pack")["refusals"] if case.get("kind") == "pack"],
    ids=lambda case: f"{case['base']}: {case['name']}",
)
def test_a_pack_is_refused(case: Case) -> None:
    keyring = keyring_of(load("pack"))

    def read() -> None:
        opened = open_pack(keyring, changed("pack", case), packs.DATA, "vector")
        opened.check_padding("vector")
        assert list(opened.chunks("vector"))

    must_refuse(case, read)


@every("control")
def test_a_control_object_is_sealed_the_same_and_opens(file: str, case: Case) -> None:
    keyring, signer = keyring_of(load(file)), SigningKey(field(case, "signer_seed"))
    body = field(named(file, case["case"]), "bytes")
    rest = [field(named(file, name), "bytes") for name in case["rest"]]
    assert signer.sign(SIGN_KINDS[case["type"]], body) == field(case, "signature")
    with patch("datasync.repository.packs.random_bytes", lambda count: field(case, "random")):
        data = seal_control(keyring.sealing(case["type"]), case["type"], body, signer, rest)
    assert (len(data), hash_bytes(data)) == (case["size"], field(case, "object_hash"))
    assert data.startswith(field(case, "header"))
    opened = open_control(keyring, case["type"], data, "vector")
    assert (opened.body, opened.signers, opened.rest) == (body, [signer.public], rest)


def test_a_writers_id_key_opens() -> None:
    document = load("snapshot")
    pair = key_pair(EpochKeys.from_root(2, to_bytes(document["root_2"])).metadata)
    dataset = to_bytes(document["dataset"])
    sealed = to_bytes(named("snapshot", "body")["value"]["id_key"])
    assert pair.open("h", sealed, b"datasync/v1/id-key\0" + dataset) == to_bytes(document["writer_id_key"])


@every("hash")
def test_bytes_have_their_ids(file: str, case: Case) -> None:
    assert hash_bytes(field(case, "raw")) == field(case, "hash")
    assert keyed_hash(to_bytes(load(file)["id_key"]), field(case, "raw")) == field(case, "chunk_id")


@every("file id")
def test_a_file_has_its_id(file: str, case: Case) -> None:
    value = case["entry"]
    ids = [field(chunk, "id") for chunk in value["chunks"]]
    holes = tuple((offset, length) for offset, length in value["holes"])
    xattrs = tuple((to_bytes(name), to_bytes(text)) for name, text in value["xattrs"])
    entry = Entry(b"", 1, value["mode"], value["mtime"], value["size"], xattrs, b"", b"", (), holes, ())
    assert file_id(to_bytes(load(file)["id_key"]), entry, ids) == field(case, "file_id")
