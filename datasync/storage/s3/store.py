"""S3Store: objects in an S3 bucket, of any provider or server that speaks S3.

A put is one PutObject with `If-None-Match: *`; a range is one GetObject into the caller's buffer. Servers differ, so
nothing is believed from a status alone: a ranged answer counts by its Content-Range and Content-Length, and a body by
its bytes. Nothing is retried here but what the server has refused without looking at the object: a checksum header that
it does not know, and (by the SDK) a request to the wrong region. S3 directory buckets list in no order and are refused.
Beyond the protocol: `NotFound` from any method when the bucket does not exist, `UsageError` when the server refuses in
a way that only another URL can change.
"""

import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cached_property
from operator import itemgetter
from typing import Any, NoReturn

from isal.isal_zlib import crc32

from datasync.errors import IntegrityError, StorageUnavailable, UsageError
from datasync.model.limits import KIB
from datasync.storage.listing import Listing
from datasync.storage.location import StoreUrl
from datasync.storage.names import check_directory, check_name, check_prefix
from datasync.storage.protocol import Created, ObjectStat
from datasync.storage.s3.errors import code_of, failures, status_of, translate
from datasync.storage.s3.extras import S3Extras, fees_of
from datasync.storage.s3.options import S3Options, body_of
from datasync.storage.s3.plain import PlainClient, plain_settings

PAGE_NAMES = 1000  # what servers return at most
READ_BYTES = 256 * KIB  # a buffer that stays in the processor's cache; 32 MiB at once costs 3 times the CPU

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_NO_CHECKSUM_CODES = {"MissingContentLength", "NotImplemented"}


