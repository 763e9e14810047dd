"""What S3 can do beyond `ObjectStore`: the protocols of `datasync.storage.extras`, as a part of S3Store.

Storage classes and their fees: the vendor's page "Understanding and managing Amazon S3 storage classes".
"""

import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, NoReturn
from urllib.parse import parse_qs, urlsplit

from datasync.errors import NotAuthorized, StorageUnavailable, UsageError
from datasync.storage.extras import BATCH_NAMES, Lock, ObjectVersion, SignedRequest
from datasync.storage.location import StoreUrl
from datasync.storage.names import check_name, check_prefix, is_name
from datasync.storage.protocol import Created
from datasync.storage.s3.errors import code_of, failures
from datasync.storage.s3.options import HEADERS, body_of, extra_parameters

PRESIGN_SECONDS = 7 * 24 * 3600  # what the service takes at most
_FEE = "a fee for each byte read, and at least {} days{} for each object"
CLASSES: Final = {
    "STANDARD": "",
    "INTELLIGENT_TIERING": "costs a monthly fee for each object that is watched",
    "STANDARD_IA": "costs " + _FEE.format(30, " and 128 KiB"),
    "ONEZONE_IA": "costs " + _FEE.format(30, " and 128 KiB") + "; a lost zone loses the data",
    "GLACIER_IR": "costs " + _FEE.format(90, " and 128 KiB"),
}
RESTORED_FIRST = ("GLACIER", "DEEP_ARCHIVE")
_NO_LOCK = {"ObjectLockConfigurationNotFoundError", "NoSuchObjectLockConfiguration"}


