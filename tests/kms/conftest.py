"""Key services for these tests: real programs where there are any, elsewhere servers of the vendors' protocols."""

import datetime
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.support.kms import bao as openbao_server
from tests.support.kms.bao import Bao
from tests.support.kms.providers import AWS, NAMES, Provider, local, on_bao, on_moto
from tests.support.kms.server import KeyServer, running


@pytest.fixture(scope="session")
def bao() -> Iterator[Bao]:
    with openbao_server.openbao() as found:
        yield found


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the SDK of AWS reads by itself."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(params=NAMES)
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Provider]:
    """Each provider on the server that speaks best for it."""
    if request.param == "aws":
        yield on_moto(request.getfixturevalue("moto"))
    elif request.param == "vault":
        yield on_bao(request.getfixturevalue("bao"))
    else:
        with local(request.param, tmp_path) as found:
            yield found


@pytest.fixture(params=NAMES)
def faulty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Provider]:
    """Each provider on a server whose answers a test sets."""
    with local(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A file with a key and a certificate for localhost that no authority signed."""
    return _certificate(tmp_path / "cert.pem")


@pytest.fixture
def tls(certificate: Path) -> Iterator[KeyServer]:
    """A key server over TLS with that certificate; it answers with faults alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with running(KeyServer(), context) as server:
        yield server


def _certificate(path: Path) -> Path:
    key = generate_private_key(SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(secret + made.sign(key, SHA256()).public_bytes(Encoding.PEM))
    return path
