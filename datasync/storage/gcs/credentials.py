"""Who asks: a token that was given, else Google's own chain of credentials (google-auth), one fresh token per request.

CLOUDSDK_AUTH_ACCESS_TOKEN is a finished token, as the vendor's command line reads it: nothing renews it, and when it is
over the service refuses it. The chain is the vendor's: GOOGLE_APPLICATION_CREDENTIALS (service account, workload
identity federation), the login of gcloud, the instance's service account. Its tokens are renewed before they expire, in
the middle of whatever is going on. A token is sent over https, or to this machine, and nowhere else. Raises
`NotAuthorized` when there is nothing to use, `StorageUnavailable` when the token's server does not answer.
"""

import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import google.auth
import urllib3
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError, TransportError
from google.auth.transport.urllib3 import Request
from google.oauth2 import service_account

from datasync.errors import NotAuthorized, StorageUnavailable, UsageError
from datasync.storage.http import HttpOptions
from datasync.storage.location import StoreUrl

SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
EMULATOR_VARIABLE = "STORAGE_EMULATOR_HOST"
TOKEN_VARIABLE = "CLOUDSDK_AUTH_ACCESS_TOKEN"
ENDPOINT = "https://storage.googleapis.com"
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")

_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")

Token = Callable[[], str | None]
"""Returns the Authorization header's value, None for anonymous requests."""
Signer = tuple[str, Callable[[bytes], bytes]]
"""A service account's address, and what signs with its key."""


@dataclass(frozen=True, slots=True)
class GcsOptions:
    """How to reach the service; *token* replaces the chain."""

    token: Token | None = field(default=None, repr=False)
    http: HttpOptions = field(default_factory=HttpOptions)


def endpoint_of(where: StoreUrl) -> str:
    """Return where the service of *where* answers."""
    return where.endpoint or os.environ.get(EMULATOR_VARIABLE) or ENDPOINT


def is_private(endpoint: str) -> bool:
    """Tell whether a token may be sent to *endpoint*."""
    parts = urlsplit(endpoint)
    return parts.scheme == "https" or parts.hostname in LOCAL_HOSTS


def token_for(endpoint: str, url: str) -> Token:
    """Return the source of tokens for *endpoint*."""
    if not is_private(endpoint):
        return lambda: None  # an emulator on another machine
    if given := os.environ.get(TOKEN_VARIABLE):
        return _fixed(given)
    if endpoint.startswith("https:") or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return Chain(url)
    return lambda: None


def bearer(where: StoreUrl, token: str) -> Token:
    """Return *token* as the only one that is ever sent to *where*."""
    if not is_private(endpoint_of(where)):
        raise UsageError(f"{where}: a token goes over https only; correct endpoint= of the repository URL")
    return _fixed(token)


def _fixed(token: str) -> Token:
    if _TOKEN.fullmatch(token) is None:
        raise UsageError(f"{TOKEN_VARIABLE}: expected a token without blanks, found something else")
    return lambda: f"Bearer {token}"


class Chain:
    """The vendor's chain, asked when the first request is made."""

    def __init__(self, url: str, scope: str = SCOPE) -> None:
        self._url = url
        self._scope = scope
        self._lock = threading.Lock()
        self._credentials: Any = None
        self._transport = Request(urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(connect=10, read=30)))

    def signer(self) -> Signer | None:
        """Return what signs for others; None unless the chain ends at a service account's own key."""
        self()
        found = self._credentials
        if isinstance(found, service_account.Credentials):
            return found.service_account_email, found.sign_bytes
        return None

    def __call__(self) -> str | None:
        with self._lock:
            try:
                if self._credentials is None:
                    self._credentials, _ = google.auth.default(scopes=[self._scope], request=self._transport)
                if not self._credentials.valid:  # expired, or about to
                    self._credentials.refresh(self._transport)
            except DefaultCredentialsError:
                raise NotAuthorized(
                    f"{self._url}: no usable credentials; set GOOGLE_APPLICATION_CREDENTIALS or run "
                    "`gcloud auth application-default login`"
                ) from None
            except TransportError as error:
                raise StorageUnavailable(f"{self._url}: the token's server does not answer; try again") from error
            except (RefreshError, GoogleAuthError, ValueError, OSError) as error:
                if getattr(error, "retryable", False):
                    raise StorageUnavailable(f"{self._url}: the token's server does not answer; try again") from error
                raise NotAuthorized(
                    f"{self._url}: the credentials can not be renewed ({type(error).__name__}); log in again"
                ) from error
            return f"Bearer {self._credentials.token}"
