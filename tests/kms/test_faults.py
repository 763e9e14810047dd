"""Key services that fail, lie or stall: one line each with its exit code, in bounded time, and no secret in it."""

import os
import socket
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from datasync.crypto import slots
from datasync.crypto.kms import KeyService, resolve
from datasync.crypto.kms.http import HttpLimits
from datasync.crypto.slots import Binding
from datasync.errors import (
    DatasyncError,
    IntegrityError,
    NotAuthorized,
    NotFound,
    StorageUnavailable,
    UsageError,
)
from tests.support.kms.bao import ROOT_TOKEN
from tests.support.kms.providers import QUICK, SECRETS, Provider, good_decryption, place_of
from tests.support.kms.server import KeyServer, Reply
from tests.support.servers import free_ports

HASTY = replace(QUICK, total_seconds=0.3, pauses=())
BLOB = b"AAAABBBBCCCCDDDD"
CONTEXT = {"application": "datasync/v1"}
VENDOR_ERRORS: Mapping[str, Mapping[type[DatasyncError], Reply]] = {
    "aws": {
        IntegrityError: Reply.of(400, {"__type": "com.amazonaws.kms#IncorrectKeyException"}),
        NotAuthorized: Reply.of(400, {"__type": "AccessDeniedException", "Message": "said at length"}),
        NotFound: Reply.of(400, {"__type": "KMSInvalidStateException", "message": "said at length"}),
        StorageUnavailable: Reply.of(400, {"__type": "ThrottlingException"}),
    },
    "vault": {
        IntegrityError: Reply.of(400, {"errors": ["cipher: message authentication failed"]}),
        NotAuthorized: Reply.of(403, {"errors": ["permission denied", "said at length"]}),
        NotFound: Reply.of(400, {"errors": ["encryption key not found"]}),
        StorageUnavailable: Reply.of(503, {"errors": ["Vault is sealed"]}),
    },
    "alibaba": {
        IntegrityError: Reply.of(400, {"Code": "InvalidParameter", "Message": "said at length"}),
        NotAuthorized: Reply.of(403, {"Code": "Forbidden.NoPermission"}),
        NotFound: Reply.of(409, {"Code": "Rejected.Disabled"}),
        StorageUnavailable: Reply.of(400, {"Code": "Throttling.User"}),
    },
    "tencent": {
        IntegrityError: Reply.of(200, {"Response": {"Error": {"Code": "FailedOperation.DecryptError"}}}),
        NotAuthorized: Reply.of(200, {"Response": {"Error": {"Code": "UnauthorizedOperation"}}}),
        NotFound: Reply.of(200, {"Response": {"Error": {"Code": "ResourceUnavailable.CmkDisabled"}}}),
        StorageUnavailable: Reply.of(200, {"Response": {"Error": {"Code": "RequestLimitExceeded"}}}),
    },
    "google": {
        IntegrityError: Reply.of(400, {"error": {"status": "INVALID_ARGUMENT", "message": "said at length"}}),
        NotAuthorized: Reply.of(403, {"error": {"status": "PERMISSION_DENIED"}}),
        NotFound: Reply.of(400, {"error": {"status": "FAILED_PRECONDITION"}}),
        StorageUnavailable: Reply.of(429, {"error": {"status": "RESOURCE_EXHAUSTED"}}),
    },
    "azure": {
        IntegrityError: Reply.of(400, {"error": {"code": "BadParameter", "message": "said at length"}}),
        NotAuthorized: Reply.of(403, {"error": {"code": "Forbidden"}}),
        NotFound: Reply.of(404, {"error": {"code": "KeyNotFound"}}),
        StorageUnavailable: Reply.of(429, {"error": {"code": "Throttled"}}),
    },
}


def refused(kind: type[DatasyncError], act: Callable[[], object]) -> DatasyncError:
    """Run *act*, which has to raise *kind* itself, in one line and without a secret."""
    with pytest.raises(DatasyncError) as caught:
        act()
    error = caught.value
    assert type(error) is kind, error
    shown = str(error) + repr(error) + "".join(traceback.format_exception(error))
    assert "\n" not in str(error)
    assert not [secret for secret in SECRETS if secret in shown]
    return error


def unwrap(provider: Provider, limits: HttpLimits = QUICK) -> Callable[[], bytes]:
    return lambda: provider.service(limits).unwrap(BLOB, CONTEXT)


