"""Who signs JWTs that this daemon believes, and their keys: from a file, or from the one https address configured.

The address is the configuration's alone: no header and no claim leads anywhere, no redirect is followed, answers are
bounded, and one that names a private address has to be written so. Keys are kept `FRESH_SECONDS`; an unknown `kid` asks
again at most once a minute. When the address fails, the keys that are known hold on for `STALE_SECONDS`. Raises
`NotAuthorized` for a token, `StorageUnavailable` when keys can not be had.
"""

import fnmatch
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasync.crypto.jwt import Expected, PublicKey, issuer_of, read_keys, verify_jwt
from datasync.crypto.kms.http import Client, HttpLimits, Request, parse_endpoint
from datasync.errors import DatasyncError, NotAuthorized, StorageUnavailable, UsageError
from datasync.service.daemon_settings import Access, Issuer, Proof, seconds
from datasync.service.principal import NOTHING, Principal, Proved, Right

FRESH_SECONDS = 3600.0
STALE_SECONDS = 24 * 3600.0
AGAIN_SECONDS = 60.0
JWKS_BYTES = 64 * 1024

Fetch = Callable[[Issuer], bytes]


def fetch_jwks(issuer: Issuer) -> bytes:
    """Return an issuer's JWKS."""
    what = f"[[issuer]] {issuer.issuer}: jwks"
    if not issuer.jwks.startswith("https://"):
        try:
            return Path(issuer.jwks).read_bytes()[:JWKS_BYTES]
        except OSError as error:
            raise UsageError(f"{what}: expected a file or an https address: {error.strerror}") from None
    endpoint = parse_endpoint(issuer.jwks, what)
    limits = HttpLimits(total_seconds=10, answer_bytes=JWKS_BYTES)
    answer = Client(what, endpoint, limits, issuer.ca or None).send(Request("GET", endpoint.path or "/", {}))
    if answer.status != 200:
        raise StorageUnavailable(f"{what}: expected status 200, found {answer.status}")
    return answer.body


def proved_by(issuer: Issuer, claims: Mapping[str, Any]) -> Proved:
    """Return what verified *claims* prove, as the configuration reads this issuer's (RFC 8176 for `amr`)."""
    return Proved(
        mfa=any(_proves(proof, claims) for proof in issuer.mfa),
        attested=bool(issuer.attested) and all(_proves(proof, claims) for proof in issuer.attested),
        region=_text_at(claims, issuer.region),
        purpose=_text_at(claims, issuer.purpose),
    )


def _proves(proof: Proof, claims: Mapping[str, Any]) -> bool:
    """Tell whether the claim is one of the values, or a list that has one: whole texts, never parts of them; `true` is
    not "true", nor 1.
    """
    found = _at(claims, proof.claim)
    told = found if isinstance(found, list) else [found]
    return any(type(item) is type(value) and item == value for item in told for value in proof.values)


def _text_at(claims: Mapping[str, Any], path: tuple[str, ...]) -> str | None:
    found = _at(claims, path) if path else None
    return found if isinstance(found, str) and found else None


def _at(claims: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = claims
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


@dataclass(slots=True)
class _Keys:
    keys: dict[str, PublicKey]
    fetched: float
    tried: float


class Issuers:
    """All issuers of the configuration. Thread-safe."""

    def __init__(
        self,
        issuers: tuple[Issuer, ...],
        access: tuple[Access, ...],
        fetch: Fetch = fetch_jwks,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._issuers = {item.issuer: item for item in issuers}
        self._access, self._fetch, self._clock = access, fetch, clock
        self._known: dict[str, _Keys] = {}
        self._lock = threading.Lock()

    def principal(self, text: str) -> Principal:
        """Return whom the JWT *text* names, with the rights that `[[access]]` gives; raise `NotAuthorized`."""
        issuer = self._issuers.get(issuer_of(text))
        if issuer is None:
            raise NotAuthorized("JWT: its issuer is not one that this daemon knows")
        expected = Expected(issuer.issuer, issuer.audience, issuer.algorithms)
        with self._lock:
            keys = self._keys(issuer)
        try:
            claims = verify_jwt(text, keys, expected, self._clock())
        except NotAuthorized as error:
            if "no key of the issuer" not in str(error):
                raise
            with self._lock:
                keys = self._keys(issuer, again=True)
            claims = verify_jwt(text, keys, expected, self._clock())
        return self.known(issuer.issuer, str(claims["sub"]), "jwt", proved_by(issuer, claims))

    def known(self, issuer: str, subject: str, method: str, proved: Proved = NOTHING) -> Principal:
        """Return a verified subject with its rights; raise `NotAuthorized` when it has none."""
        now = self._clock()
        rights = tuple(
            Right(item.datasets, item.actions, int((now + seconds(item.ttl, "ttl")) * 1000))
            for item in self._access
            if item.issuer == issuer and fnmatch.fnmatchcase(subject, item.subject)
        )
        if not rights:
            raise NotAuthorized(f"{subject[:100]!r} of {issuer}: no [[access]] names it")
        return Principal(subject, issuer, method, rights, proved=proved)

    def _keys(self, issuer: Issuer, *, again: bool = False) -> dict[str, PublicKey]:
        now, known = self._clock(), self._known.get(issuer.issuer)
        if known is not None:
            just_tried = now - known.tried < AGAIN_SECONDS
            if just_tried or (not again and now - known.fetched < FRESH_SECONDS):
                return known.keys
        try:
            keys = read_keys(self._fetch(issuer), f"[[issuer]] {issuer.issuer}: jwks")
        except DatasyncError as error:
            if known is None or now - known.fetched > STALE_SECONDS:
                raise StorageUnavailable(str(error)) from None
            known.tried = now
            return known.keys
        self._known[issuer.issuer] = _Keys(keys, now, now)
        return keys
