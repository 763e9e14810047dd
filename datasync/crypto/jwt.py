"""JSON Web Tokens (RFC 7519, RFC 7515; the advice of RFC 8725), verified with keys of a JWKS (RFC 7517).

An issuer has a fixed list of algorithms, so a token does not choose how it is checked: `none` and HMAC are never in it.
The key is the one of the configured set whose `kid` the header names; a header that brings a key or a place of its own
(`jwk`, `jku`, `x5u`, `x5c`) or an unknown `crit` is refused. iss and aud are compared exactly, exp must be there, nbf
and iat are obeyed. Raises `NotAuthorized` for a token, whatever is wrong with it, `UsageError` for a set of keys.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from datasync.errors import NotAuthorized, UsageError

TOKEN_BYTES = 16 * 1024
KEYS = 64  # of one set
RSA_BITS = (2048, 8192)
CLOCK_SLACK_SECONDS = 60
LIFE_SECONDS = 24 * 3600 + CLOCK_SLACK_SECONDS  # a token that says it lives longer is refused
_REFUSED = ("jwk", "jku", "x5u", "x5c", "crit", "enc", "zip")
_HASHES: Mapping[str, hashes.HashAlgorithm] = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_CURVES: Mapping[str, tuple[ec.EllipticCurve, str]] = {
    "P-256": (ec.SECP256R1(), "ES256"),
    "P-384": (ec.SECP384R1(), "ES384"),
}

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | Ed25519PublicKey


@dataclass(frozen=True, slots=True)
class Expected:
    """What a token has to say; algorithms are those of the issuer alone."""

    issuer: str
    audience: str
    algorithms: tuple[str, ...]


def read_keys(data: bytes, what: str) -> dict[str, PublicKey]:
    """Return the signing keys of a JWKS by their id; keys of other kinds are passed over."""
    try:
        found = json.loads(data)["keys"]
        if not isinstance(found, list) or len(found) > KEYS:
            raise TypeError
        pairs = [(str(item["kid"]), _key(item)) for item in found if "kid" in item and item.get("use", "sig") == "sig"]
    except (ValueError, KeyError, TypeError, RecursionError, UnsupportedAlgorithm):
        raise UsageError(f"{what}: expected a JWKS of at most {KEYS} keys, found something else") from None
    keys = {kid: key for kid, key in pairs if key is not None}
    if len(keys) != len([key for _, key in pairs if key is not None]):
        raise UsageError(f"{what}: two keys have one id")
    return keys


def _key(item: Mapping[str, Any]) -> PublicKey | None:
    kind = item.get("kty")
    if kind == "RSA":
        key = rsa.RSAPublicNumbers(_number(item["e"]), _number(item["n"])).public_key()
        return key if RSA_BITS[0] <= key.key_size <= RSA_BITS[1] else None
    if kind == "EC" and item.get("crv") in _CURVES:
        curve = _CURVES[item["crv"]][0]
        return ec.EllipticCurvePublicNumbers(_number(item["x"]), _number(item["y"]), curve).public_key()
    if kind == "OKP" and item.get("crv") == "Ed25519":
        return Ed25519PublicKey.from_public_bytes(_decode(item["x"]))
    return None


def verify_jwt(text: str, keys: Mapping[str, PublicKey], expected: Expected, now: float) -> dict[str, Any]:
    """Return the claims of *text*."""
    header, claims, signed, signature = _parse(text)
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in expected.algorithms:
        raise NotAuthorized(f"JWT: algorithm {str(algorithm)[:16]!r} is not one of the issuer's")
    if any(name in header for name in _REFUSED):
        raise NotAuthorized("JWT: its header brings a key, or asks for what is not done here")
    key = keys.get(kid) if isinstance(kid, str) else None
    if key is None:
        raise NotAuthorized("JWT: no key of the issuer has the id that it names")
    if not _holds(key, algorithm, signed, signature):
        raise NotAuthorized("JWT: its signature does not hold")
    _check_claims(claims, expected, now)
    return claims


def issuer_of(text: str) -> str:
    """Return whom an unverified token names as its issuer, to choose whose keys to verify it with."""
    return str(_parse(text)[1].get("iss", ""))


def _parse(text: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    parts = text.split(".")
    if len(text) > TOKEN_BYTES or len(parts) != 3:
        raise NotAuthorized("JWT: expected three parts")
    try:
        header, claims = json.loads(_decode(parts[0])), json.loads(_decode(parts[1]))
        signature = _decode(parts[2])
    except (ValueError, RecursionError):
        raise NotAuthorized("JWT: its parts do not parse") from None
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise NotAuthorized("JWT: its parts do not parse")
    return header, claims, f"{parts[0]}.{parts[1]}".encode(), signature


def _holds(key: PublicKey, algorithm: str, signed: bytes, signature: bytes) -> bool:
    """Tell whether *signature* is *key*'s; a key of another kind than *algorithm* holds nothing."""
    digest = _HASHES.get(algorithm[2:])
    try:
        if isinstance(key, Ed25519PublicKey) and algorithm == "EdDSA":
            key.verify(signature, signed)
        elif isinstance(key, rsa.RSAPublicKey) and digest is not None and algorithm[:2] == "RS":
            key.verify(signature, signed, padding.PKCS1v15(), digest)
        elif isinstance(key, rsa.RSAPublicKey) and digest is not None and algorithm[:2] == "PS":
            key.verify(signature, signed, padding.PSS(padding.MGF1(digest), digest.digest_size), digest)
        elif isinstance(key, ec.EllipticCurvePublicKey) and digest is not None and _fits(key, algorithm):
            half = (key.key_size + 7) // 8
            if len(signature) != 2 * half:
                return False
            r, s = (int.from_bytes(part, "big") for part in (signature[:half], signature[half:]))
            key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(digest))
        else:
            return False
    except InvalidSignature:
        return False
    return True


def _fits(key: ec.EllipticCurvePublicKey, algorithm: str) -> bool:
    return any(curve.name == key.curve.name and name == algorithm for curve, name in _CURVES.values())


def _check_claims(claims: Mapping[str, Any], expected: Expected, now: float) -> None:
    if claims.get("iss") != expected.issuer:
        raise NotAuthorized("JWT: iss is not the issuer's name")
    audience = claims.get("aud")
    audiences: Sequence[Any] = audience if isinstance(audience, list) else [audience]
    if expected.audience not in audiences:
        raise NotAuthorized("JWT: aud does not name this daemon")
    times = {name: claims.get(name) for name in ("exp", "nbf", "iat") if name in claims}
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in times.values()):
        raise NotAuthorized("JWT: its times are no numbers")
    expires = times.get("exp")
    if expires is None or now >= expires + CLOCK_SLACK_SECONDS:
        raise NotAuthorized("JWT: its time is over, or it names none")
    if expires > now + LIFE_SECONDS:
        raise NotAuthorized("JWT: it lives longer than a day: let the issuer give shorter ones")
    if max(times.get("nbf") or 0, times.get("iat") or 0) > now + CLOCK_SLACK_SECONDS:
        raise NotAuthorized("JWT: its time has not begun")
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise NotAuthorized("JWT: it names no subject")


def _number(text: Any) -> int:
    return int.from_bytes(_decode(text), "big")


def _decode(text: Any) -> bytes:
    """Return what base64url without padding says, in its one encoding."""
    if not isinstance(text, str) or not text.isascii():
        raise ValueError("base64url without padding")
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if base64.urlsafe_b64encode(data).decode().rstrip("=") != text:
        raise ValueError("base64url without padding")
    return data