@pytest.mark.parametrize("kind", [IntegrityError, NotAuthorized, NotFound, StorageUnavailable])
def test_a_vendors_own_error_means_what_it_says(faulty: Provider, kind: type[DatasyncError]) -> None:
    faulty.faulty().faults = [VENDOR_ERRORS[faulty.name][kind]]
    assert place_of(faulty.name) in str(refused(kind, unwrap(faulty)))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, NotAuthorized), (403, NotAuthorized), (404, NotFound), (429, StorageUnavailable),
        (500, StorageUnavailable), (503, StorageUnavailable), (400, IntegrityError), (418, IntegrityError),
    ],
)  # fmt: skip
def test_a_status_without_a_word_has_a_meaning(faulty: Provider, status: int, kind: type[DatasyncError]) -> None:
    faulty.faulty().faults = [Reply(status, b"<html>canary</html>", {"Content-Type": "text/html"})]
    assert f"HTTP {status}" in str(refused(kind, unwrap(faulty)))


def test_a_request_that_no_service_takes_is_a_wrong_setting_when_wrapping(faulty: Provider) -> None:
    faulty.faulty().faults = [Reply.of(400, {})]
    refused(UsageError, lambda: faulty.service().wrap(bytes(32), CONTEXT))


def test_a_busy_service_is_asked_again(faulty: Provider) -> None:
    key = os.urandom(32)
    faulty.faulty().faults = [Reply(503), Reply(429), good_decryption(faulty.name, key)]
    assert unwrap(faulty)() == key
    sent = [call for call in faulty.faulty().calls if not faulty.faulty().is_token(call)]
    assert len(sent) == 3


def test_a_refusal_is_not_asked_again(faulty: Provider) -> None:
    faulty.faulty().faults = [Reply(403)]
    refused(NotAuthorized, unwrap(faulty))
    assert len([call for call in faulty.faulty().calls if not faulty.faulty().is_token(call)]) == 1


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 60_000, b'"canary"', b"{}"])
def test_garbage_is_refused(faulty: Provider, body: bytes) -> None:
    faulty.faulty().faults = [Reply(200, body)]
    refused(IntegrityError, unwrap(faulty))


def test_an_answer_that_is_not_base64_is_refused(faulty: Provider) -> None:
    good = good_decryption(faulty.name, b"K" * 32)
    faulty.faulty().faults = [replace(good, body=good.body.replace(b"S0tL", b"S*tL"))]
    assert "Base64" in str(refused(IntegrityError, unwrap(faulty)))


def test_another_keys_answer_is_refused_and_nothing_weaker_is_tried(faulty: Provider) -> None:
    faulty.faulty().faults = [good_decryption(faulty.name, os.urandom(32))]
    service = faulty.service()
    binding = Binding(b"d" * 32, 1, b"s" * 16, service.uri.kind, slots.SCOPE_ROOT)
    wrapped = slots._wrap(bytes(32), binding, bytes(32))
    error = refused(IntegrityError, lambda: slots.unwrap_with_kms(service, binding, BLOB, wrapped))
    assert "is not its slot key" in str(error)
    assert "key commitment does not match" in str(error)
    assert place_of(faulty.name) in str(error)


@pytest.mark.parametrize("length", [1, 16, 31, 33, 4096])
def test_a_key_of_another_length_is_refused(faulty: Provider, length: int) -> None:
    faulty.faulty().faults = [good_decryption(faulty.name, bytes(length))]
    service = faulty.service()
    binding = Binding(b"d" * 32, 1, b"s" * 16, service.uri.kind, slots.SCOPE_ROOT)
    wrapped = slots._wrap(bytes(32), binding, bytes(32))
    error = refused(IntegrityError, lambda: slots.unwrap_with_kms(service, binding, BLOB, wrapped))
    assert f"found {length}" in str(error)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_never_followed(faulty: Provider, status: int) -> None:
    faulty.faulty().faults = [Reply(status, b"", {"Location": "http://203.0.113.1/canary"})]
    assert "never followed" in str(refused(UsageError, unwrap(faulty)))


def test_an_oversized_answer_is_refused(faulty: Provider) -> None:
    faulty.faulty().faults = [Reply(200, b'{"Plaintext":"' + b"A" * 70_000 + b'"}')]
    assert "65536 bytes" in str(refused(IntegrityError, unwrap(faulty)))


@pytest.mark.parametrize("fault", [Reply(200, hang=True), Reply(200, b'{"a":1}', drip=True)])
def test_a_service_that_stalls_is_given_up(faulty: Provider, fault: Reply) -> None:
    faulty.faulty().faults = [fault]
    assert "within 0.3 s" in str(refused(StorageUnavailable, unwrap(faulty, HASTY)))


def test_a_service_that_is_down_says_so_in_one_line(faulty: Provider) -> None:
    (port,) = free_ports(1)
    moved = faulty.uri.replace(faulty.faulty().endpoint, f"http://127.0.0.1:{port}")
    service = resolve(moved, faulty.environment, QUICK)
    error = refused(StorageUnavailable, lambda: service.unwrap(BLOB, CONTEXT))
    assert "can not be reached" in str(error)
    assert error.exit_code == 5


