"""The HTTP session beneath an SDK that stands on `requests`: no retries, no redirects, bounded waits, one last answer.

SDKs hide the answer each in its own way, and some of it (Date, Content-Range, a redirect that looks like success) is
needed; so the session keeps each thread's last one. A redirect is refused: the SDKs sign for one host, and one of them
takes 3xx for success. Names under `.localhost` are this machine (RFC 6761, section 6.3), which resolvers often do not
know. `~/.netrc` is not read: it would replace the signature.
"""

import re
import threading
from email.utils import formatdate
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import requests
from requests.adapters import HTTPAdapter

from datasync.storage.http import HttpOptions

HEAD_BYTES = 1_024  # of a document, to see its root


class Redirected(requests.RequestException):
    """The server sent us elsewhere; `host` is where, as far as it can be shown."""

    def __init__(self, status: int, host: str) -> None:
        super().__init__(f"redirected with {status}")
        self.status, self.host = status, host


class SdkSession(requests.Session):
    """A thread-safe session that knows each thread's last answer."""

    def __init__(self, options: HttpOptions) -> None:
        super().__init__()
        self._timeout = (options.connect_seconds, options.read_seconds)
        self._local = threading.local()
        self.auth = _keep_headers
        self.headers = requests.structures.CaseInsensitiveDict({"Accept-Encoding": "identity"})
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Adapter(pool_connections=4, pool_maxsize=options.connections))

    @property
    def answer(self) -> requests.Response | None:
        """This thread's last answer."""
        return getattr(self._local, "answer", None)

    def forget(self) -> None:
        """Forget this thread's last answer: what comes next is about another request."""
        self._local.answer = None

    def expect(self, root: str) -> None:
        """Raise `ValueError` unless the last answer is the XML document *root*: SDKs read anything as an empty one."""
        head = self.answer.content[:HEAD_BYTES] if self.answer is not None and is_xml(self.answer) else b""
        if re.match(rb"(?:\xef\xbb\xbf)?\s*(?:<\?[^>]*>\s*)?<" + root.encode() + rb"[\s>/]", head) is None:
            raise ValueError(f"the answer is no {root}")

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        self.forget()
        kwargs.update(timeout=self._timeout, allow_redirects=False)
        answer = super().send(request, **kwargs)
        answer.headers.setdefault("Date", formatdate(usegmt=True))  # one SDK breaks over a refusal without it
        if is_xml(answer):
            answer.content  # noqa: B018 - read and kept now, so it is there for the SDK and for us
        self._local.answer = answer
        if 300 <= answer.status_code < 400 and answer.status_code != 304:
            answer.close()
            raise Redirected(answer.status_code, urlsplit(answer.headers.get("Location", "")).hostname or "")
        return answer


class _Adapter(HTTPAdapter):
    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        parts = urlsplit(request.url or "")
        if parts.scheme == "http" and (parts.hostname or "").endswith(".localhost"):
            request.headers.setdefault("Host", parts.netloc)
            port = f":{parts.port}" if parts.port else ""
            request.url = urlunsplit(parts._replace(netloc=f"127.0.0.1{port}"))
        return super().send(request, *args, **kwargs)


def is_xml(answer: requests.Response) -> bool:
    """Tell whether the answer is a document; its body is then at hand."""
    return "xml" in answer.headers.get("Content-Type", "")


def _keep_headers(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