class S3Extras:
    """Batch deletes, signed requests, versions, retention, locks, storage classes."""

    url: str
    _where: StoreUrl
    _bucket: str
    _root: str

    @property
    def sdk(self) -> Any:
        raise AssertionError("S3Store has it")  # pragma: no cover

    def _fail(self, error: Exception, name: str) -> NoReturn:
        raise AssertionError("S3Store has it")  # pragma: no cover

    def delete_many(self, names: Iterable[str]) -> None:
        left, first = iter(names), None
        while batch := [{"Key": self._root + check_name(name)} for name in islice(left, BATCH_NAMES)]:
            answer = self._ask(self.sdk.delete_objects, "", Delete={"Objects": batch, "Quiet": True})
            first = first or next(iter(answer.get("Errors", ())), None)
        if first is not None:
            name, code = (
                first.get("Key", "").removeprefix(self._root),
                re.sub(r"[^A-Za-z0-9]", "", first.get("Code", "")),
            )
            kind = NotAuthorized if code == "AccessDenied" else StorageUnavailable
            shown = name if is_name(name) else "an object"
            raise kind(f"{self.url}: {shown} was not removed: the server answered {code[:60]}; try again")

    def presign_get(self, name: str, seconds: int) -> SignedRequest:
        return self._presign("GET", "get_object", name, seconds, {})

    def presign_put(self, name: str, seconds: int) -> SignedRequest:
        return self._presign("PUT", "put_object", name, seconds, {"IfNoneMatch": "*"})

    def _presign(self, method: str, operation: str, name: str, seconds: int, more: dict[str, str]) -> SignedRequest:
        if not 1 <= seconds <= PRESIGN_SECONDS:
            raise UsageError(f"{self.url}: a signed request holds 1 second to 7 days, not {seconds} seconds")
        parameters = {"Bucket": self._bucket, "Key": self._root + check_name(name), **more}
        expires = datetime.now(UTC).timestamp() + seconds
        try:
            url = self.sdk.generate_presigned_url(operation, Params=parameters, ExpiresIn=seconds)
        except failures() as error:
            self._fail(error, name)
        signed = parse_qs(urlsplit(url).query).get("X-Amz-SignedHeaders", ["host"])[0].split(";")
        said = {HEADERS[key]: value for key, value in extra_parameters(self._where).items()}
        values = {"if-none-match": "*", **said}
        return SignedRequest(method, url, tuple((key, values[key]) for key in signed if key != "host"), expires)

    def versioning(self) -> str:
        found = self._ask(self.sdk.get_bucket_versioning, "").get("Status", "")
        return {"Enabled": "enabled", "Suspended": "suspended"}.get(found, "off")

    def list_versions(self, prefix: str) -> Iterator[ObjectVersion]:
        parameters = {"Prefix": self._root + check_prefix(prefix)}
        while True:
            page = self._ask(self.sdk.list_object_versions, prefix, **parameters)
            try:
                found = list(self._versions(page))
            except (LookupError, TypeError, AttributeError) as error:
                raise StorageUnavailable(f"{self.url}: {prefix}: the answer is no listing; try again") from error
            yield from sorted(found, key=lambda item: (item.name, not item.newest, -item.modified))
            if not page.get("IsTruncated"):
                return
            following = {"KeyMarker": page.get("NextKeyMarker"), "VersionIdMarker": page.get("NextVersionIdMarker", "")}
            if not following["KeyMarker"] or following.items() <= parameters.items():
                raise StorageUnavailable(f"{self.url}: {prefix}: the server's listing does not go on as it says")
            parameters |= following

    def _versions(self, page: Any) -> Iterator[ObjectVersion]:
        for part in ("Versions", "DeleteMarkers"):
            for item in page.get(part, ()):
                name = item["Key"].removeprefix(self._root)
                if is_name(name):
                    yield ObjectVersion(
                        name, item["VersionId"], item["IsLatest"], part == "DeleteMarkers", item.get("Size", 0),
                        item["LastModified"].timestamp(),
                    )  # fmt: skip

    def delete_version(self, name: str, version: str) -> None:
        self._ask(self.sdk.delete_object, name, Key=self._root + check_name(name), VersionId=version)

    def retention_days(self) -> int | None:
        try:
            answer = self.sdk.get_object_lock_configuration(Bucket=self._bucket)
        except failures() as error:
            if code_of(error) in _NO_LOCK:
                return None
            self._fail(error, "")
        kept = answer["ObjectLockConfiguration"].get("Rule", {}).get("DefaultRetention", {})
        return kept.get("Days") or kept.get("Years", 0) * 365 or None

    def retain_until(self, name: str, until: float) -> None:
        if self.lock_of(name).until < until:
            retention = {"Mode": "COMPLIANCE", "RetainUntilDate": _date(until)}
            key = self._root + check_name(name)
            self._ask(self.sdk.put_object_retention, name, Key=key, Retention=retention)

    def put_locked(
        self, name: str, data: bytes | bytearray | memoryview, *, until: float, legal_hold: bool = False
    ) -> Created:
        view = memoryview(data).cast("B")
        self._ask(
            self.sdk.put_object,
            name,
            Key=self._root + check_name(name),
            Body=body_of(view),
            IfNoneMatch="*",
            ContentMD5=b64encode(hashlib.md5(view, usedforsecurity=False).digest()).decode(),  # locks ask for it
            ObjectLockMode="COMPLIANCE",
            ObjectLockRetainUntilDate=_date(until),
            ObjectLockLegalHoldStatus="ON" if legal_hold else "OFF",
        )
        return Created()

    def lock_of(self, name: str) -> Lock:
        answer = self._ask(self.sdk.head_object, name, Key=self._root + check_name(name))
        until = answer.get("ObjectLockRetainUntilDate")
        return Lock(
            until.timestamp() if until else 0.0,
            answer.get("ObjectLockLegalHoldStatus") == "ON",
            answer.get("ObjectLockMode") == "COMPLIANCE",
        )

    def notes(self) -> tuple[str, ...]:
        told = [fees_of(self._where.option("storage_class") or "STANDARD")]
        if self.versioning() != "off":
            told.append("the bucket keeps versions: what is deleted is paid for until a lifecycle rule removes it")
        if days := self.retention_days():
            told.append(f"the bucket keeps each object for {days} days: prune frees nothing before")
        return tuple(filter(None, told))

    def _ask(self, call: Callable[..., Any], name: str, **parameters: Any) -> Any:
        try:
            return call(Bucket=self._bucket, **parameters)
        except failures() as error:
            self._fail(error, name)


def _date(until: float) -> datetime:
    """Round up: stores keep whole seconds, and never less than was asked for."""
    return datetime.fromtimestamp(int(until), UTC) + timedelta(seconds=until % 1 > 0)


def fees_of(storage_class: str) -> str:
    """Return what the class costs besides storage; raise `UsageError` for one that is not known or not readable."""
    known = ", ".join(CLASSES)
    if storage_class in RESTORED_FIRST:
        raise UsageError(f"storage class {storage_class} has to be restored before each read; use one of {known}")
    if storage_class not in CLASSES:
        raise UsageError(f"storage class {storage_class[:40]} is not known; use one of {known}")
    return f"storage class {storage_class} {CLASSES[storage_class]}" if CLASSES[storage_class] else ""
