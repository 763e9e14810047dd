"""Each key service over a socket: what is wrapped comes back, and nothing else does."""

import json
import os
from pathlib import Path
from unittest import mock

import pytest
from botocore import exceptions as sdk

from datasync.crypto import slots
from datasync.crypto.kms import resolve
from datasync.crypto.kms.http import HttpLimits
from datasync.crypto.slots import Binding
from datasync.errors import DatasyncError, IntegrityError, NotAuthorized, NotFound, StorageUnavailable, UsageError
from tests.support.kms import azure, google
from tests.support.kms.bao import Bao
from tests.support.kms.providers import ALIBABA, QUICK, TENCENT, Provider, local, on_bao, on_moto, place_of
from tests.support.servers import REGION, S3Server

KEY = os.urandom(32)
CONTEXT = {"application": "datasync/v1", "dataset": "00" * 32, "epoch": "1", "slot": "11" * 16, "scope": "1"}


def binding_for(provider: Provider, **changed: object) -> Binding:
    fields = {"dataset": b"d" * 32, "epoch": 1, "slot": b"s" * 16, "kind": provider.service().uri.kind, "scope": 1}
    return Binding(**(fields | changed))  # type: ignore[arg-type]


def test_a_key_comes_back(provider: Provider) -> None:
    blob = provider.service().wrap(KEY, CONTEXT)
    assert KEY not in blob
    assert 0 < len(blob) <= 4096
    assert provider.service().unwrap(blob, CONTEXT) == KEY


def test_the_same_key_is_wrapped_differently_each_time(provider: Provider) -> None:
    service = provider.service()
    assert service.wrap(KEY, CONTEXT) != service.wrap(KEY, CONTEXT)


def test_another_context_is_refused_by_the_service(provider: Provider) -> None:
    if provider.name == "azure":
        assert provider.service().unwrap(provider.service().wrap(KEY, CONTEXT), {}) == KEY  # RSA takes no context
        return
    blob = provider.service().wrap(KEY, CONTEXT)
    with pytest.raises(IntegrityError, match="does not open the wrapped slot key"):
        provider.service().unwrap(blob, CONTEXT | {"epoch": "2"})


def test_a_changed_blob_is_refused(provider: Provider) -> None:
    blob = bytearray(provider.service().wrap(KEY, CONTEXT))
    at = len(blob) // 2
    blob[at] = ord("A") if blob[at] != ord("A") else ord("B")
    if provider.name == "tencent":
        blob = bytearray(b"AAAA") + blob[4:]  # the middle of its blob is the key's name
    with pytest.raises(IntegrityError, match="does not open the wrapped slot key"):
        provider.service().unwrap(bytes(blob), CONTEXT)


def test_a_slot_opens_with_its_service_and_at_its_place_only(provider: Provider) -> None:
    service, binding = provider.service(), binding_for(provider)
    blob, wrapped = slots.wrap_for_kms(service, binding, KEY)
    assert slots.unwrap_with_kms(service, binding, blob, wrapped) == KEY
    for changed in ({"dataset": b"e" * 32}, {"epoch": 2}, {"slot": b"t" * 16}, {"scope": 2}):
        with pytest.raises(IntegrityError):
            slots.unwrap_with_kms(service, binding_for(provider, **changed), blob, wrapped)


def test_a_blob_of_another_slot_is_refused(provider: Provider) -> None:
    service, binding = provider.service(), binding_for(provider)
    _, wrapped = slots.wrap_for_kms(service, binding, KEY)
    other, _ = slots.wrap_for_kms(service, binding, KEY)
    with pytest.raises(IntegrityError, match=r"is not its slot key"):
        slots.unwrap_with_kms(service, binding, other, wrapped)


def test_a_missing_key_is_named(provider: Provider) -> None:
    missing = {
        "aws": f"aws-kms://{REGION}/00000000-0000-0000-0000-000000000000",
        "vault": "vault://transit/missing",
        "alibaba": "alibaba-kms://cn-hangzhou/key-missing",
        "tencent": "tencent-kms://ap-singapore/missing",
        "google": "google-kms://projects/p1/locations/global/keyRings/ring/cryptoKeys/missing",
        "azure": f"azure-kv://{azure.HOST}/missing/0123",
    }[provider.name]
    query = provider.uri.partition("?")[2]
    service = resolve(f"{missing}?{query}" if query else missing, provider.environment, QUICK)
    if provider.name == "vault":  # the engine makes a key at the first encryption for who may create one
        with pytest.raises(NotFound, match="missing"):
            service.unwrap(b"vault:v1:AAAA", CONTEXT)
        return
    with pytest.raises(NotFound, match=r"missing|00000000"):
        service.wrap(KEY, CONTEXT)


def test_a_blob_of_another_key_of_aws_is_refused(moto: S3Server) -> None:
    first, second = on_moto(moto).service(), on_moto(moto).service()
    with pytest.raises((IntegrityError, NotAuthorized), match=r"IncorrectKey|AccessDenied"):  # moto: the latter
        second.unwrap(first.wrap(KEY, CONTEXT), CONTEXT)


