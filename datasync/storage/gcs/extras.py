"""What GCS can do beyond `ObjectStore`: the protocols of `datasync.storage.extras`, as a part of GcsStore.

The vendor's pages: "Batch requests" (100 calls at most), "Objects: list" (`versions`), "Bucket" and "Object" resources
(`versioning`, `retentionPolicy`, `retention`, holds), "Enable and use object retention configurations". There are no
delete markers: what was deleted is a version without a newer one. A retention is always made `Locked`, which nobody can
shorten; `overrideUnlockedRetention` is never sent, so one that is `Unlocked` is refused, not taken over.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice
from typing import Any

from datasync.errors import StorageUnavailable, UsageError
from datasync.storage.batch import CONTENT_TYPE, Part, read_batch, write_batch
from datasync.storage.extras import Lock, ObjectVersion
from datasync.storage.gcs.bucket import GcsBucket
from datasync.storage.http import Answer, Bytes
from datasync.storage.names import check_name, check_prefix, is_name
from datasync.storage.protocol import Created

BATCH_CALLS = 100  # what the service takes in one request
DAY_SECONDS = 86_400
_LOCK_FIELDS = "retention,temporaryHold,eventBasedHold"


class GcsExtras(GcsBucket):
    """Batch deletes, versions, retention, locks."""

    def delete_many(self, names: Iterable[str]) -> None:
        left, first = iter(names), None
        while batch := [check_name(name) for name in islice(left, BATCH_CALLS)]:
            for name, answer in zip(batch, self._delete_batch(batch), strict=True):
                first = first or (None if self._is_gone(answer) else (answer, name))
        if first is not None:
            self._expect(*first, 204)

    def versioning(self) -> str:
        found = self._bucket_fields("versioning").get("versioning")
        if not found:
            return "off"  # it was never set
        return "enabled" if found.get("enabled") else "suspended"

    def list_versions(self, prefix: str) -> Iterator[ObjectVersion]:
        for _, found in groupby(self._all_versions(check_prefix(prefix)), key=lambda item: item.name):
            # The service gives the oldest first; generations only grow.
            yield from sorted(found, key=lambda item: int(item.version), reverse=True)

    def delete_version(self, name: str, version: str) -> None:
        answer = self._exchange("DELETE", self._object(name, generation=version), name)
        if not self._is_gone(answer):
            self._expect(answer, name, 204)

    def retention_days(self) -> int | None:
        fields = self._bucket_fields("retentionPolicy")
        with self._told(""):
            seconds = int((fields.get("retentionPolicy") or {}).get("retentionPeriod", 0))
        return -(-seconds // DAY_SECONDS) or None  # rounded up: an hour is not "none"

    def retain_until(self, name: str, until: float) -> None:
        found = self._lock_fields(name).get("retention") or {}
        if found and found.get("mode") != "Locked":
            raise UsageError(
                f"{self._what(name)} has a retention that can be lifted, which would have to be overridden; "
                "lock it with your provider, or remove it"
            )
        if found and _time(found["retainUntilTime"]) >= until:
            return
        body = json.dumps({"retention": _retention(until)}).encode()
        headers = self._headers() | {"Content-Type": "application/json"}
        target = self._object(name, fields=_LOCK_FIELDS)
        answer = self._http.exchange("PATCH", target, headers, what=self._what(name), body=(body,))
        self._check_locks_known(answer, name)
        self._expect(answer, name, 200)
        self._check_locked(self._document(answer, name), name, until, legal_hold=False)

    def put_locked(self, name: str, data: Bytes, *, until: float, legal_hold: bool = False) -> Created:
        about = {"retention": _retention(until)} | ({"temporaryHold": True} if legal_hold else {})
        view = memoryview(data).cast("B")
        answer = self._put(name, view, about, fields=f"size,{_LOCK_FIELDS}")
        self._check_locks_known(answer, name)
        self._check_locked(self._check_put(answer, name, len(view)), name, until, legal_hold=legal_hold)
        return Created()

    def lock_of(self, name: str) -> Lock:
        fields = self._lock_fields(name)
        with self._told(name):
            return _lock(fields)

    # Requests

    def _delete_batch(self, names: list[str]) -> list[Answer]:
        body = write_batch([Part("DELETE", self._object(name), {}) for name in names])
        headers = self._headers() | {"Content-Type": CONTENT_TYPE}
        answer = self._http.exchange("POST", "/batch/storage/v1", headers, what=self.url, body=(body,))
        self._expect(answer, "", 200)
        return read_batch(answer, len(names), self.url)

    def _all_versions(self, prefix: str) -> Iterator[ObjectVersion]:
        fields = "items(name,generation,size,timeCreated,timeDeleted),nextPageToken"
        for page in self._follow({"prefix": self._root + prefix, "versions": "true", "fields": fields}, prefix):
            with self._told(prefix):
                found = [self._version(item) for item in page.get("items", ())]
            yield from (item for item in found if is_name(item.name))

    def _version(self, item: Mapping[str, Any]) -> ObjectVersion:
        name, generation = item["name"].removeprefix(self._root), str(int(item["generation"]))
        size, made = int(item.get("size", 0)), _time(item["timeCreated"])
        return ObjectVersion(name, generation, not item.get("timeDeleted"), False, size, made)

    def _bucket_fields(self, fields: str) -> dict[str, Any]:
        answer = self._exchange("GET", f"{self._objects.removesuffix('/o')}?{self._query(fields=fields)}", "")
        self._expect(answer, "", 200)
        return self._document(answer, "")

    def _lock_fields(self, name: str) -> dict[str, Any]:
        answer = self._exchange("GET", self._object(name, fields=_LOCK_FIELDS), name)
        self._expect(answer, name, 200)
        return self._document(answer, name)

    # Answers

    def _is_gone(self, answer: Answer) -> bool:
        """Tell if the object is not there now; a missing bucket is another thing."""
        return answer.status in (200, 204) or (answer.status == 404 and b"bucket does not exist" not in answer.body)

    def _check_locks_known(self, answer: Answer, name: str) -> None:
        if answer.status >= 400 and isinstance(error := self._translated(answer, name), UsageError):
            raise UsageError(
                f"{error}; single objects are kept only until a time to come, and in a bucket that was made with "
                "`gcloud storage buckets create --enable-per-object-retention`"
            )

    def _check_locked(self, found: Mapping[str, Any], name: str, until: float, *, legal_hold: bool) -> None:
        """Believe the answer, not the request: a server that knows no locks ignores them."""
        lock = _lock(found)
        if lock.until < until or not lock.compliance or (legal_hold and not lock.legal_hold):
            raise UsageError(
                f"{self._what(name)} is stored, but the server did not lock it; use one that locks objects"
            )


def _retention(until: float) -> dict[str, str]:
    """Round up: never less than was asked for."""
    time = datetime.fromtimestamp(int(until), UTC) + timedelta(seconds=until % 1 > 0)
    return {"mode": "Locked", "retainUntilTime": time.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _lock(found: Mapping[str, Any]) -> Lock:
    kept = found.get("retention") or {}
    held = bool(found.get("temporaryHold") or found.get("eventBasedHold"))
    return Lock(_time(kept["retainUntilTime"]) if kept else 0.0, held, kept.get("mode") == "Locked")


def _time(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise StorageUnavailable(f"the answer has no time where one belongs ({text[:40]!r}); try again") from None
