"""Who asks: the account key or shared access signature of Azure's own variables, else Azure's chain of identities.

In this order: AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_SAS_TOKEN, AZURE_STORAGE_KEY (as the vendor's command line
reads them), then azure-identity's chain (variables, workload identity, managed identity, `az login`). Each request asks
anew, so a token is renewed in the middle of whatever is going on, and a changed variable or file counts at once. Tokens
go over https, or to this machine, and nowhere else. Raises `NotAuthorized` when there is nothing to use.
"""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from datasync.errors import NotAuthorized, StorageUnavailable, UsageError
from datasync.storage.azure.signing import VERSION, authorization, parse_key
from datasync.storage.http import HttpOptions
from datasync.storage.location import StoreUrl

CLOUD = "core.windows.net"
SCOPE = "https://storage.azure.com/.default"
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")

Token = Callable[[], str]


@dataclass(frozen=True, slots=True)
class AzureOptions:
    """How to reach the service; what is given here replaces variables and chain."""

    key: str | None = field(default=None, repr=False)
    sas: str | None = field(default=None, repr=False)
    token: Token | None = field(default=None, repr=False)
    http: HttpOptions = field(default_factory=HttpOptions)


@dataclass(frozen=True, slots=True)
class Keys:
    """What to sign with: a key, a signature that somebody else made, or neither."""

    key: bytes | None = field(default=None, repr=False)
    sas: str = field(default="", repr=False)


class Access:
    """Signs the requests to one account."""

    def __init__(self, where: StoreUrl, options: AzureOptions) -> None:
        self._options = options
        self._chain = options.token or _Chain(str(where))
        self.account, self.endpoint = _account(where)
        self.base = urlsplit(self.endpoint).path

    def keys(self) -> Keys:
        """Return what the options or the variables hold now."""
        told = self._options
        if told.token:
            return Keys()
        if told.key or told.sas:
            return Keys(parse_key(told.key) if told.key else None, _query(told.sas or ""))
        string = connection()
        if key := string.get("AccountKey"):
            return Keys(parse_key(key))
        if sas := string.get("SharedAccessSignature") or os.environ.get("AZURE_STORAGE_SAS_TOKEN"):
            return Keys(sas=_query(sas))
        key = os.environ.get("AZURE_STORAGE_KEY")
        return Keys(parse_key(key)) if key else Keys()

    def signed(
        self, method: str, target: str, headers: Mapping[str, str], *, version: str = VERSION
    ) -> tuple[str, dict[str, str]]:
        """Return target and headers with which the service lets the request in; parts of a batch have no *version*."""
        sent = {"x-ms-version": version} if version else {}
        sent |= {"x-ms-date": formatdate(usegmt=True), **headers}
        keys = self.keys()
        if keys.sas:
            self._refuse_plain_http()
            return f"{target}{'&' if '?' in target else '?'}{keys.sas}", sent
        if keys.key is not None:
            signature = authorization(self.account, keys.key, method, self.base + target, sent)
        else:
            self._refuse_plain_http()
            signature = f"Bearer {self._chain()}"
        return target, sent | {"Authorization": signature}

    def ended(self) -> str:
        """Return since when the signature is over; nothing while it holds, or where there is none."""
        end = dict(parse_qsl(self.keys().sas)).get("se", "")
        try:
            time = datetime.fromisoformat(end)
        except ValueError:
            return ""
        # A date alone is midnight in UTC.
        return end if (time if time.tzinfo else time.replace(tzinfo=UTC)) <= datetime.now(UTC) else ""

    def _refuse_plain_http(self) -> None:
        parts = urlsplit(self.endpoint)
        if parts.scheme != "https" and parts.hostname not in LOCAL_HOSTS:
            raise UsageError(
                f"{self.endpoint}: a token or shared access signature goes over https only; correct endpoint= of the "
                "repository URL"
            )


class _Chain:
    """azure-identity's chain, asked when the first request is made; it keeps and renews its tokens."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._credential: Any = None

    def __call__(self) -> str:
        # Imported here: keys and signatures need no such package, and it takes a second to load.
        try:
            from azure.core.exceptions import AzureError, ClientAuthenticationError
            from azure.identity import DefaultAzureCredential
        except ImportError:
            raise NotAuthorized(
                f"{self._url}: no usable credentials; set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or install "
                "azure-identity to use a login or a managed identity"
            ) from None
        with self._lock:
            if self._credential is None:
                self._credential = DefaultAzureCredential()
        try:
            return str(self._credential.get_token(SCOPE).token)
        except ClientAuthenticationError:  # also that there are none
            raise NotAuthorized(
                f"{self._url}: no usable credentials; "
                "set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or run `az login`"
            ) from None
        except AzureError as error:
            kind = type(error).__name__
            raise StorageUnavailable(f"{self._url}: the login service does not answer ({kind}); try again") from error


def connection() -> dict[str, str]:
    """Return the fields of AZURE_STORAGE_CONNECTION_STRING."""
    text = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
    fields = (part.partition("=") for part in text.split(";") if part)
    return {name: value for name, _, value in fields}


def _account(where: StoreUrl) -> tuple[str, str]:
    """Return the account's name and the endpoint of its blobs."""
    string = connection()
    endpoint = where.endpoint or string.get("BlobEndpoint")
    name = where.option("account") or string.get("AccountName") or os.environ.get("AZURE_STORAGE_ACCOUNT")
    if endpoint:
        parts = urlsplit(endpoint)
        # Emulators have the account in the path, the clouds in the host's name.
        return name or parts.path.strip("/") or (parts.hostname or "").partition(".")[0], endpoint.rstrip("/")
    if not name:
        raise UsageError(f"{where}: the storage account is not known; add account=NAME, or set AZURE_STORAGE_ACCOUNT")
    return name, f"https://{name}.blob.{string.get('EndpointSuffix', CLOUD)}"


def _query(sas: str) -> str:
    return sas.lstrip("?")
