"""One container over the REST interface: requests, pages, puts, and what answers mean. Base of `AzureStore`.

Nothing is retried. Raises what `datasync.storage.azure.errors` makes of an answer.
"""

import hashlib
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import NoReturn
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

from datasync.errors import DatasyncError, NotAuthorized, StorageUnavailable, UsageError
from datasync.storage.azure.access import Access, AzureOptions
from datasync.storage.azure.errors import translate
from datasync.storage.http import ERROR_BYTES, Answer, Bytes, Http, Incoming
from datasync.storage.location import StoreUrl
from datasync.storage.names import check_name

PAGE_NAMES = 5000  # what the service returns at most
CLASSES = {
    "Hot": "",
    "Cool": "storage class Cool costs a fee for each byte read, and at least 30 days for each object",
    "Cold": "storage class Cold costs a fee for each byte read, and at least 90 days for each object",
}


class AzureContainer:
    """The requests to one container, beneath one prefix."""

    def __init__(self, where: StoreUrl, options: AzureOptions | None = None) -> None:
        chosen = options or AzureOptions()
        self.url = str(where)
        self._container = where.place
        self._root = f"{where.prefix}/" if where.prefix else ""
        self._class = _class_of(where)
        self._access = Access(where, chosen)
        self._http = Http(self._access.endpoint, chosen.http)

    def close(self) -> None:
        self._http.close()

    # Requests

    def _what(self, name: str) -> str:
        return f"{self.url}: {name}" if name else self.url

    def _blob(self, name: str) -> str:
        return f"/{self._container}/{quote(self._root + check_name(name), safe='/')}"

    def _open(
        self,
        method: str,
        target: str,
        name: str,
        headers: Mapping[str, str] | None = None,
        body: tuple[Bytes, ...] = (),
    ) -> AbstractContextManager[Incoming]:
        target, signed = self._access.signed(method, target, headers or {})
        return self._http.open(method, target, signed, what=self._what(name), body=body)

    def _exchange(
        self,
        method: str,
        target: str,
        name: str,
        headers: Mapping[str, str] | None = None,
        body: tuple[Bytes, ...] = (),
    ) -> Answer:
        target, signed = self._access.signed(method, target, headers or {})
        return self._http.exchange(method, target, signed, what=self._what(name), body=body)

    def _put(self, name: str, data: Bytes, more: Mapping[str, str]) -> Answer:
        """Create the blob unless the name is taken, with *more* headers."""
        view = memoryview(data).cast("B")
        headers = {
            "x-ms-blob-type": "BlockBlob",
            "If-None-Match": "*",
            "Content-Length": str(len(view)),
            "Content-Type": "application/octet-stream",
            "Content-MD5": b64encode(hashlib.md5(view, usedforsecurity=False).digest()).decode(),
            **more,
        }
        if self._class:
            headers["x-ms-access-tier"] = self._class
        return self._exchange("PUT", self._blob(name), name, headers, (view,))

    def _follow(self, more: Mapping[str, str], prefix: str) -> Iterator[ElementTree.Element]:
        """Yield every page of a listing."""
        query = {"restype": "container", "comp": "list", "prefix": self._root + prefix, **more}
        while True:
            answer = self._exchange("GET", f"/{self._container}?{urlencode(query)}", prefix)
            self._expect(answer, prefix, 200)
            try:
                page = ElementTree.fromstring(answer.body)
            except ElementTree.ParseError:
                raise StorageUnavailable(f"{self._what(prefix)}: the answer is no listing; try again") from None
            yield page
            marker = page.findtext("NextMarker")
            if not marker:
                return
            if marker == query.get("marker"):
                raise StorageUnavailable(f"{self._what(prefix)}: the server's listing does not go on as it says")
            query["marker"] = marker

    # Answers

    def _expect(self, answer: Answer, name: str, *statuses: int) -> None:
        if answer.status not in statuses:
            self._refuse(answer, name)

    def _expect_open(self, answer: Incoming, name: str, *statuses: int) -> None:
        if answer.status not in statuses:
            self._refuse(Answer(answer.status, answer.headers, answer.document(ERROR_BYTES)), name)

    def _refuse(self, answer: Answer, name: str) -> NoReturn:
        raise self._translated(answer, name)

    def _translated(self, answer: Answer, name: str) -> DatasyncError:
        error = translate(answer, url=self.url, container=self._container, name=name)
        if isinstance(error, NotAuthorized) and (end := self._access.ended()):
            return NotAuthorized(f"{self._what(name)}: the shared access signature expired at {end}; ask for a new one")
        return error


def _class_of(where: StoreUrl) -> str:
    """Return the access tier that the URL asks for, or nothing."""
    asked = where.option("storage_class")
    for name in CLASSES:
        if asked and name.lower() == asked.lower():
            return name
    if asked:
        raise UsageError(
            f"{where.scheme}://{where.place}: storage class {asked} is unknown, or must be restored before it can be "
            f"read; expected one of {', '.join(CLASSES)}"
        )
    return ""
