"""Sources of credentials that fail: the right error, one line, and no secret sent where it does not belong."""

import sys
import types
from http.client import IncompleteRead
from pathlib import Path
from urllib.error import URLError

import pytest

from datasync.errors import NotAuthorized, StorageUnavailable, UsageError
from datasync.storage.azure import AzureOptions, AzureStore
from datasync.storage.cos import credentials as cos
from datasync.storage.location import parse_url
from datasync.storage.oss.credentials import oss_keys
from datasync.storage.sdk.credentials import Keys
from tests.support.faulty_server import Answer, faulty_server

VARIABLES = (
    "COS_SECRET_ID",
    "COS_SECRET_KEY",
    "TENCENTCLOUD_SECRET_ID",
    "TENCENTCLOUD_SECRET_KEY",
    "TKE_WEB_IDENTITY_TOKEN_FILE",
    "OSS_ACCESS_KEY_ID",
    "ALIBABA_CLOUD_ACCESS_KEY_ID",
    "AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_ACCOUNT",
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home, in an environment without keys."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


# COS


def test_a_secret_of_the_profile_may_hold_a_percent_sign(home: Path) -> None:
    (home / ".tencentcloud").mkdir()
    (home / ".tencentcloud/credentials").write_text("[default]\nsecret_id = AKID\nsecret_key = 50%off%(x)s\n")
    assert cos.cos_keys()() == Keys("AKID", "50%off%(x)s")


def test_an_answer_of_the_metadata_service_that_breaks_off_is_no_credential() -> None:
    def broken(_: str) -> bytes:
        raise IncompleteRead(b"")

    with pytest.raises(NotAuthorized, match="set COS_SECRET_ID"):
        cos.MachineRole(broken).keys()


def test_the_machine_s_role_is_never_asked_for_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty_server(lambda _: Answer(200, {}, b"from the proxy")) as proxy:
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        with pytest.raises(URLError):
            cos._fetch("http://metadata.invalid/keys")
    assert proxy.requests == []


def pod(monkeypatch: pytest.MonkeyPatch, error: Exception | None, *, late: bool) -> None:
    """Make a pod's role that fails when it is asked for, or (*late*) when its keys are."""

    class Failed(Exception):
        pass

    class Credential:
        def get_credential_info(self) -> tuple[str, str, str]:
            if late and error is not None:
                raise error
            return "A", "B", "C"

    class Role:
        def get_credential(self) -> Credential:
            if not late and error is not None:
                raise error
            return Credential()

    for name, fields in (
        ("tencentcloud", {}),
        ("tencentcloud.common", {}),
        ("tencentcloud.common.credential", {"DefaultTkeOIDCRoleArnProvider": Role}),
        ("tencentcloud.common.exception", {"TencentCloudSDKException": Failed}),
    ):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        vars(sys.modules[name]).update(fields)
    monkeypatch.setenv("TKE_WEB_IDENTITY_TOKEN_FILE", "/nowhere")


@pytest.mark.parametrize("late", [False, True])
def test_a_pod_s_role_that_fails_is_not_authorized(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    pod(monkeypatch, ConnectionError("no way to the service"), late=late)
    with pytest.raises(NotAuthorized, match="the pod's role"):
        cos.cos_keys()()
    pod(monkeypatch, None, late=late)
    assert cos.cos_keys()() == Keys("A", "B", "C")


# OSS


def test_a_chain_that_can_not_be_made_is_not_authorized(monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("alibabacloud_credentials.client", reason="the vendor's chain is not installed")

    class Broken:
        def __init__(self) -> None:
            raise ValueError("a profile that does not parse: HIDDEN")

    monkeypatch.setattr(client, "Client", Broken)
    with pytest.raises(NotAuthorized, match="no usable credentials for OSS") as caught:
        oss_keys()()
    assert "HIDDEN" not in str(caught.value)


# Azure


def test_a_shared_access_signature_does_not_go_over_plain_http_to_another_machine() -> None:
    where = parse_url("az://bucket?endpoint=http://storage.example/account")
    store = AzureStore(where, AzureOptions(sas="sv=1&sig=SECRET"))
    with pytest.raises(UsageError, match="over https only") as caught:
        store.stat("one")
    assert "SECRET" not in str(caught.value)


def identity(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Make azure-identity's chain fail with its error of *kind*."""
    errors = types.ModuleType("azure.core.exceptions")
    base = type("AzureError", (Exception,), {})
    vars(errors).update(
        {"AzureError": base, "ClientAuthenticationError": type("ClientAuthenticationError", (base,), {})}
    )
    vars(errors)["ServiceRequestError"] = type("ServiceRequestError", (base,), {})

    class Chain:
        def get_token(self, _: str) -> None:
            raise vars(errors)[kind]("tenant 1234: SECRET")

    chain = types.ModuleType("azure.identity")
    vars(chain)["DefaultAzureCredential"] = Chain
    for name in ("azure", "azure.core"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "azure.core.exceptions", errors)
    monkeypatch.setitem(sys.modules, "azure.identity", chain)


@pytest.mark.parametrize(
    ("kind", "error"), [("ClientAuthenticationError", NotAuthorized), ("ServiceRequestError", StorageUnavailable)]
)
def test_a_login_that_fails_is_told_apart_from_one_that_is_not_reached(
    monkeypatch: pytest.MonkeyPatch, kind: str, error: type[Exception]
) -> None:
    identity(monkeypatch, kind)
    with pytest.raises(error) as caught:
        AzureStore(parse_url("az://bucket?account=acme")).stat("one")
    assert "SECRET" not in str(caught.value)
