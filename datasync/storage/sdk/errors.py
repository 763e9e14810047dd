"""What the failure of an SDK means: its exceptions and the server's codes -> datasync's errors.

SDKs wrap what the network and we ourselves raise, each in its own way, so the chain of causes is searched. Messages
carry the store's URL, the object, the server's code and what to do; never the server's text, a request URL or a header.
"""

import re
import time
from collections.abc import Iterator
from xml.etree.ElementTree import ParseError

import requests
import urllib3.exceptions

from datasync.errors import (
    AlreadyExists,
    DatasyncError,
    NotAuthorized,
    NotFound,
    StorageUnavailable,
    UsageError,
)
from datasync.storage.sdk.client import Dialect, Said, SdkClient
from datasync.storage.sdk.session import Redirected, is_xml
from datasync.storage.skew import seconds_ahead, wrong_clock
from datasync.storage.trouble import trouble

NETWORK = (requests.RequestException, urllib3.exceptions.HTTPError, OSError)
PARSING = (ParseError, RuntimeError, ValueError, LookupError, AttributeError, TypeError)
"""What SDKs raise for an answer that is none of their service's: they look up parts without checking."""
_SKEWED = ("RequestTimeTooSkewed", "RequestIsExpired")
SKEW_SECONDS = 900  # the services refuse requests that are 15 minutes off
_HOST = re.compile(r"[a-z0-9.-]{1,253}")


def translate(
    error: Exception, client: SdkClient, dialect: Dialect, *, url: str, bucket: str, name: str
) -> DatasyncError:
    """Return the error that the caller shall raise for *error*, met while working on *name*."""
    what = f"{url}: {name}" if name else url
    answer = client.session.answer
    if (said := said_of(error, client)) is not None:
        return refusal(said, client, dialect, what, bucket)
    for cause in _chain(error):
        if isinstance(cause, DatasyncError):
            return cause
        if isinstance(cause, Redirected):
            return UsageError(f"{what}: {_elsewhere(cause.host, cause.status)}")
        if isinstance(cause, requests.exceptions.SSLError):
            return StorageUnavailable(
                f"{what}: no TLS connection; check the endpoint's certificate and REQUESTS_CA_BUNDLE"
            )
        if isinstance(cause, requests.exceptions.InvalidURL | requests.exceptions.InvalidProxyURL):
            return UsageError(f"{what}: the endpoint or the proxy is not usable; check {dialect.where}")
    kind = type(error).__name__
    network = any(isinstance(cause, NETWORK) for cause in _chain(error))
    if answer is not None and not network:
        return StorageUnavailable(f"{what}: the answer is no {dialect.name} answer ({kind}); a proxy may have sent it")
    if network:
        return StorageUnavailable(f"{what}: no complete answer from the server ({kind}); run the same line again")
    return UsageError(f"{what}: the {dialect.name} client refuses the settings ({kind}); check {dialect.where}")


def said_of(error: BaseException | None, client: SdkClient) -> Said | None:
    """Return what the server said if *error* came of a refusal, also when the SDK broke over the refusal's form."""
    answer = client.session.answer
    said = client.said(error) if error is not None else None
    if said is None and answer is not None and answer.status_code >= 400:
        return Said(answer.status_code, _code_in(answer))
    return said


def _code_in(answer: requests.Response) -> str:
    found = re.search(rb"<Code>(\w{1,60})</Code>", answer.content) if is_xml(answer) else None
    return found[1].decode() if found else ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield *error* and what it wraps: as an attribute, an argument or a cause."""
    waiting, seen = [error], set[int]()
    while waiting:
        found = waiting.pop(0)
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        inner = [getattr(found, "exception", None), getattr(found, "_error", None), *found.args]
        inner += [found.__cause__, found.__context__, getattr(found, "reason", None)]
        waiting += [item for item in inner if isinstance(item, BaseException)]


def refusal(said: Said, client: SdkClient, dialect: Dialect, what: str, bucket: str) -> DatasyncError:
    """Return the error for the server's refusal of something with *what*."""
    code, status = re.sub(r"[^A-Za-z0-9]", "", said.code)[:60], said.status
    told = f"the server answered {status} {code}".rstrip()
    if code == "NoSuchBucket":
        return NotFound(f"{what}: bucket {bucket} does not exist; create it with your provider, or correct the URL")
    if code == "FileAlreadyExists" or status == 412:
        return AlreadyExists(f"{what} exists")
    if code == "FileImmutable":
        return NotAuthorized(f"{what}: {told}; the bucket's retention policy keeps it: wait until it has passed")
    headers = {} if (answer := client.session.answer) is None else answer.headers
    full, slow, again = code in dialect.no_space, code in dialect.slow_down, code in dialect.try_again or status == 409
    if (passing := trouble(what, told, status, headers, full=full, slow=slow, again=again)) is not None:
        return passing
    if said.endpoint:
        return UsageError(f"{what}: {_elsewhere(said.endpoint, status)}")
    if code in dialect.hints or status in (401, 403):
        return NotAuthorized(f"{what}: {told}; {_hint(code, client, dialect)}")
    if status == 404:
        return NotFound(f"{what} does not exist")
    return UsageError(f"{what}: {told}, which no retry changes; check {dialect.where}")


def _hint(code: str, client: SdkClient, dialect: Dialect) -> str:
    answer = client.session.answer
    ahead = seconds_ahead(answer.headers.get("Date", ""), time.time()) if answer is not None else 0
    if code in _SKEWED or (abs(ahead) > SKEW_SECONDS and code not in dialect.hints):
        return wrong_clock(ahead)
    return dialect.hints.get(code, "these credentials lack the right; ask for access to this bucket and prefix")


def _elsewhere(host: str, status: int) -> str:
    shown = host.lower() if _HOST.fullmatch(host.lower()) else "another endpoint"
    return (
        f"the server answered {status}: the bucket is at {shown}; correct region= (and endpoint=) in the repository URL"
    )
