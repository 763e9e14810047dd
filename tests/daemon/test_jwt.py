"""JSON Web Tokens: what holds is let in, and every known trick is refused for its own reason."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from datasync.crypto.jwt import Expected, PublicKey, read_keys, verify_jwt
from datasync.errors import NotAuthorized, StorageUnavailable, UsageError
from datasync.service.daemon_settings import Access, Issuer
from datasync.service.issuers import AGAIN_SECONDS, FRESH_SECONDS, STALE_SECONDS, Issuers, fetch_jwks

RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = Ed25519PrivateKey.generate()
ISSUER, AUDIENCE = "https://issuer.test", "datasync"
NOW = 1_800_000_000.0
EXPECTED = Expected(ISSUER, AUDIENCE, ("RS256", "PS256", "ES256", "EdDSA"))
CLAIMS: dict[str, Any] = {"iss": ISSUER, "aud": AUDIENCE, "sub": "node-1", "exp": NOW + 600, "iat": NOW, "nbf": NOW}


def text64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def number64(value: int, size: int = 0) -> str:
    return text64(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


def jwks() -> bytes:
    numbers, point = RSA.public_key().public_numbers(), EC.public_key().public_numbers()
    raw = ED.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    keys = [
        {"kty": "RSA", "kid": "rsa", "n": number64(numbers.n), "e": number64(numbers.e)},
        {"kty": "EC", "crv": "P-256", "kid": "ec", "x": number64(point.x, 32), "y": number64(point.y, 32)},
        {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": text64(raw), "use": "sig"},
        {"kty": "RSA", "kid": "enc", "use": "enc", "n": number64(numbers.n), "e": "AQAB"},
        {"kty": "oct", "kid": "oct", "k": "c2VjcmV0"},
    ]  # fmt: skip
    return json.dumps({"keys": keys}).encode()


KEYS: dict[str, PublicKey] = read_keys(jwks(), "test")
KIDS = {"RS256": "rsa", "PS256": "rsa", "ES256": "ec", "EdDSA": "ed"}


def sign(algorithm: str, data: bytes) -> bytes:
    if algorithm == "RS256":
        return RSA.sign(data, padding.PKCS1v15(), SHA256())
    if algorithm == "PS256":
        return RSA.sign(data, padding.PSS(padding.MGF1(SHA256()), 32), SHA256())
    if algorithm == "ES256":
        r, s = decode_dss_signature(EC.sign(data, ec.ECDSA(SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return ED.sign(data)


def token(algorithm: str = "RS256", header: dict[str, Any] | None = None, **claims: Any) -> str:
    """Return a token signed as *algorithm* says; None as a claim leaves it out."""
    head = {"alg": algorithm, "kid": KIDS.get(algorithm, "rsa"), "typ": "JWT", **(header or {})}
    body = {key: value for key, value in {**CLAIMS, **claims}.items() if value is not None}
    signed = f"{text64(json.dumps(head).encode())}.{text64(json.dumps(body).encode())}"
    return f"{signed}.{text64(sign(algorithm, signed.encode()))}"


@pytest.mark.parametrize("algorithm", KIDS)
def test_a_good_token_gives_its_claims(algorithm: str) -> None:
    assert verify_jwt(token(algorithm), KEYS, EXPECTED, NOW)["sub"] == "node-1"


def test_keys_for_other_uses_are_not_there() -> None:
    assert sorted(KEYS) == ["ec", "ed", "rsa"]


def none_token() -> str:
    head, body = text64(b'{"alg":"none","kid":"rsa"}'), text64(json.dumps(CLAIMS).encode())
    return f"{head}.{body}."


def hmac_token() -> str:
    """HS256 with the RSA public key's PEM as the secret (the classic confusion)."""
    pem = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = text64(b'{"alg":"HS256","kid":"rsa"}')
    signed = f"{head}.{text64(json.dumps(CLAIMS).encode())}"
    return f"{signed}.{text64(hmac.new(pem, signed.encode(), hashlib.sha256).digest())}"


def other_claims() -> str:
    head, _, signature = token().split(".")
    return f"{head}.{text64(json.dumps({**CLAIMS, 'sub': 'root'}).encode())}.{signature}"


def cut_signature(algorithm: str) -> str:
    head, body, signature = token(algorithm).split(".")
    return f"{head}.{body}.{text64(base64.urlsafe_b64decode(signature + '==')[:-3])}"


