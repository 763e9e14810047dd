"""KMS URIs: which are understood, where they lead, and that no refusal repeats what may be a secret."""

import subprocess
import sys

import pytest

from datasync.crypto.kms import KMS_KINDS, parse_key_uri, resolve
from datasync.errors import UsageError
from tests.support.kms.providers import NAMES, place_of


@pytest.mark.parametrize("name", NAMES)
def test_a_uri_is_read_and_named_without_its_endpoint(name: str) -> None:
    plain, reached = parse_key_uri(place_of(name)), parse_key_uri(place_of(name) + "?endpoint=https://10.0.0.1:8443/x")
    assert plain.name == reached.name == place_of(name)
    assert (plain.fingerprint, plain.kind) == (reached.fingerprint, reached.kind)
    assert (plain.endpoint, reached.endpoint) == (None, "https://10.0.0.1:8443/x")


def test_each_provider_has_a_kind_and_a_fingerprint_of_its_own() -> None:
    found = [parse_key_uri(place_of(name)) for name in NAMES]
    assert sorted(uri.kind for uri in found) == sorted(KMS_KINDS.values()) == [16, 17, 18, 19, 20, 21]
    assert len({uri.fingerprint for uri in found}) == len(NAMES)


@pytest.mark.parametrize(
    "uri",
    [
        "aws-kms://eu-central-1/alias/datasets",
        "aws-kms://eu-central-1/arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
        "aws-kms://cn-north-1/1234abcd",
        "alibaba-kms://cn-beijing/alias/datasets",
        "vault://team/transit/datasets?endpoint=https://vault.example:8200",
        "azure-kv://hsm.managedhsm.azure.net/key/0123abcd",
    ],
)
def test_other_forms_of_a_key_resolve(uri: str) -> None:
    assert resolve(uri, {}).uri.name == uri.partition("?")[0]


@pytest.mark.parametrize(
    "uri",
    [
        "", "canary", "s3://bucket/canary", "aws-kms:/r/k", "aws-kms://", "aws-kms://r", "aws-kms://r/", "aws-kms:///k",
        "aws-kms://r/a//canary", "aws-kms://r/../canary", "aws-kms://r/a b", "aws-kms://r/k\ncanary",
        "aws-kms://r/k#canary", "aws-kms://user:canary@r/k", "vault://token@transit/canary", "aws-kms://r/k?region=canary",
        "aws-kms://r/k?endpoint=https://a&endpoint=https://canary", "aws-kms://[canary/k", "aws-kms://r/k%2f",
        "aws-kms://R_/k", "google-kms://p1/k", "google-kms://projects/p/locations/l/keyRings/r", "azure-kv://host/k/v",
        "azure-kv://a.vault.azure.net/k", "tencent-kms://a.b/k", "alibaba-kms://a.b/k",
        "aws-kms://r/k?endpoint=ftp://canary", "aws-kms://r/k?endpoint=https://u:canary@h",
        "aws-kms://r/k?endpoint=https://h/?canary", "aws-kms://r/k?endpoint=https://h:99999", "aws-kms://r/k?endpoint=",
        "vault://transit/k?endpoint=https:///canary", "aws-kms://r/k?endpoint=https://h\n",
    ],
)  # fmt: skip
def test_a_bad_uri_is_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(uri, {"VAULT_ADDR": "https://vault.example"})
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("host", ["kms.example", "10.0.0.1", "169.254.169.254", "metadata.google.internal", "0.0.0.0"])
@pytest.mark.parametrize("name", NAMES)
def test_plain_http_is_for_loopback_alone(name: str, host: str) -> None:
    with pytest.raises(UsageError, match="https://"):
        resolve(f"{place_of(name)}?endpoint=http://{host}", {})


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_plain_http_to_loopback_is_taken(host: str) -> None:
    assert resolve(f"vault://transit/k?endpoint=http://{host}:8200", {}).uri.place == "transit"


def test_vault_address_in_the_environment_follows_the_same_rule() -> None:
    with pytest.raises(UsageError, match="https://"):
        resolve("vault://transit/k", {"VAULT_ADDR": "http://vault.example"})


@pytest.mark.parametrize(
    ("name", "variable", "value"),
    [
        ("google", "GCE_METADATA_HOST", "evil.example"),
        ("azure", "AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://evil.example"),
        ("azure", "AZURE_AUTHORITY_HOST", "http://evil.example"),
    ],
)
def test_token_services_follow_the_same_rule(name: str, variable: str, value: str) -> None:
    environment = {variable: value, "HOME": "/nonexistent"}
    if variable == "AZURE_AUTHORITY_HOST":
        environment |= {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"}
    with pytest.raises(UsageError, match=variable):
        resolve(place_of(name), environment)


def test_no_provider_and_no_sdk_is_imported_before_it_is_asked_for() -> None:
    script = (
        "import sys, datasync.crypto.slots, datasync.crypto.kms\n"
        "names = [n for n in sys.modules if n.startswith(('botocore', 'datasync.crypto.kms.'))]\n"
        "print(sorted(set(names) - {'datasync.crypto.kms.' + n for n in ('http', 'protocol', 'resolve')}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "datasync.crypto.kms.aws", raising=False)
    for name in ("botocore", "botocore.session"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"gpu-datasync\[aws-kms\]"):
        resolve(place_of("aws"), {})
