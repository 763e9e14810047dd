"""SdkStore: objects in one bucket through a vendor's SDK: OSS or COS.

A put is one PutObject with the provider's forbid-overwrite header and Content-MD5, which the server checks before it
stores; a range is one GetObject into the caller's buffer. Answers are read by `datasync.storage.http.Incoming`: nothing
is believed from a status alone. Nothing is retried here. Beyond the protocol: `NotFound` from any method when the
bucket does not exist, `UsageError` when the server refuses in a way that only another URL can change.
"""

import copy
import hashlib
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from email.utils import parsedate_to_datetime
from operator import attrgetter
from typing import NoReturn, Self

import requests
import urllib3

from datasync.errors import IntegrityError, NotAuthorized, NotFound, StorageUnavailable, UsageError
from datasync.model.limits import KIB
from datasync.storage.body import Body
from datasync.storage.extras import BATCH_NAMES, ObjectVersion, SignedRequest
from datasync.storage.http import Incoming, check_end
from datasync.storage.listing import Listing
from datasync.storage.location import StoreUrl
from datasync.storage.names import check_directory, check_name, check_prefix, is_name
from datasync.storage.protocol import Created, ObjectStat
from datasync.storage.sdk.client import Asked, Dialect, Item, Page, Said, SdkClient, VersionPage
from datasync.storage.sdk.errors import NETWORK, PARSING, refusal, said_of, translate

PAGE_NAMES = 1_000  # what servers return at most
ONE_SEND_BYTES = 128 * KIB  # bodies up to this go out with one call


