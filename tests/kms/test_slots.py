"""Slots of every kind: a stripped commitment, a lowered cost and a stand-in service are refused by name."""

from collections.abc import Callable, Mapping

import msgspec
import pytest

from datasync.crypto import slots
from datasync.crypto.kdf import ARGON2_MIN_KIB, Argon2Cost, passphrase_key
from datasync.crypto.kms import KeyUri, parse_key_uri
from datasync.crypto.recipients import KeyPair
from datasync.crypto.slots import Binding
from datasync.errors import FormatError, IntegrityError, NoSpace, StorageUnavailable, UsageError, WrongKey
from datasync.format.encoding import encode
from datasync.format.keyset import KmsParams, Slot, read_kms_params
from datasync.repository.holders import Secrets, open_slot

CARRIED = bytes(range(32))
COST = Argon2Cost()
PAIR, _ = KeyPair.generate()


class Standing:
    """A key service in this process that counts what it is asked; `answer` replaces what it opens."""

    def __init__(self, name: str = "vault://transit/datasets") -> None:
        self.uri: KeyUri = parse_key_uri(name)
        self.asked: list[Mapping[str, str]] = []
        self.answer: bytes | None = None
        self.down = False

    def wrap(self, key: bytes, context: Mapping[str, str]) -> bytes:
        self.asked.append(context)
        return b"blob:" + key

    def unwrap(self, blob: bytes, context: Mapping[str, str]) -> bytes:
        self.asked.append(context)
        if self.down:
            raise StorageUnavailable(f"{self.uri.name}: down")
        return blob.removeprefix(b"blob:") if self.answer is None else self.answer


def binding_of(kind: int) -> Binding:
    return Binding(b"d" * 32, 3, b"s" * 16, kind, slots.SCOPE_ROOT)


def opened_by(kind: int) -> tuple[bytes, Callable[[bytes], bytes]]:
    """Return a wrapped key of *kind* and what opens it."""
    binding = binding_of(kind)
    if kind in (slots.KIND_HYBRID, slots.KIND_X25519):
        recipient = PAIR.recipient if kind == slots.KIND_HYBRID else PAIR.x25519_recipient
        sealed, wrapped = slots.wrap_for_recipient(recipient, binding, CARRIED)
        return wrapped, lambda given: slots.unwrap_with_key_pair(PAIR, binding, sealed, given)
    if kind == slots.KIND_ARGON2ID:
        salt, wrapped = slots.wrap_for_passphrase("correct horse", binding, CARRIED, COST)
        return wrapped, lambda given: slots.unwrap_with_passphrase("correct horse", binding, salt, COST, given)
    service = Standing()
    blob, wrapped = slots.wrap_for_kms(service, binding, CARRIED)
    return wrapped, lambda given: slots.unwrap_with_kms(service, binding, blob, given)


