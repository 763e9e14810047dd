"""Credentials for a container: a shared access signature that reads, lists, and creates without replacing.

A signature can be bound to a blob, to a container, or to a directory, and directories exist only in accounts with a
hierarchical namespace, whose listings the driver refuses (vendor's page "Create a service SAS", signed resource). So it
is bound to the **container**, not to a scope's prefixes: to permissions and to an end. Whoever wants that says so, with
the role `container`. The permission `c` without `w` creates blobs and replaces none (the same page, permissions).

Signed with the account key where the broker has one, in the order in which the driver finds its credentials; else with
a user delegation key, which the service gives to a token ("Get User Delegation Key") and which ends with the signature.
Raises `NotAuthorized`, `StorageUnavailable`, `UsageError`.
"""

import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import closing
from xml.etree import ElementTree

from datasync.errors import DatasyncError, NotAuthorized, StorageUnavailable, UsageError
from datasync.storage.azure.access import Access, AzureOptions
from datasync.storage.azure.errors import translate
from datasync.storage.azure.signing import UserKey, container_sas, delegated_sas, iso
from datasync.storage.azure.store import AzureStore
from datasync.storage.brokers import Credential, Scope
from datasync.storage.http import Answer, Http
from datasync.storage.location import StoreUrl
from datasync.storage.protocol import ObjectStore

ROLE = "container"
SKEW_SECONDS = 300  # a key begins so much earlier: the service's clock may be behind
SAS_VARIABLE, ACCOUNT_VARIABLE = "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_ACCOUNT"
DEFAULT = AzureOptions()
_FIELDS = ("SignedOid", "SignedTid", "SignedStart", "SignedExpiry", "SignedService", "SignedVersion")
_KEY_REQUEST = "/?restype=service&comp=userdelegationkey"
_DELEGATE = "Microsoft.Storage/storageAccounts/blobServices/generateUserDelegationKey/action"


def permissions_of(scope: Scope) -> str:
    """Return the permissions of *scope* in the order that the service asks for."""
    return ("r" if scope.read else "") + ("c" if scope.create else "") + "l"


class AzureSasBroker:
    """Issues signatures for one container."""

    def __init__(
        self,
        where: StoreUrl,
        role: str,
        options: AzureOptions = DEFAULT,
        *,
        endpoint: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if role != ROLE:
            raise UsageError(
                f'credentials for az://: expected [policy] role = "{ROLE}", found {role[:80]!r}: a signature is bound '
                "to the whole container, not to one dataset (docs/policy.md)"
            )
        if endpoint is not None:
            raise UsageError("credentials for az://: the service itself signs; remove [policy] sts_endpoint")
        self._where, self._clock = where, clock
        self._access = Access(where, options)
        self._http = options.http

    def issue(self, scope: Scope) -> Credential:
        """Return the variables of a signature: for all of the container, until the end of *scope*."""
        now = self._clock()
        until = int(now) + scope.seconds(now)
        account, secure = self._access.account, self._access.endpoint.startswith("https:")
        place, allowed, keys = self._where.place, permissions_of(scope), self._access.keys()
        if keys.sas:
            raise UsageError(f"{self._where}: a signature makes no other: the broker needs an account key or a login")
        if keys.key is not None:
            query = container_sas(account, keys.key, place, allowed, until, https=secure)
        else:
            query = delegated_sas(account, self._user_key(now, until), place, allowed, until, https=secure)
        return Credential({SAS_VARIABLE: query, ACCOUNT_VARIABLE: account}, until)

    def _user_key(self, now: float, until: int) -> UserKey:
        """Ask for a key that ends with the signature."""
        start, end = iso(now - SKEW_SECONDS), iso(until)
        body = f"<KeyInfo><Start>{start}</Start><Expiry>{end}</Expiry></KeyInfo>".encode()
        headers = {"Content-Length": str(len(body)), "Content-Type": "application/xml"}
        target, signed = self._access.signed("POST", _KEY_REQUEST, headers)
        with closing(Http(self._access.endpoint, self._http)) as http:
            answer = http.exchange("POST", target, signed, what=str(self._where), body=(body,))
        if answer.status != 200:
            raise self._meaning(answer)
        try:
            found = ElementTree.fromstring(answer.body)
            return UserKey(b64decode(_text(found, "Value"), validate=True), *(_text(found, name) for name in _FIELDS))
        except (ElementTree.ParseError, ValueError):
            raise StorageUnavailable(f"{self._where}: the answer holds no user delegation key; try again") from None

    def _meaning(self, answer: Answer) -> DatasyncError:
        error = translate(answer, url=str(self._where), container=self._where.place, name="")
        if isinstance(error, NotAuthorized):
            return NotAuthorized(
                f"{error}. A user delegation key needs {_DELEGATE}, which the role Storage Blob Delegator has"
            )
        return error


def _text(found: ElementTree.Element, name: str) -> str:
    text = found.findtext(name)
    if not text:
        raise ValueError(name)
    return text


def open_lent(where: StoreUrl, variables: Mapping[str, str]) -> ObjectStore:
    """Return the store at *where*, opened with a credential's variables; `KeyError` when one is missing."""
    named = where.endpoint or where.option("account")
    chosen = where if named else where.with_option("account", variables[ACCOUNT_VARIABLE])
    return AzureStore(chosen, AzureOptions(sas=variables[SAS_VARIABLE]))