ATTACKS: dict[str, tuple[Callable[[], str], str]] = {
    "alg none": (none_token, "algorithm 'none'"),
    "alg None": (lambda: token(header={"alg": "None"}), "algorithm"),
    "HS256 with the public key": (hmac_token, "algorithm 'HS256'"),
    "alg that is no text": (lambda: token(header={"alg": ["RS256"]}), "algorithm"),
    "alg of another kind of key": (lambda: token("ES256", header={"alg": "RS256", "kid": "ec"}), "signature"),
    "kid of another key": (lambda: token(header={"kid": "ec"}), "signature"),
    "kid that is a path": (lambda: token(header={"kid": "../../../dev/null"}), "no key"),
    "kid that is a query": (lambda: token(header={"kid": "' UNION SELECT 'x"}), "no key"),
    "no kid": (lambda: token(header={"kid": None}), "no key"),
    "jku": (lambda: token(header={"jku": "https://evil.test/jwks"}), "brings a key"),
    "x5u": (lambda: token(header={"x5u": "https://evil.test/c"}), "brings a key"),
    "jwk": (lambda: token(header={"jwk": {"kty": "oct", "k": "AA"}}), "brings a key"),
    "crit": (lambda: token(header={"crit": ["exp"]}), "asks for what is not done"),
    "wrong issuer": (lambda: token(iss="https://issuer.test/"), "iss"),
    "wrong audience": (lambda: token(aud="other"), "aud"),
    "audience that contains the right one": (lambda: token(aud="datasync.evil"), "aud"),
    "no audience": (lambda: token(aud=None), "aud"),
    "expired": (lambda: token(exp=NOW - 61), "time is over"),
    "no end": (lambda: token(exp=None), "time is over"),
    "no end in sight": (lambda: token(exp=NOW + 90_000), "longer than a day"),
    "end that is text": (lambda: token(exp="9999999999"), "no numbers"),
    "end that is true": (lambda: token(exp=True), "no numbers"),
    "not yet": (lambda: token(nbf=NOW + 61), "not begun"),
    "made tomorrow": (lambda: token(iat=NOW + 86_400), "not begun"),
    "no subject": (lambda: token(sub=None), "no subject"),
    "other claims": (other_claims, "signature"),
    "cut signature": (lambda: cut_signature("ES256"), "signature"),
    "cut text": (lambda: token("ES256")[:-1], "do not parse"),  # 85 characters of base64 are never bytes
    "two parts": (lambda: "a.b", "three parts"),
    "five parts (JWE)": (lambda: "a.b.c.d.e", "three parts"),
    "padding": (lambda: token() + "=", "do not parse"),
    "deep nesting": (lambda: f"{text64(b'[' * 6000)}.e30.AA", "do not parse"),
    "17 KiB": (lambda: token(x="y" * 17_000), "three parts"),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_for_its_own_reason(attack: str) -> None:
    make, words = ATTACKS[attack]
    with pytest.raises(NotAuthorized, match=words):
        verify_jwt(make(), KEYS, EXPECTED, NOW)


@given(st.text(max_size=200))
def test_any_text_is_refused_as_itself(text: str) -> None:
    with pytest.raises(NotAuthorized):
        verify_jwt(text, KEYS, EXPECTED, NOW)


@given(st.integers(0, 2**16), st.integers(0, 255))
def test_any_changed_character_is_refused(position: int, byte: int) -> None:
    good = token("EdDSA")
    at = position % len(good)
    changed = good[:at] + chr(33 + byte % 90) + good[at + 1 :]
    if changed == good:
        return
    with pytest.raises(NotAuthorized):
        verify_jwt(changed, KEYS, EXPECTED, NOW)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"keys": 1}', b'{"keys": [{"kid": "a", "kty": "RSA", "n": "!"}]}'])
def test_a_wrong_set_of_keys_is_told(data: bytes) -> None:
    with pytest.raises(UsageError):
        read_keys(data, "test")


# the issuer's keys


class Place:
    """A JWKS address that counts, and can fail."""

    def __init__(self) -> None:
        self.asked, self.fails, self.now = 0, False, NOW

    def fetch(self, issuer: Issuer) -> bytes:
        self.asked += 1
        if self.fails:
            raise StorageUnavailable("away")
        return jwks()

    def issuers(self) -> Issuers:
        issuer = Issuer(issuer=ISSUER, audience=AUDIENCE, jwks="https://issuer.test/jwks")
        access = Access(issuer=ISSUER, subject="node-*", datasets=("data",), ttl="1h")
        return Issuers((issuer,), (access,), self.fetch, lambda: self.now)


def test_a_subject_gets_what_access_says_and_no_more() -> None:
    found = Place().issuers().principal(token())
    assert found.right("warm", "data", int(NOW * 1000)).until == int((NOW + 3600) * 1000)
    for action, dataset in (("warm", "other"), ("status", "data")):
        with pytest.raises(NotAuthorized):
            found.right(action, dataset, int(NOW * 1000))
    with pytest.raises(NotAuthorized, match="no \\[\\[access\\]\\]"):
        Place().issuers().principal(token(sub="person"))
    with pytest.raises(NotAuthorized, match="issuer"):
        Place().issuers().principal(token(iss="https://other.test"))


def test_wrong_key_ids_do_not_make_requests() -> None:
    place = Place()
    issuers = place.issuers()
    for _ in range(1000):
        with pytest.raises(NotAuthorized):
            issuers.principal(token("EdDSA", header={"kid": "unknown"}))
    assert place.asked == 1
    place.now += AGAIN_SECONDS
    with pytest.raises(NotAuthorized):
        issuers.principal(token("EdDSA", header={"kid": "unknown", "alg": "ES256"}, exp=place.now + 60))
    assert place.asked == 2


def test_known_keys_hold_while_the_address_is_away_and_not_for_ever() -> None:
    place = Place()
    issuers = place.issuers()
    issuers.principal(token())
    place.fails, place.now = True, NOW + FRESH_SECONDS + 1
    assert issuers.principal(token(exp=place.now + 60)).subject == "node-1"
    place.now = NOW + STALE_SECONDS + 1
    with pytest.raises(StorageUnavailable):
        issuers.principal(token(exp=place.now + 60))


@pytest.mark.parametrize("place", ["http://169.254.169.254/latest", "https://a@evil.test/", "/no/such/file", "ftp://x"])
def test_keys_come_from_https_or_a_file_alone(place: str) -> None:
    with pytest.raises((UsageError, StorageUnavailable)):
        fetch_jwks(Issuer(issuer=ISSUER, audience=AUDIENCE, jwks=place))


def test_the_clock_in_use_is_the_real_one() -> None:
    with pytest.raises(NotAuthorized, match="time"):
        Issuers((Issuer(issuer=ISSUER, audience=AUDIENCE, jwks="x"),), (), lambda _: jwks()).principal(
            token(exp=time.time() - 3600)
        )