class S3Store(S3Extras):
    """An `ObjectStore` in one bucket, beneath one prefix."""

    def __init__(self, where: StoreUrl, options: S3Options | None = None) -> None:
        if where.place.endswith("--x-s3"):
            raise UsageError(f"{where}: S3 directory buckets list names in no order; use a general purpose bucket")
        fees_of(where.option("storage_class") or "STANDARD")
        self._where = where
        self._options = options or S3Options()
        self._bucket = where.place
        self._root = f"{where.prefix}/" if where.prefix else ""
        self._checksums = True
        self.url = str(where)
        try:
            settings = plain_settings(where, self._options, os.environ)
            self._client = PlainClient(where, self._options, settings) if settings else self.sdk
        except OSError as error:  # a file of certificates that can not be read
            self._fail(error, "")
        self._body: Callable[[memoryview], Any] = memoryview if settings else body_of

    @cached_property
    def sdk(self) -> Any:
        """The SDK's client, for all that `PlainClient` does not do."""
        from datasync.storage.s3.client import make_client

        try:
            return make_client(self._where, self._options)
        except failures() as error:
            self._fail(error, "")

    def get(self, name: str, *, limit: int) -> bytes:
        answer = self._call("get_object", name)
        with closing(answer["Body"]) as body:
            size = self._length(answer, name)
            if size > limit:
                raise IntegrityError(f"{self.url}: {name} has {size} bytes, expected at most {limit}")
            try:
                data: bytes = body.read()
            except failures() as error:
                self._fail(error, name)
        if len(data) != size:
            raise StorageUnavailable(f"{self.url}: {name}: the body has {len(data)} bytes of {size}; try again")
        return data

    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        view = buffer.cast("B")
        if not view:
            self._check_end(name, offset, self.stat(name).size)
            return
        try:
            answer = self._client.get_object(
                Bucket=self._bucket, Key=self._key(name), Range=f"bytes={offset}-{offset + len(view) - 1}"
            )
        except failures() as error:
            if status_of(error) == 416:
                raise IntegrityError(f"{self.url}: {name} ends before {offset}") from error
            self._fail(error, name)
        with closing(answer["Body"]) as body:
            self._skip(body, name, self._surplus(answer, name, offset, len(view)))
            self._fill(body, name, view)

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        key = self._key(name)
        view = memoryview(data).cast("B")
        if self._checksums:
            checksum = b64encode(crc32(view).to_bytes(4, "big")).decode()
            try:
                self._client.put_object(
                    Bucket=self._bucket, Key=key, Body=self._body(view), IfNoneMatch="*", ChecksumCRC32=checksum
                )
                return Created()
            except failures() as error:
                if status_of(error) != 501 and code_of(error) not in _NO_CHECKSUM_CODES:
                    self._fail(error, name)
        self._call("put_object", name, Body=self._body(view), IfNoneMatch="*")
        self._checksums = False  # it was the checksum that this server does not take
        return Created()

    def list(self, prefix: str, *, limit: int | None = None, after: str = "") -> Iterator[ObjectStat]:
        check_prefix(prefix)
        if limit == 0:
            return
        entries = (item for page in self._pages(prefix, "", limit, after) for item in page.get("Contents", ()))
        yield from Listing(self.url, self._root, prefix, after, limit).objects(entries, itemgetter("Key"), _stat)

    def list_directories(self, prefix: str) -> Iterator[str]:
        check_directory(prefix)
        pages = self._pages(prefix, "/", None, "")
        found = (item.get("Prefix", "") for page in pages for item in page.get("CommonPrefixes", ()))
        yield from Listing(self.url, self._root, prefix).directories(found)

    def stat(self, name: str) -> ObjectStat:
        answer = self._call("head_object", name)
        if "LastModified" not in answer:
            raise StorageUnavailable(f"{self.url}: {name}: the answer has no time; a proxy may have removed it")
        return ObjectStat(name, self._length(answer, name), answer["LastModified"].timestamp())

    def delete(self, name: str) -> None:
        try:
            self._client.delete_object(Bucket=self._bucket, Key=self._key(name))
        except failures() as error:
            if status_of(error) != 404 or code_of(error) == "NoSuchBucket":
                self._fail(error, name)

    def close(self) -> None:
        for client in {id(one): one for one in (self._client, self.__dict__.get("sdk", self._client))}.values():
            client.close()

    # Requests

    def _key(self, name: str) -> str:
        return self._root + check_name(name)

    def _call(self, operation: str, name: str, **parameters: Any) -> Any:
        method: Callable[..., Any] = getattr(self._client, operation)
        key = self._key(name)
        try:
            return method(Bucket=self._bucket, Key=key, **parameters)
        except failures() as error:
            self._fail(error, name)

    def _fail(self, error: Exception, name: str) -> NoReturn:
        raise translate(error, url=self.url, bucket=self._bucket, name=name) from error

    def _pages(self, prefix: str, delimiter: str, limit: int | None, after: str) -> Iterator[Any]:
        parameters: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._root + prefix, "Delimiter": delimiter}
        parameters["MaxKeys"] = min(limit or PAGE_NAMES, PAGE_NAMES)
        if after:
            parameters["StartAfter"] = self._root + after
        while True:
            try:
                page = self._client.list_objects_v2(**parameters)
            except failures() as error:
                self._fail(error, prefix)
            yield page
            token = page.get("NextContinuationToken")
            if not page.get("IsTruncated"):
                return
            if not token or token == parameters.get("ContinuationToken"):
                raise StorageUnavailable(f"{self.url}: {prefix}: the server's listing does not go on as it says")
            parameters["ContinuationToken"] = token

    # Answers

    def _length(self, answer: Any, name: str) -> int:
        size = answer.get("ContentLength")
        if size is None:
            raise StorageUnavailable(f"{self.url}: {name}: the answer has no length; a proxy may have removed it")
        return int(size)

    def _surplus(self, answer: Any, name: str, offset: int, size: int) -> int:
        """Return how many bytes of the body come before the wanted range; raise unless the range is in it whole."""
        length = self._length(answer, name)
        match = _CONTENT_RANGE.fullmatch(answer.get("ContentRange") or "")
        if match is None and answer["ResponseMetadata"]["HTTPStatusCode"] == 200:
            self._check_end(name, offset + size, length)  # the whole object: the server knows no ranges
            return offset
        if match is not None:
            first, last = int(match[1]), int(match[2])
            if match[3] != "*":
                self._check_end(name, offset + size, int(match[3]))
            if (first, last - first + 1, length) == (offset, size, size):
                return 0
        raise StorageUnavailable(f"{self.url}: {name}: asked for {size} bytes at {offset}, got another range")

    def _check_end(self, name: str, wanted: int, size: int) -> None:
        if wanted > size:
            raise IntegrityError(f"{self.url}: {name} ends at {size}, expected {wanted} bytes or more")

    def _skip(self, body: Any, name: str, count: int) -> None:
        scratch = memoryview(bytearray(min(count, READ_BYTES)))
        while count:
            part = scratch[: min(count, READ_BYTES)]
            self._fill(body, name, part)
            count -= len(part)

    def _fill(self, body: Any, name: str, view: memoryview) -> None:
        done = 0
        while done < len(view):
            try:
                count = body.readinto(view[done : done + READ_BYTES])
            except failures() as error:
                self._fail(error, name)
            if not count:
                raise StorageUnavailable(
                    f"{self.url}: {name}: the body ended {len(view) - done} bytes early; try again"
                )
            done += count


def _stat(name: str, item: Any) -> ObjectStat:
    return ObjectStat(name, item["Size"], item["LastModified"].timestamp())
