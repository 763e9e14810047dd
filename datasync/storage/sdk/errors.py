"""What the failure of an SDK means: its exceptions and the server's codes -> datasync's errors.

SDKs wrap what the network and we ourselves raise, each in its own way, so the chain of causes is searched. Messages
carry the store's URL, the object, the server's code and what to do; never the server's text, a request URL or a header.
"""

import re
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from xml.etree.ElementTree import ParseError

import requests
import urllib3.exceptions

from datasync.errors import (
    AlreadyExists,
    DatasyncError,
    NoSpace,
    NotAuthorized,
    NotFound,
    SlowDown,
    StorageUnavailable,
    UsageError,
)
from datasync.storage.retry import retry_after
from datasync.storage.sdk.client import Dialect, Said, SdkClient
from datasync.storage.sdk.session import Redirected, is_xml

NETWORK = (requests.RequestException, urllib3.exceptions.HTTPError, OSError)
PARSING = (ParseError, RuntimeError, ValueError, LookupError, AttributeError, TypeError)
"""What SDKs raise for an answer that is none of their service's: they look up parts without checking."""
_SKEWED = ("RequestTimeTooSkewed", "RequestIsExpired")
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
    if code in dialect.no_space or status == 507:
        return NoSpace(f"{what}: {told}; the store is full: make room or raise the quota")
    if code in dialect.slow_down or status in (429, 503):
        headers = {} if (answer := client.session.answer) is None else answer.headers
        return SlowDown(f"{what}: {told}; run the same line again", retry_after(headers, time.time()))
    if code in dialect.try_again or status in (408, 409) or (status >= 500 and status != 501):
        return StorageUnavailable(f"{what}: {told}; run the same line again")
    if said.endpoint:
        return UsageError(f"{what}: {_elsewhere(said.endpoint, status)}")
    if code in dialect.hints or status in (401, 403):
        return NotAuthorized(f"{what}: {told}; {_hint(code, client, dialect)}")
    if status == 404:
        return NotFound(f"{what} does not exist")
    return UsageError(f"{what}: {told}, which no retry changes; check {dialect.where}")


def _hint(code: str, client: SdkClient, dialect: Dialect) -> str:
    ahead = _seconds_ahead(client.session.answer)
    if code in _SKEWED or (abs(ahead) > 900 and code not in dialect.hints):
        wrong = f"{abs(ahead)} seconds {'ahead of' if ahead > 0 else 'behind'}"
        return (
            f"this machine's clock is {wrong} the server's; set it (NTP)" if ahead else "set this machine's clock (NTP)"
        )
    return dialect.hints.get(code, "these credentials lack the right; ask for access to this bucket and prefix")


def _seconds_ahead(answer: requests.Response | None) -> int:
    """Return by how much the local clock is ahead of the answer's Date; 0 when it tells none."""
    try:
        return (
            round(time.time() - parsedate_to_datetime(answer.headers["Date"]).timestamp()) if answer is not None else 0
        )
    except (KeyError, TypeError, ValueError):
        return 0


def _elsewhere(host: str, status: int) -> str:
    shown = host.lower() if _HOST.fullmatch(host.lower()) else "another endpoint"
    return (
        f"the server answered {status}: the bucket is at {shown}; correct region= (and endpoint=) in the repository URL"
    )
