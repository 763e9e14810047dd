"""AzureStore: objects as block blobs in one container, over the REST interface.

A put is one Put Blob with `If-None-Match: *` and Content-MD5, which the service checks before the blob exists. The
service lists names in byte order except in accounts with a hierarchical namespace, which are refused when it shows. It
can not start a listing behind a name: what comes before is read and passed over. Nothing is retried here. Beyond the
protocol: `NotFound` from any method when the container does not exist, `UsageError` when the service refuses in a way
that only another URL can change. Offers `Presign` (with an account key), `Notes` and what
`datasync.storage.azure.extras` adds.
"""

import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from xml.etree import ElementTree

from datasync.errors import IntegrityError, StorageUnavailable, UsageError
from datasync.storage.azure.container import CLASSES, PAGE_NAMES
from datasync.storage.azure.extras import AzureExtras
from datasync.storage.azure.signing import VERSION, blob_sas
from datasync.storage.extras import SignedRequest
from datasync.storage.http import Bytes, check_end
from datasync.storage.listing import Listing
from datasync.storage.names import check_directory, check_prefix
from datasync.storage.protocol import Created, ObjectStat

PRESIGN_SECONDS = 7 * 24 * 3600  # as everywhere


class AzureStore(AzureExtras):
    """An `ObjectStore` in one container, beneath one prefix."""

    def get(self, name: str, *, limit: int) -> bytes:
        with self._open("GET", self._blob(name), name) as answer:
            self._expect_open(answer, name, 200)
            return answer.read(limit)

    def get_range(self, name: str, offset: int, buffer: memoryview) -> None:
        view = buffer.cast("B")
        if not view:
            check_end(self._what(name), offset, self.stat(name).size)
            return
        wanted = {"Range": f"bytes={offset}-{offset + len(view) - 1}"}
        with self._open("GET", self._blob(name), name, wanted) as answer:
            if answer.status == 416:
                raise IntegrityError(f"{self._what(name)} ends before {offset}")
            self._expect_open(answer, name, 200, 206)
            answer.fill_range(offset, view)

    def put_if_absent(self, name: str, data: Bytes) -> Created:
        self._expect(self._put(name, data, {}), name, 201)
        return Created()

    def list(self, prefix: str, *, limit: int | None = None, after: str = "") -> Iterator[ObjectStat]:
        check_prefix(prefix)
        if limit == 0:
            return
        pages = self._pages(prefix, "", None if after else limit)
        entries = (item for page in pages for item in page.iterfind("Blobs/Blob"))
        yield from Listing(self.url, self._root, prefix, after, limit).objects(entries, _name, self._listed)

    def list_directories(self, prefix: str) -> Iterator[str]:
        check_directory(prefix)
        pages = self._pages(prefix, "/", None)
        found = (item.text or "" for page in pages for item in page.iterfind("Blobs/BlobPrefix/Name"))
        yield from Listing(self.url, self._root, prefix).directories(found)

    def stat(self, name: str) -> ObjectStat:
        answer = self._exchange("HEAD", self._blob(name), name)
        self._expect(answer, name, 200)
        return self._stat(name, answer.headers.get("content-length"), answer.headers.get("last-modified"))

    def delete(self, name: str) -> None:
        answer = self._exchange("DELETE", self._blob(name), name)
        if not self._is_gone(answer):
            self._refuse_delete(answer, name)

    # Signed requests, notes

    def presign_get(self, name: str, seconds: int) -> SignedRequest:
        return self._presign("GET", name, seconds, "r", {})

    def presign_put(self, name: str, seconds: int) -> SignedRequest:
        # "c" lets a blob be created and never replaced.
        headers = {"x-ms-blob-type": "BlockBlob", "If-None-Match": "*", "x-ms-version": VERSION}
        return self._presign("PUT", name, seconds, "c", headers)

    def _presign(self, method: str, name: str, seconds: int, right: str, headers: Mapping[str, str]) -> SignedRequest:
        if not 1 <= seconds <= PRESIGN_SECONDS:
            raise UsageError(f"{self.url}: a signed request holds 1 second to 7 days, not {seconds} seconds")
        key = self._access.keys().key
        if key is None:
            raise UsageError(f"{self.url}: only an account key signs requests for others; set AZURE_STORAGE_KEY")
        path, expires = self._blob(name), float(int(time.time() + seconds))
        secure = self._access.endpoint.startswith("https:")
        query = blob_sas(self._access.account, key, path.removeprefix("/"), right, expires, https=secure)
        return SignedRequest(method, f"{self._access.endpoint}{path}?{query}", tuple(headers.items()), expires)

    def notes(self) -> tuple[str, ...]:
        return tuple(filter(None, [CLASSES.get(self._class, "")]))

    def _pages(self, prefix: str, delimiter: str, limit: int | None) -> Iterator[ElementTree.Element]:
        query = {"maxresults": str(min(limit or PAGE_NAMES, PAGE_NAMES))}
        if delimiter:
            query["delimiter"] = delimiter
        return self._follow(query, prefix)

    def _listed(self, name: str, item: ElementTree.Element) -> ObjectStat:
        return self._stat(name, item.findtext("Properties/Content-Length"), item.findtext("Properties/Last-Modified"))

    def _stat(self, name: str, size: str | None, modified: str | None) -> ObjectStat:
        try:
            return ObjectStat(name, int(size or ""), parsedate_to_datetime(modified or "").timestamp())
        except (ValueError, TypeError):
            raise StorageUnavailable(f"{self._what(name)}: the answer has no size or time; try again") from None


def _name(item: ElementTree.Element) -> str:
    return item.findtext("Name", "")