def test_a_server_that_speaks_no_tls_is_unavailable(faulty: Provider) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts and never answers: a black hole
        moved = faulty.uri.replace(faulty.faulty().endpoint, f"https://127.0.0.1:{listener.getsockname()[1]}")
        service = resolve(moved, faulty.environment, HttpLimits(0.2, 0.3, pauses=()))
        refused(StorageUnavailable, lambda: service.unwrap(BLOB, CONTEXT))


def test_a_certificate_that_nobody_vouches_for_is_refused(faulty: Provider, tls: KeyServer) -> None:
    service = resolve(faulty.uri.replace(faulty.faulty().endpoint, tls.endpoint), faulty.environment, QUICK)
    error = refused(StorageUnavailable, lambda: service.unwrap(BLOB, CONTEXT))
    assert "certificate" in str(error)
    assert tls.calls == []


def over_tls(tls: KeyServer, certificate: Path, limits: HttpLimits) -> KeyService:
    environment = {"VAULT_ADDR": tls.endpoint, "VAULT_CACERT": str(certificate), "VAULT_TOKEN": ROOT_TOKEN}
    return resolve(place_of("vault"), environment, limits)


def test_a_certificate_of_ones_own_authority_is_taken(tls: KeyServer, certificate: Path) -> None:
    tls.faults = [good_decryption("vault", b"K" * 32)]
    assert over_tls(tls, certificate, QUICK).unwrap(BLOB, CONTEXT) == b"K" * 32


@pytest.mark.parametrize("fault", [Reply(200, hang=True), Reply(200, b'{"a":1}', drip=True)])
def test_a_service_that_stalls_behind_tls_is_given_up(tls: KeyServer, certificate: Path, fault: Reply) -> None:
    tls.faults = [fault]
    service = over_tls(tls, certificate, replace(HASTY, total_seconds=2.0))  # the handshake has to fit in, too
    assert "within 2 s" in str(refused(StorageUnavailable, lambda: service.unwrap(BLOB, CONTEXT)))


def test_a_missing_file_of_authorities_is_a_wrong_setting(tls: KeyServer, tmp_path: Path) -> None:
    service = over_tls(tls, tmp_path / "none", QUICK)
    assert "CA certificates" in str(refused(UsageError, lambda: service.unwrap(BLOB, CONTEXT)))


@pytest.mark.parametrize("faulty", ["google", "azure"], indirect=True)
def test_a_token_service_that_fails_is_named(faulty: Provider) -> None:
    server = faulty.faulty()
    server.is_token = lambda call: False  # type: ignore[method-assign]
    for reply, kind in (
        (Reply.of(401, {"error": "invalid_client"}), NotAuthorized),
        (Reply.of(200, {}), IntegrityError),
        (Reply(503), StorageUnavailable),
        (Reply(307, b"", {"Location": "http://203.0.113.1/"}), UsageError),
    ):
        server.faults = [reply]
        assert "token service" in str(refused(kind, unwrap(faulty)))


def test_a_line_break_in_a_secret_is_refused_without_showing_it(
    faulty: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line break within a token would end the header; the HTTP library's own error shows the value."""
    names = {"vault": "VAULT_TOKEN", "alibaba": "ALIBABA_CLOUD_SECURITY_TOKEN", "tencent": "TENCENTCLOUD_TOKEN"}
    environment = dict(faulty.environment)
    if faulty.name in names:
        environment[names[faulty.name]] = "canary\r\nX-Other: 1"
    elif faulty.name == "aws":
        monkeypatch.setenv("AWS_SESSION_TOKEN", "canary\r\nX-Other: 1")
    else:
        server = faulty.faulty()
        server.is_token = lambda call: False  # type: ignore[method-assign]
        server.faults = [Reply.of(200, {"access_token": "canary\r\nX-Other: 1", "expires_in": 3600})]
    service = resolve(faulty.uri, environment, QUICK)
    assert "line break" in str(refused(UsageError, lambda: service.unwrap(BLOB, CONTEXT)))


def test_no_repr_shows_a_secret(faulty: Provider) -> None:
    service = faulty.service()
    faulty.faulty().faults = [good_decryption(faulty.name, b"K" * 32)]
    service.unwrap(BLOB, CONTEXT)
    kept = [value for value in vars(service).values() if value is not faulty.environment]
    shown = repr(service) + repr(kept) + repr([vars(value) for value in kept if hasattr(value, "limits")])
    assert not [secret for secret in SECRETS if secret in shown]
