"""One bucket over the JSON interface: requests, pages, puts, and what answers mean. Base of `GcsStore`.

Nothing is retried. Raises what `datasync.storage.gcs.errors` makes of an answer.
"""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

import google_crc32c

from datasync.errors import DatasyncError, StorageUnavailable, UsageError
from datasync.storage.gcs.credentials import GcsOptions, endpoint_of, token_for
from datasync.storage.gcs.errors import translate
from datasync.storage.http import SEND_BYTES, Answer, Bytes, Http
from datasync.storage.location import StoreUrl
from datasync.storage.names import check_name

BOUNDARY = "datasync-part"  # the parts before and after it are ours and hold no such line
_FEE = "costs a fee for each byte read, and at least {} days for each object"
CLASSES = {
    "STANDARD": "",
    "NEARLINE": f"storage class NEARLINE {_FEE.format(30)}",
    "COLDLINE": f"storage class COLDLINE {_FEE.format(90)}",
    "ARCHIVE": f"storage class ARCHIVE {_FEE.format(365)}",
}


class GcsBucket:
    """The requests to one bucket, beneath one prefix."""

    def __init__(self, where: StoreUrl, options: GcsOptions | None = None) -> None:
        chosen = options or GcsOptions()
        endpoint = endpoint_of(where)
        self.url = str(where)
        self._bucket = where.place
        self._root = f"{where.prefix}/" if where.prefix else ""
        self._objects = f"/storage/v1/b/{quote(self._bucket, safe='')}/o"
        self._project = where.option("project")
        self._class = _class_of(where)
        self._token = chosen.token or token_for(endpoint, self.url)
        self._endpoint = endpoint.rstrip("/")
        self._http = Http(endpoint, chosen.http)

    def close(self) -> None:
        self._http.close()

    # Requests

    def _what(self, name: str) -> str:
        return f"{self.url}: {name}" if name else self.url

    def _key(self, name: str) -> str:
        return self._root + check_name(name)

    def _object(self, name: str, **query: str) -> str:
        path = f"{self._objects}/{quote(self._key(name), safe='')}"
        text = self._query(**query)
        return f"{path}?{text}" if text else path

    def _query(self, **query: str) -> str:
        return urlencode(query | ({"userProject": self._project} if self._project else {}))

    def _headers(self) -> dict[str, str]:
        token = self._token()
        return {"Authorization": token} if token else {}

    def _exchange(self, method: str, target: str, name: str) -> Answer:
        return self._http.exchange(method, target, self._headers(), what=self._what(name))

    def _put(self, name: str, data: Bytes, more: Mapping[str, Any], *, fields: str) -> Answer:
        """Create the object unless the name is taken, with *more* of its metadata; the answer holds *fields*."""
        view = memoryview(data).cast("B")
        about = {"name": self._key(name), "crc32c": _crc32c(view), "contentType": "application/octet-stream", **more}
        if self._class:
            about["storageClass"] = self._class
        head = (
            f"--{BOUNDARY}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{json.dumps(about)}\r\n"
            f"--{BOUNDARY}\r\nContent-Type: application/octet-stream\r\n\r\n"
        )
        target = f"/upload{self._objects}?" + self._query(uploadType="multipart", ifGenerationMatch="0", fields=fields)
        headers = self._headers() | {"Content-Type": f"multipart/related; boundary={BOUNDARY}"}
        body = (head.encode(), view, f"\r\n--{BOUNDARY}--\r\n".encode())
        return self._http.exchange("POST", target, headers, what=self._what(name), body=body)

    def _follow(self, query: dict[str, str], prefix: str) -> Iterator[Mapping[str, Any]]:
        """Yield every page of a listing."""
        while True:
            answer = self._exchange("GET", f"{self._objects}?{self._query(**query)}", prefix)
            self._expect(answer, prefix, 200)
            page = self._document(answer, prefix)
            yield page
            token = page.get("nextPageToken")
            if not token:
                return
            if token == query.get("pageToken"):
                raise StorageUnavailable(f"{self._what(prefix)}: the server's listing does not go on as it says")
            query["pageToken"] = token

    # Answers

    def _expect(self, answer: Answer, name: str, *statuses: int) -> None:
        if answer.status not in statuses:
            self._refuse(answer, name)

    def _refuse(self, answer: Answer, name: str) -> NoReturn:
        raise self._translated(answer, name)

    def _translated(self, answer: Answer, name: str) -> DatasyncError:
        return translate(answer, url=self.url, bucket=self._bucket, name=name)

    def _check_put(self, answer: Answer, name: str, size: int) -> dict[str, Any]:
        """Return what the server says of the object that it has created, of *size* bytes."""
        self._expect(answer, name, 200)
        found = self._document(answer, name)
        with self._told(name):
            stored = int(found.get("size", size))
        if stored != size:
            raise StorageUnavailable(f"{self._what(name)}: sent {size} bytes, the server has {stored}; try again")
        return found

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """Raise `StorageUnavailable` where the server's document lacks what is looked for inside."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise StorageUnavailable(f"{self._what(name)}: the answer lacks something; try again") from error

    def _document(self, answer: Answer, name: str) -> dict[str, Any]:
        try:
            found = json.loads(answer.body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise StorageUnavailable(f"{self._what(name)}: the answer is no document of this service; try again")
        return found


def _class_of(where: StoreUrl) -> str:
    """Return the storage class that the URL asks for, or nothing."""
    asked = (where.option("storage_class") or "").upper()
    if asked and asked not in CLASSES:
        raise UsageError(
            f"{where.scheme}://{where.place}: storage class {asked} is unknown; expected one of {', '.join(CLASSES)}"
        )
    return asked


def _crc32c(view: memoryview) -> str:
    found = 0
    for start in range(0, len(view), SEND_BYTES):  # it takes bytes only: copies that stay in the cache
        found = google_crc32c.extend(found, bytes(view[start : start + SEND_BYTES]))
    return b64encode(found.to_bytes(4, "big")).decode()