class SdkStore:
    """An `ObjectStore` in one bucket, beneath one prefix; and most of `datasync.storage.extras`."""

    def __init__(self, where: StoreUrl, client: SdkClient, dialect: Dialect) -> None:
        self._bucket = where.place
        self._root = f"{where.prefix}/" if where.prefix else ""
        self._client = client
        self._dialect = dialect
        self.url = str(where)
        asked = where.option("storage_class")
        self._class = _class_of(self.url, asked, dialect) if asked else ""

    def get(self, name: str, *, limit: int) -> bytes:
        with self._fetch(name, {}) as incoming:
            return incoming.read(limit)

    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        view = buffer.cast("B")
        if not view:
            check_end(f"{self.url}: {name}", offset, self.stat(name).size)
            return
        with self._fetch(name, {"Range": f"bytes={offset}-{offset + len(view) - 1}"}) as incoming:
            incoming.fill_range(offset, view)

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        view = memoryview(data).cast("B")
        headers = self._put_headers()
        headers["Content-MD5"] = b64encode(hashlib.md5(view, usedforsecurity=False).digest()).decode()
        body = Body(view) if len(view) > ONE_SEND_BYTES else bytes(view)
        with self._failing(name):
            self._client.put(self._key(name), body, headers)
        return Created()

    def list(self, prefix: str, *, limit: int | None = None, after: str = "") -> Iterator[ObjectStat]:
        check_prefix(prefix)
        if limit == 0:
            return
        entries = (item for page in self._pages(prefix, "", limit, after) for item in page.items)
        yield from Listing(self.url, self._root, prefix, after, limit).objects(entries, attrgetter("key"), _stat)

    def list_directories(self, prefix: str) -> Iterator[str]:
        check_directory(prefix)
        found = (item for page in self._pages(prefix, "/", None, "") for item in page.prefixes)
        yield from Listing(self.url, self._root, prefix).directories(found)

    def stat(self, name: str) -> ObjectStat:
        with self._failing(name):
            self._client.head(self._key(name))
        headers = self._answer(name).headers
        try:
            modified = parsedate_to_datetime(headers["Last-Modified"]).timestamp()
            return ObjectStat(name, int(headers["Content-Length"]), modified)
        except (KeyError, TypeError, ValueError):
            raise StorageUnavailable(f"{self.url}: {name}: the answer has no length or no date; try again") from None

    def delete(self, name: str) -> None:
        try:
            with self._failing(name):
                self._client.delete(self._key(name))
        except NotFound as error:
            said = said_of(error.__cause__, self._client)
            if said is None or said.code == "NoSuchBucket":
                raise

    def close(self) -> None:
        self._client.close()

    # BatchDelete

    def delete_many(self, names: Iterable[str]) -> None:
        keys, left = [self._key(name) for name in names], list[tuple[str, str]]()
        for start in range(0, len(keys), BATCH_NAMES):
            with self._failing(""):
                left += self._client.delete_many(keys[start : start + BATCH_NAMES])
        for key, code in left:
            if code not in ("NoSuchKey", "NoSuchResource"):
                raise self._refused(key.removeprefix(self._root), code)

    # Presign

    def presign_get(self, name: str, seconds: int) -> SignedRequest:
        return self._sign("GET", name, seconds, {})

    def presign_put(self, name: str, seconds: int) -> SignedRequest:
        return self._sign("PUT", name, seconds, self._put_headers())

    # Versions

    def versioning(self) -> str:
        with self._failing(""):
            return self._client.versioning().lower() or "off"

    def list_versions(self, prefix: str) -> Iterator[ObjectVersion]:
        check_prefix(prefix)
        more: tuple[str, str] | None = ("", "")
        while more is not None:
            page = self._version_page(prefix, more)
            for item in page.items:
                name = item.key.removeprefix(self._root)
                if is_name(name):
                    yield ObjectVersion(name, item.version, item.newest, item.deleted, item.size, item.modified)
            more = page.more

    def delete_version(self, name: str, version: str) -> None:
        with self._failing(name):
            self._client.delete(self._key(name), version)

    # Notes

    def notes(self) -> tuple[str, ...]:
        found = [self._dialect.classes[self._class]] if self._class else []
        if self.versioning() != "off":
            found.append(
                f"bucket {self._bucket} has or had versions, so {self._dialect.header}forbid-overwrite has no effect: "
                "it is good for one writer at a time; use a bucket that never had versions"
            )
        if (days := self.retention_days()) is not None:
            found.append(f"bucket {self._bucket} keeps every object for {days} days: prune can remove nothing sooner")
        return tuple(note for note in found if note)

    # Retention

    def retention_days(self) -> int | None:
        with self._failing(""):
            return self._client.retention_days()

    def retain_until(self, name: str, until: float) -> None:
        raise UsageError(
            f"{self.url}: {self._dialect.name} keeps whole buckets only; set the bucket's retention policy"
        )

    # StorageClass

    def with_storage_class(self, name: str) -> Self:
        made = copy.copy(self)
        made._class = _class_of(self.url, name, self._dialect)
        return made

    def fees_of(self, name: str) -> str:
        return self._dialect.classes[_class_of(self.url, name, self._dialect)]

    # Requests

    def _key(self, name: str) -> str:
        return self._root + check_name(name)

    def _put_headers(self) -> dict[str, str]:
        prefix = self._dialect.header
        headers = {f"{prefix}forbid-overwrite": "true", "Content-Type": "application/octet-stream"}
        return headers | ({f"{prefix}storage-class": self._class} if self._class else {})

    @contextmanager
    def _fetch(self, name: str, headers: dict[str, str]) -> Iterator[Incoming]:
        try:
            with self._failing(name):
                self._client.get(self._key(name), headers)
        except UsageError as error:
            answer = self._client.session.answer
            if headers and answer is not None and answer.status_code == 416:
                raise IntegrityError(f"{self.url}: {name} ends before the wanted range") from error
            raise
        answer = self._answer(name)
        if not isinstance(answer.raw, urllib3.BaseHTTPResponse):
            raise StorageUnavailable(f"{self.url}: {name}: the answer has no body; try again")
        with closing(answer):
            yield Incoming(answer.raw, f"{self.url}: {name}")

    def _sign(self, method: str, name: str, seconds: int, headers: dict[str, str]) -> SignedRequest:
        with self._failing(name):
            url = self._client.sign(method, self._key(name), seconds, headers)
        return SignedRequest(method, url, tuple(headers.items()), time.time() + seconds)

    def _pages(self, prefix: str, delimiter: str, limit: int | None, after: str) -> Iterator[Page]:
        size = min(limit or PAGE_NAMES, PAGE_NAMES)
        more, start = "", self._root + after if after else ""
        while True:
            with self._failing(prefix):
                page = self._client.list(Asked(self._root + prefix, delimiter, start, size, more))
            yield page
            if not page.more:
                return
            if page.more == more:
                raise StorageUnavailable(f"{self.url}: {prefix}: the server's listing does not go on as it says")
            more = page.more

    def _version_page(self, prefix: str, more: tuple[str, str]) -> VersionPage:
        with self._failing(prefix):
            return self._client.list_versions(self._root + prefix, more)

    def _answer(self, name: str) -> requests.Response:
        answer = self._client.session.answer
        if answer is None:
            raise StorageUnavailable(f"{self.url}: {name}: no answer; try again")
        return answer

    @contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        """Raise what the SDK's failure means."""
        session = self._client.session
        session.forget()
        try:
            yield
        except self._client.failures as error:
            if isinstance(error, PARSING) and not isinstance(error, NETWORK) and session.answer is None:
                raise  # nothing was parsed: a mistake of this program
            self._fail(error, name)

    def _fail(self, error: Exception, name: str) -> NoReturn:
        raise translate(error, self._client, self._dialect, url=self.url, bucket=self._bucket, name=name) from error

    def _refused(self, name: str, code: str) -> Exception:
        what = f"{self.url}: {name}" if is_name(name) else self.url
        if not code:
            return NotAuthorized(
                f"{what} was not removed, without a reason; check your rights and the retention policy"
            )
        return refusal(Said(403, code), self._client, self._dialect, what, self._bucket)


def _stat(name: str, item: Item) -> ObjectStat:
    return ObjectStat(name, item.size, item.modified)


def _class_of(url: str, asked: str, dialect: Dialect) -> str:
    """Return the storage class *asked* as the provider spells it."""
    for name in dialect.classes:
        if name.lower() == asked.lower():
            return name
    raise UsageError(
        f"{url}: storage class {asked} is unknown, or must be restored before it can be read; "
        f"expected one of {', '.join(dialect.classes)}"
    )
