"""What Azure can do beyond `ObjectStore`: the protocols of `datasync.storage.extras`, as a part of AzureStore.

The vendor's pages: "Blob Batch" (256 deletes of one container at most, each signed for itself), "List Blobs"
(`include=versions`; a name's oldest comes first), "Delete Blob" (`versionid`; the current version goes only with the
blob itself, which makes an old version of it), "Set Blob Immutability Policy", "Put Blob", "Get Container Properties".
A policy is always `Locked`, which nobody can shorten. Only the management interface tells if the account makes versions
and for how many days a container keeps its blobs; here is said what the service's own answers show.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from itertools import groupby, islice
from typing import NoReturn
from urllib.parse import urlencode
from xml.etree import ElementTree

from datasync.errors import NotAuthorized, StorageUnavailable, UsageError
from datasync.storage.azure.container import AzureContainer
from datasync.storage.azure.errors import code_of
from datasync.storage.batch import CONTENT_TYPE, Part, read_batch, write_batch
from datasync.storage.extras import Lock, ObjectVersion
from datasync.storage.http import Answer, Bytes
from datasync.storage.names import check_name, check_prefix, is_name
from datasync.storage.protocol import Created

BATCH_CALLS = 256  # what the service takes in one request
_UNTIL = "x-ms-immutability-policy-until-date"
_MODE = "x-ms-immutability-policy-mode"
_HOLD = "x-ms-legal-hold"
_NEEDED = "single blobs are kept only in a container with version-level immutability, until a time to come"
_KEPT = ("BlobImmutableDueToPolicy", "BlobImmutableDueToLegalHold")


class AzureExtras(AzureContainer):
    """Batch deletes, versions, retention, locks."""

    def delete_many(self, names: Iterable[str]) -> None:
        left, first = iter(names), None
        while batch := [check_name(name) for name in islice(left, BATCH_CALLS)]:
            for name, answer in zip(batch, self._delete_batch(batch), strict=True):
                first = first or (None if self._is_gone(answer) else (answer, name))
        if first is not None:
            self._refuse_delete(*first)

    def versioning(self) -> str:
        """Return `enabled` where any blob beneath the root has a version; the account may make no more of them.

        Where none has, that takes a whole listing.
        """
        return "enabled" if any(item.findtext("VersionId") for item in self._all_versions("")) else "off"

    def list_versions(self, prefix: str) -> Iterator[ObjectVersion]:
        """As the protocol says; a blob from before there were versions has the version ''."""
        for key, found in groupby(self._all_versions(check_prefix(prefix)), key=lambda item: item.findtext("Name", "")):
            name = key.removeprefix(self._root)
            if is_name(name):
                yield from sorted((self._version(name, item) for item in found), key=_age, reverse=True)

    def delete_version(self, name: str, version: str) -> None:
        query = f"?{urlencode({'versionid': version})}" if version else ""
        if not self._delete_one(name, query):
            # It is the current one: without the blob it is an old one, of the same id.
            self._delete_one(name, "")
            self._delete_one(name, query)

    def retention_days(self) -> int | None:
        """Raises `UsageError` when the container keeps its blobs: for how long the service does not tell here."""
        if self._properties().get("x-ms-has-immutability-policy") != "true":
            return None
        raise UsageError(
            f"{self.url}: the container keeps its blobs, for how many days only the management interface tells: "
            "`az storage container immutability-policy show`"
        )

    def retain_until(self, name: str, until: float) -> None:
        found = self.lock_of(name)
        if found.compliance and found.until >= until:
            return
        headers = _policy(max(found.until, until)) | {"Content-Length": "0"}
        answer = self._exchange("PUT", f"{self._blob(name)}?comp=immutabilityPolicies", name, headers)
        self._check_locks_known(answer, name)
        self._expect(answer, name, 200)
        self._check_locked(self._lock(answer, name), name, until)

    def put_locked(self, name: str, data: Bytes, *, until: float, legal_hold: bool = False) -> Created:
        answer = self._put(name, data, _policy(until) | ({_HOLD: "true"} if legal_hold else {}))
        self._check_locks_known(answer, name)
        self._expect(answer, name, 201)
        # Believe the blob, not the request: a server that knows no locks ignores them.
        lock = self.lock_of(name)
        self._check_locked(lock, name, until)
        if legal_hold and not lock.legal_hold:
            raise UsageError(f"{self._what(name)} is stored, but the server put no legal hold on it; {_NEEDED}")
        return Created()

    def lock_of(self, name: str) -> Lock:
        answer = self._exchange("HEAD", self._blob(name), name)
        self._expect(answer, name, 200)
        return self._lock(answer, name)

    # Requests

    def _delete_batch(self, names: list[str]) -> list[Answer]:
        body = write_batch([self._delete_part(name) for name in names])
        headers = {"Content-Type": CONTENT_TYPE, "Content-Length": str(len(body))}
        answer = self._exchange("POST", f"/{self._container}?restype=container&comp=batch", "", headers, (body,))
        self._expect(answer, "", 202)
        return read_batch(answer, len(names), self.url)

    def _delete_part(self, name: str) -> Part:
        target, headers = self._access.signed("DELETE", self._blob(name), {"Content-Length": "0"}, version="")
        return Part("DELETE", self._access.base + target, headers)

    def _all_versions(self, prefix: str) -> Iterator[ElementTree.Element]:
        for page in self._follow({"include": "versions"}, prefix):
            yield from page.iterfind("Blobs/Blob")

    def _delete_one(self, name: str, query: str) -> bool:
        """Return False when the version is the current one."""
        answer = self._exchange("DELETE", f"{self._blob(name)}{query}", name)
        if query and code_of(answer) == "OperationNotAllowedOnRootBlob":
            return False
        if not self._is_gone(answer):
            self._refuse_delete(answer, name)
        return True

    def _properties(self) -> dict[str, str]:
        answer = self._exchange("HEAD", f"/{self._container}?restype=container", "")
        self._expect(answer, "", 200)
        return dict(answer.headers)

    # Answers

    def _is_gone(self, answer: Answer) -> bool:
        """Tell if the blob is not there now; a missing container is another thing."""
        return answer.status == 202 or (answer.status == 404 and code_of(answer) != "ContainerNotFound")

    def _refuse_delete(self, answer: Answer, name: str) -> NoReturn:
        if code_of(answer) in _KEPT:
            raise NotAuthorized(
                f"{self._what(name)} was not removed: the server answered {answer.status} {code_of(answer)}; "
                "the container's retention or a hold keeps it"
            )
        self._refuse(answer, name)

    def _check_locks_known(self, answer: Answer, name: str) -> None:
        if answer.status >= 400 and isinstance(error := self._translated(answer, name), UsageError):
            raise UsageError(f"{error}; {_NEEDED}")

    def _check_locked(self, lock: Lock, name: str, until: float) -> None:
        if lock.until < until or not lock.compliance:
            raise UsageError(f"{self._what(name)} is stored, but the server did not lock it; {_NEEDED}")

    def _lock(self, answer: Answer, name: str) -> Lock:
        told = answer.headers
        until = self._seconds(name, told[_UNTIL]) if told.get(_UNTIL) else 0.0
        return Lock(until, told.get(_HOLD) == "true", told.get(_MODE, "").lower() == "locked")

    def _version(self, name: str, item: ElementTree.Element) -> ObjectVersion:
        version = item.findtext("VersionId", "")
        newest = item.findtext("IsCurrentVersion") == "true" or not version
        size = item.findtext("Properties/Content-Length", "0")
        time = self._seconds(name, item.findtext("Properties/Last-Modified", ""))
        return ObjectVersion(name, version, newest, False, int(size), time)

    def _seconds(self, name: str, date: str) -> float:
        try:
            return parsedate_to_datetime(date).timestamp()
        except (ValueError, TypeError):
            raise StorageUnavailable(f"{self._what(name)}: the answer has no time; try again") from None


def _policy(until: float) -> dict[str, str]:
    """Round up: never less than was asked for."""
    time = datetime.fromtimestamp(int(until), UTC) + timedelta(seconds=until % 1 > 0)
    return {_UNTIL: format_datetime(time, usegmt=True), _MODE: "Locked"}


def _age(item: ObjectVersion) -> tuple[bool, str]:
    """Order by the current one, then by the version, which is a time of fixed width."""
    return item.newest, item.version