KINDS = (slots.KIND_HYBRID, slots.KIND_X25519, slots.KIND_ARGON2ID, Standing().uri.kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stripped_commitment_is_refused_by_name(kind: int) -> None:
    wrapped, opens = opened_by(kind)
    assert opens(wrapped) == CARRIED
    stripped = {
        "commitment": wrapped[:32] + wrapped[64:],
        "salt and commitment": wrapped[64:],
        "all": b"",
        "one byte more": wrapped + b"\0",
    }
    for bad in stripped.values():
        with pytest.raises(IntegrityError, match=f"slot {(b's' * 16).hex()}: expected a wrapped key of 112 bytes"):
            opens(bad)


@pytest.mark.parametrize("kind", KINDS)
def test_a_zeroed_commitment_is_refused(kind: int) -> None:
    wrapped, opens = opened_by(kind)
    with pytest.raises((IntegrityError, WrongKey)):  # a passphrase slot can not tell it from a wrong passphrase
        opens(wrapped[:32] + bytes(32) + wrapped[64:])


def test_nothing_is_asked_or_derived_for_a_stripped_slot() -> None:
    service, binding = Standing(), binding_of(Standing().uri.kind)
    with pytest.raises(IntegrityError):
        slots.unwrap_with_kms(service, binding, b"blob", b"short")
    assert service.asked == []


@pytest.mark.parametrize(
    "cost",
    [
        Argon2Cost(memory=ARGON2_MIN_KIB - 1), Argon2Cost(memory=8), Argon2Cost(memory=0), Argon2Cost(passes=2),
        Argon2Cost(passes=0), Argon2Cost(lanes=0), Argon2Cost(lanes=17), Argon2Cost(memory=2**32 - 1),
        Argon2Cost(passes=65),
    ],
)  # fmt: skip
def test_a_lowered_or_ruinous_cost_is_refused_by_name_both_ways(cost: Argon2Cost) -> None:
    binding = binding_of(slots.KIND_ARGON2ID)
    with pytest.raises(IntegrityError, match="expected Argon2id of at least 65536 KiB and 3 passes"):
        slots.wrap_for_passphrase("correct horse", binding, CARRIED, cost)
    with pytest.raises(IntegrityError, match="expected Argon2id of at least 65536 KiB and 3 passes"):
        slots.unwrap_with_passphrase("correct horse", binding, bytes(32), cost, bytes(112))


def test_a_cost_that_this_machine_can_not_pay_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Poor:
        def __init__(self, **cost: object) -> None:
            self.cost = cost

        def derive(self, secret: bytes) -> bytes:
            raise MemoryError(f"canary {secret!r}")

    monkeypatch.setattr("datasync.crypto.kdf.Argon2id", Poor)
    with pytest.raises(NoSpace, match="65536 KiB") as caught:
        passphrase_key("canary", bytes(32), COST)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("passphrase", ["", "canary \udcff"])
def test_an_unusable_passphrase_is_refused_and_not_shown(passphrase: str) -> None:
    with pytest.raises(UsageError) as caught:
        slots.wrap_for_passphrase(passphrase, binding_of(slots.KIND_ARGON2ID), CARRIED, COST)
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None or "canary" not in repr(caught.value.__context__)


def test_a_service_is_told_the_place_and_no_name() -> None:
    service = Standing()
    slots.wrap_for_kms(service, binding_of(service.uri.kind), CARRIED)
    assert service.asked == [
        {"application": "datasync/v1", "dataset": "64" * 32, "epoch": "3", "slot": "73" * 16, "scope": "1"}
    ]


def test_a_service_is_given_a_random_key_and_never_the_carried_one() -> None:
    service, binding = Standing(), binding_of(Standing().uri.kind)
    first, second = slots.wrap_for_kms(service, binding, CARRIED), slots.wrap_for_kms(service, binding, CARRIED)
    assert first[0] != second[0]
    assert CARRIED not in first[0] + second[0]


def test_a_service_of_another_kind_is_a_mistake_in_the_program() -> None:
    with pytest.raises(ValueError, match="kind"):
        slots.wrap_for_kms(Standing(), binding_of(16), CARRIED)


def a_slot(service: Standing) -> Slot:
    binding = binding_of(service.uri.kind)
    blob, wrapped = slots.wrap_for_kms(service, binding, CARRIED)
    params = encode(KmsParams(blob))
    return Slot(binding.slot, binding.kind, 1, 3, b"", service.uri.fingerprint, params, wrapped, 0, 0, bytes(32))


def test_a_slot_is_opened_by_the_service_that_it_names_alone() -> None:
    service, other = Standing(), Standing("vault://transit/other")
    slot = a_slot(service)
    assert open_slot(slot, b"d" * 32, Secrets(services=(other, service))) == CARRIED
    assert open_slot(slot, b"d" * 32, Secrets(services=(other, Standing("aws-kms://eu-central-1/k")))) is None
    assert other.asked == []


def test_a_failure_of_the_right_service_is_raised_and_nothing_else_is_tried() -> None:
    service, again = Standing(), Standing()
    slot, secrets = a_slot(service), Secrets(None, "correct horse", (service, again))
    service.down = True
    with pytest.raises(StorageUnavailable):
        open_slot(slot, b"d" * 32, secrets)
    service.down, service.answer = False, bytes(32)
    with pytest.raises(IntegrityError, match="is not its slot key"):
        open_slot(slot, b"d" * 32, secrets)
    assert again.asked == []


@pytest.mark.parametrize("blob", [b"", bytes(4097)])
def test_a_blob_has_bounds(blob: bytes) -> None:
    service = Standing()
    slot = a_slot(service)
    bad = msgspec.structs.replace(slot, params=encode(KmsParams(blob)))
    with pytest.raises(FormatError):
        read_kms_params(bad, "slot")
    service.wrap = lambda key, context: blob  # type: ignore[method-assign]
    with pytest.raises(IntegrityError, match="1 to 4096 bytes"):
        slots.wrap_for_kms(service, binding_of(service.uri.kind), CARRIED)
