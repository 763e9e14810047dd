"""Credentials for a part of a bucket: a service account's token, cut down by a Credential Access Boundary.

Two requests. `generateAccessToken` (vendor's page "Create short-lived credentials for a service account") makes a token
of the account that the role names, which lasts as long as it is asked for and at most an hour. The exchange at the
Security Token Service ("Create a downscoped short-lived credential") binds that to permissions on names that begin with
the scope's prefixes. What comes out ends with the token it was made from: conditions of a boundary are documented for
names and listings alone, so the end is bound by the first request and by nothing in the boundary.

Creating is `roles/storage.objectCreator`, which replaces and deletes nothing ("IAM roles for Cloud Storage"). The
bucket needs uniform bucket-level access. Raises `NotAuthorized`, `StorageUnavailable`, `UsageError`.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from datasync.errors import DatasyncError, NotAuthorized, StorageUnavailable, UsageError
from datasync.storage.brokers import Credential, Scope
from datasync.storage.gcs.credentials import TOKEN_VARIABLE, Chain, GcsOptions, Token, bearer, is_private
from datasync.storage.gcs.store import GcsStore
from datasync.storage.http import Answer, Http, HttpOptions
from datasync.storage.location import StoreUrl
from datasync.storage.protocol import ObjectStore

IAM = "https://iamcredentials.googleapis.com"
STS = "https://sts.googleapis.com"
SOURCE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"  # of the broker's own token: to ask for another's
TOKEN_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
LONGEST_SECONDS = 3_600  # of a service account's token, unless the organisation allows more
BOUNDARY_CHARACTERS = 2_048  # of an access boundary ("Options" of the service's reference)
GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
READ, LIST, CREATE = "storage.objectViewer", "storage.legacyBucketReader", "storage.objectCreator"

_ACCOUNT = re.compile(r"[A-Za-z0-9._-]{1,128}@[A-Za-z0-9.-]{1,128}")
_PLAIN = re.compile(r"[A-Za-z0-9._/-]+")


def access_boundary(where: StoreUrl, scope: Scope) -> str:
    """Return the boundary that allows *scope* in the repository at *where*, and nothing else."""
    roles = [READ if scope.read else LIST] + ([CREATE] if scope.create else [])
    rule = {
        "availableResource": f"//storage.googleapis.com/projects/_/buckets/{where.place}",
        "availablePermissions": [f"inRole:roles/{role}" for role in roles],
        "availabilityCondition": {"expression": _condition(where, scope)},
    }
    text = json.dumps({"accessBoundary": {"accessBoundaryRules": [rule]}}, separators=(",", ":"))
    if len(text) > BOUNDARY_CHARACTERS:
        raise UsageError(
            f"credential: {len(scope.prefixes)} prefixes make a boundary of {len(text)} characters: ask for fewer"
        )
    return text


def _condition(where: StoreUrl, scope: Scope) -> str:
    """Return what a request has to be about: an object, or a listing, whose name begins with a prefix."""
    before = f"{where.prefix.strip('/')}/" if where.prefix.strip("/") else ""
    terms = list[str]()
    for name in (_plain(f"{before}{prefix}") for prefix in scope.prefixes):
        terms.append(f"resource.name.startsWith('projects/_/buckets/{where.place}/objects/{name}')")
        terms.append(f"api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('{name}')")
    return " || ".join(terms)


def _plain(name: str) -> str:
    """Return *name*, which ends no string of a condition."""
    if _PLAIN.fullmatch(name) is None:
        raise UsageError(f"repository prefix {name!r}: a boundary can name letters, digits and . _ / - only")
    return name


class GcsBroker:
    """Issues downscoped tokens of one service account, which the broker's own credential may impersonate."""

    def __init__(
        self,
        where: StoreUrl,
        role: str,
        *,
        endpoint: str | None = None,
        clock: Callable[[], float] = time.time,
        token: Token | None = None,
        http: HttpOptions | None = None,
    ) -> None:
        if _ACCOUNT.fullmatch(role) is None:
            raise UsageError(
                "credentials for gs://: expected [policy] role, the address of a service account that may do no more "
                f"than read and create there (name@project.iam.gserviceaccount.com), found {role[:80]!r}"
            )
        if endpoint and not is_private(endpoint):
            raise UsageError(f"{endpoint}: a token goes over https only; correct [policy] sts_endpoint")
        self._where, self._role, self._clock = where, role, clock
        self._token = token or Chain(str(where), SOURCE_SCOPE)
        self._iam, self._sts = endpoint or IAM, endpoint or STS
        self._http = http or HttpOptions()

    def issue(self, scope: Scope) -> Credential:
        """Return the variable of a token for *scope*; it lasts an hour at most, whatever the scope."""
        boundary = access_boundary(self._where, scope)
        seconds = min(LONGEST_SECONDS, scope.seconds(self._clock()))
        source, until = self._impersonated(seconds)
        found = self._exchanged(source, boundary)
        return Credential({TOKEN_VARIABLE: found}, min(scope.until, until))

    def _impersonated(self, seconds: int) -> tuple[str, int]:
        """Return a token of the account, and until when it lasts."""
        body = json.dumps({"scope": [TOKEN_SCOPE], "lifetime": f"{seconds}s"}).encode()
        own = self._token()
        headers = {"Content-Type": "application/json"} | ({"Authorization": own} if own else {})
        target = f"/v1/projects/-/serviceAccounts/{self._role}:generateAccessToken"
        found = self._ask(self._iam, target, headers, body)
        try:
            return str(found["accessToken"]), int(datetime.fromisoformat(found["expireTime"]).timestamp())
        except (KeyError, TypeError, ValueError):
            raise self._no_token() from None

    def _exchanged(self, source: str, boundary: str) -> str:
        """Return the token *source*, cut down to *boundary*."""
        fields = {
            "grant_type": GRANT,
            "subject_token_type": ACCESS_TOKEN,
            "requested_token_type": ACCESS_TOKEN,
            "subject_token": source,
            "options": boundary,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        found = self._ask(self._sts, "/v1/token", headers, urlencode(fields).encode()).get("access_token")
        if not isinstance(found, str) or not found or found == source:
            raise self._no_token()
        return found

    def _ask(self, endpoint: str, target: str, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
        what = f"service account {self._role}"
        with closing(Http(endpoint, self._http)) as http:
            answer = http.exchange("POST", target, headers, what=what, body=(body,))
        if answer.status != 200:
            raise _meaning(what, target, answer)
        try:
            found = json.loads(answer.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._no_token()
        return found

    def _no_token(self) -> StorageUnavailable:
        return StorageUnavailable(f"service account {self._role}: the answer holds no token; try again")


def _meaning(what: str, target: str, answer: Answer) -> DatasyncError:
    """Return the error for *answer*; the server's own text may repeat a token and is not shown."""
    text = f"{what}: no credential: the server answered {answer.status}"
    if answer.status >= 500 or answer.status in (408, 429):
        return StorageUnavailable(f"{text}; run the same line again")
    if answer.status in (401, 403, 404) and target != "/v1/token":
        return NotAuthorized(
            f"{text}: it does not exist, or the broker's own credential may not impersonate it: grant that "
            "roles/iam.serviceAccountTokenCreator on it"
        )
    if answer.status in (401, 403):
        return NotAuthorized(f"{text} to the exchange: the Security Token Service takes no token of this project")
    return UsageError(f"{text}, which no retry changes; check [policy] role and sts_endpoint")


def open_lent(where: StoreUrl, variables: Mapping[str, str]) -> ObjectStore:
    """Return the store at *where*, opened with a credential's variables; `KeyError` when one is missing."""
    return GcsStore(where, GcsOptions(token=bearer(where, variables[TOKEN_VARIABLE])))
