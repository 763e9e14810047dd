"""Who asks: Google's own chain of credentials (google-auth), one fresh bearer token per request.

The chain is the vendor's: GOOGLE_APPLICATION_CREDENTIALS (service account, workload identity federation), the login of
gcloud, the instance's service account. Tokens are renewed before they expire, in the middle of whatever is going on.
A token is sent over https, or to this machine, and nowhere else. Raises `NotAuthorized` when there is nothing to use,
`StorageUnavailable` when the token's server does not answer.
"""

import os
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

from datasync.errors import NotAuthorized, StorageUnavailable
from datasync.storage.http import HttpOptions

SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
EMULATOR_VARIABLE = "STORAGE_EMULATOR_HOST"
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")

Token = Callable[[], str | None]
"""Returns the Authorization header's value, None for anonymous requests."""
Signer = tuple[str, Callable[[bytes], bytes]]
"""A service account's address, and what signs with its key."""


@dataclass(frozen=True, slots=True)
class GcsOptions:
    """How to reach the service; *token* replaces the chain."""

    token: Token | None = field(default=None, repr=False)
    http: HttpOptions = field(default_factory=HttpOptions)


def token_for(endpoint: str, url: str) -> Token:
    """Return the source of tokens for *endpoint*."""
    parts = urlsplit(endpoint)
    if parts.scheme == "https":
        return Chain(url)
    if parts.hostname in LOCAL_HOSTS and os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return Chain(url)
    return lambda: None  # an emulator: a token never goes over plain http to another machine


class Chain:
    """The vendor's chain, asked when the first request is made."""

    def __init__(self, url: str) -> None:
        self._url = url
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
                    self._credentials, _ = google.auth.default(scopes=[SCOPE], request=self._transport)
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