def test_aws_without_credentials_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(NotAuthorized, match="AWS_ACCESS_KEY_ID"):
        resolve(place_of("aws") + "?endpoint=http://127.0.0.1:9", {}, QUICK).wrap(KEY, CONTEXT)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (sdk.EndpointConnectionError(endpoint_url="https://sts.example/?canary"), StorageUnavailable),
        (sdk.ConnectTimeoutError(endpoint_url="https://sts.example/?canary"), StorageUnavailable),
        (sdk.ClientError({"Error": {"Code": "AccessDenied", "Message": "canary"}}, "AssumeRole"), NotAuthorized),
        (sdk.CredentialRetrievalError(provider="process", error_msg="canary"), NotAuthorized),
        (ValueError("canary"), NotAuthorized),
        (FileNotFoundError("canary"), NotAuthorized),
    ],
)
def test_a_source_of_aws_credentials_that_fails_is_told_without_its_words(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[DatasyncError]
) -> None:
    session = mock.Mock(**{"get_credentials.side_effect": error})
    monkeypatch.setattr("botocore.session.get_session", lambda: session)
    service = resolve("aws-kms://eu-central-1/key?endpoint=http://127.0.0.1:9", {}, HttpLimits(pauses=()))
    with pytest.raises(kind) as caught:
        service.wrap(bytes(32), {})
    assert "canary" not in str(caught.value)


def test_vault_key_that_was_rotated_still_opens(bao: Bao) -> None:
    service = on_bao(bao).service()
    blob = service.wrap(KEY, CONTEXT)
    bao.api("POST", "transit/keys/datasets/rotate", {})
    assert service.wrap(KEY, CONTEXT).startswith(b"vault:v2:")
    assert service.unwrap(blob, CONTEXT) == KEY


def test_vault_derived_key_opens_under_its_context_only(bao: Bao) -> None:
    service = on_bao(bao, "derived").service()
    blob = service.wrap(KEY, CONTEXT)
    assert service.unwrap(blob, CONTEXT) == KEY
    with pytest.raises(IntegrityError):
        service.unwrap(blob, {})


def test_vault_blob_of_another_key_is_refused(bao: Bao) -> None:
    blob = on_bao(bao, "other").service().wrap(KEY, CONTEXT)
    with pytest.raises(IntegrityError):
        on_bao(bao).service().unwrap(blob, CONTEXT)


def test_vault_token_may_encrypt_alone(bao: Bao) -> None:
    token = bao.token('path "transit/encrypt/datasets" { capabilities = ["update"] }')
    granting = on_bao(bao, token=token).service()
    blob = granting.wrap(KEY, CONTEXT)
    with pytest.raises(NotAuthorized, match="vault://transit/datasets"):
        granting.unwrap(blob, CONTEXT)
    assert on_bao(bao).service().unwrap(blob, CONTEXT) == KEY


def test_vault_token_comes_from_its_file(bao: Bao, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "VAULT_ADDR": bao.address}
    service = resolve("vault://transit/datasets", environment, QUICK)
    with pytest.raises(NotAuthorized, match="set VAULT_TOKEN"):
        service.wrap(KEY, CONTEXT)
    (tmp_path / ".vault-token").write_text(on_bao(bao).environment["VAULT_TOKEN"] + "\n")
    assert service.unwrap(service.wrap(KEY, CONTEXT), CONTEXT) == KEY


def test_vault_without_an_address_says_what_to_set() -> None:
    with pytest.raises(UsageError, match="VAULT_ADDR"):
        resolve("vault://transit/datasets", {})


@pytest.mark.parametrize("way", ["user", "metadata"])
def test_google_takes_a_users_file_and_the_metadata_service(way: str, tmp_path: Path) -> None:
    with local("google", tmp_path) as provider:
        server, environment = provider.faulty(), {"HOME": str(tmp_path)}
        assert isinstance(server, google.GoogleServer)
        if way == "user":
            folder = tmp_path / ".config/gcloud"
            folder.mkdir(parents=True)
            (folder / "application_default_credentials.json").write_text(json.dumps(server.user()))
        else:
            environment["GCE_METADATA_HOST"] = server.endpoint.removeprefix("http://")
        service = resolve(provider.uri, environment, QUICK)
        assert service.unwrap(service.wrap(KEY, CONTEXT), CONTEXT) == KEY
        assert len([call for call in server.calls if server.is_token(call)]) == 1  # a token serves until it ends


def test_azure_takes_the_managed_identity(tmp_path: Path) -> None:
    with local("azure", tmp_path) as provider:
        environment = {"AZURE_POD_IDENTITY_AUTHORITY_HOST": provider.faulty().endpoint}
        service = resolve(provider.uri, environment, QUICK)
        assert service.unwrap(service.wrap(KEY, CONTEXT), CONTEXT) == KEY


def _wrong(provider: Provider) -> dict[str, str]:
    """Return the environment with one secret that is not right."""
    environment = dict(provider.environment)
    if provider.name == "google":
        path = Path(environment["GOOGLE_APPLICATION_CREDENTIALS"])
        path.write_text(json.dumps(json.loads(path.read_text()) | {"client_email": "other@p1"}))
    else:
        name = {"alibaba": [*ALIBABA][1], "tencent": [*TENCENT][1], "azure": "AZURE_CLIENT_SECRET"}[provider.name]
        environment[name] = "canary-wrong"
    return environment


@pytest.mark.parametrize("name", ["alibaba", "tencent", "google", "azure"])
def test_a_wrong_secret_is_refused_by_the_service(name: str, tmp_path: Path) -> None:
    with local(name, tmp_path) as provider:
        service = resolve(provider.uri, _wrong(provider), QUICK)
        with pytest.raises(NotAuthorized, match="refused these credentials"):
            service.wrap(KEY, CONTEXT)


@pytest.mark.parametrize("name", ["alibaba", "tencent"])
def test_missing_credentials_say_what_to_set(name: str) -> None:
    with pytest.raises(NotAuthorized, match=r"set [A-Z_]+SECRET_ID|set ALIBABA_CLOUD_ACCESS_KEY_ID"):
        resolve(place_of(name), {}).wrap(KEY, CONTEXT)
