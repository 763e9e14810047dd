"""GcsStore: objects in a Google Cloud Storage bucket, over the JSON interface.

A put is one multipart upload with `ifGenerationMatch=0` and the object's CRC-32C, which the service checks before the
object exists. Listings start behind a name with `startOffset`; the service lists in byte order and what was written is
listed at once (the vendor's page "Cloud Storage consistency"). Nothing is retried here. Beyond the protocol: `NotFound`
from any method when the bucket does not exist, `UsageError` when the service refuses in a way that only another URL can
change. Offers `Presign` (with a service account's key), `Notes` and what `datasync.storage.gcs.extras` adds.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from datasync.errors import IntegrityError, StorageUnavailable, UsageError
from datasync.storage.extras import SignedRequest
from datasync.storage.gcs.bucket import CLASSES
from datasync.storage.gcs.credentials import Chain
from datasync.storage.gcs.extras import GcsExtras
from datasync.storage.gcs.signing import SECONDS, signed_request
from datasync.storage.http import ERROR_BYTES, Answer, Bytes, Incoming, check_end
from datasync.storage.listing import Listing
from datasync.storage.names import check_directory, check_prefix
from datasync.storage.protocol import Created, ObjectStat

PAGE_NAMES = 1000  # what the service returns at most


class GcsStore(GcsExtras):
    """An `ObjectStore` in one bucket, beneath one prefix."""

    def get(self, name: str, *, limit: int) -> bytes:
        with self._http.open("GET", self._object(name, alt="media"), self._headers(), what=self._what(name)) as answer:
            self._expect_open(answer, name, 200)
            return answer.read(limit)

    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        view = buffer.cast("B")
        if not view:
            check_end(self._what(name), offset, self.stat(name).size)
            return
        headers = self._headers() | {"Range": f"bytes={offset}-{offset + len(view) - 1}"}
        with self._http.open("GET", self._object(name, alt="media"), headers, what=self._what(name)) as answer:
            if answer.status == 416:
                raise IntegrityError(f"{self._what(name)} ends before {offset}")
            self._expect_open(answer, name, 200, 206)
            answer.fill_range(offset, view)

    def put_if_absent(self, name: str, data: Bytes) -> Created:
        view = memoryview(data).cast("B")
        self._check_put(self._put(name, view, {}, fields="size"), name, len(view))
        return Created()

    def list(self, prefix: str, *, limit: int | None = None, after: str = "") -> Iterator[ObjectStat]:
        check_prefix(prefix)
        if limit == 0:
            return
        entries = (item for page in self._pages(prefix, "", limit, after) for item in self._part(page, "items", prefix))
        yield from Listing(self.url, self._root, prefix, after, limit).objects(entries, itemgetter("name"), _stat)

    def list_directories(self, prefix: str) -> Iterator[str]:
        check_directory(prefix)
        pages = self._pages(prefix, "/", None, "")
        found = (str(item) for page in pages for item in self._part(page, "prefixes", prefix))
        yield from Listing(self.url, self._root, prefix).directories(found)

    def stat(self, name: str) -> ObjectStat:
        answer = self._exchange("GET", self._object(name, fields="size,updated,timeCreated"), name)
        self._expect(answer, name, 200)
        with self._told(name):
            return _stat(name, self._document(answer, name))

    def delete(self, name: str) -> None:
        answer = self._exchange("DELETE", self._object(name), name)
        if answer.status == 404 and "bucket does not exist" not in str(answer.body):
            return
        self._expect(answer, name, 204, 200)

    def presign_get(self, name: str, seconds: int) -> SignedRequest:
        return self._presign("GET", name, seconds, {})

    def presign_put(self, name: str, seconds: int) -> SignedRequest:
        return self._presign("PUT", name, seconds, {"x-goog-if-generation-match": "0"})

    def _presign(self, method: str, name: str, seconds: int, headers: dict[str, str]) -> SignedRequest:
        if not 1 <= seconds <= SECONDS:
            raise UsageError(f"{self.url}: a signed request holds 1 second to 7 days, not {seconds} seconds")
        signer = self._token.signer() if isinstance(self._token, Chain) else None
        if signer is None:
            raise UsageError(f"{self.url}: only a service account's key signs requests for others")
        place = f"{self._endpoint}/{self._bucket}/{quote(self._key(name), safe='/')}"
        email, sign = signer
        return signed_request(method, place, headers, email=email, sign=sign, now=datetime.now(UTC), seconds=seconds)

    def notes(self) -> tuple[str, ...]:
        """Tell what the class of new objects costs, and what the bucket keeps."""
        with self._told(""):
            return self._notes(self._bucket_fields("versioning,retentionPolicy,softDeletePolicy"))

    def _notes(self, about: Mapping[str, Any]) -> tuple[str, ...]:
        told = [CLASSES.get(self._class, "")]
        if (about.get("versioning") or {}).get("enabled"):
            told.append("the bucket keeps versions: what is deleted is paid for until a lifecycle rule removes it")
        if seconds := int((about.get("retentionPolicy") or {}).get("retentionPeriod", 0)):
            told.append(f"the bucket keeps each object for {seconds // 86_400} days: prune frees nothing before")
        if seconds := int((about.get("softDeletePolicy") or {}).get("retentionDurationSeconds", 0)):
            told.append(f"the bucket's soft delete keeps and charges what is deleted for {seconds // 86_400} more days")
        return tuple(filter(None, told))

    def _expect_open(self, answer: Incoming, name: str, *statuses: int) -> None:
        if answer.status not in statuses:
            self._refuse(Answer(answer.status, answer.headers, answer.document(ERROR_BYTES)), name)

    def _part(self, page: Mapping[str, Any], part: str, prefix: str) -> Sequence[Any]:
        """Return one of a page's lists, empty where it has none."""
        found = page.get(part, [])
        if not isinstance(found, Sequence):
            raise StorageUnavailable(f"{self._what(prefix)}: the answer is no listing; try again")
        return found

    def _pages(self, prefix: str, delimiter: str, limit: int | None, after: str) -> Iterator[Mapping[str, Any]]:
        query = {"prefix": self._root + prefix, "fields": "items(name,size,updated,timeCreated),prefixes,nextPageToken"}
        # The start is listed too where it exists: one more than wanted.
        query["maxResults"] = str(min((limit or PAGE_NAMES) + bool(after), PAGE_NAMES))
        if delimiter:
            query["delimiter"] = delimiter
        if after:
            query["startOffset"] = self._root + after
        return self._follow(query, prefix)


def _stat(name: str, item: Mapping[str, Any]) -> ObjectStat:
    return ObjectStat(name, int(item["size"]), datetime.fromisoformat(item["timeCreated"]).timestamp())
