"""The five requests that S3Store lives on, without the SDK: keys and endpoint are known, nothing is left to find out.

Importing the SDK and making its client take 0.15 s, a third of an unchanged push with it. `PlainClient` speaks its
language (the same parameters, the same answers): S3Store tells the two apart only by the form of a body to send.
Whatever needs the SDK's knowledge gets the SDK: a profile or a file of its own, credentials that have to be fetched,
AWS's own endpoints, a proxy. A bucket in another region is followed to it, as the SDK does.

Raises `Refused` for what the server says no to, `WireError` for what is no complete answer.
"""

import os
import re
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

from datasync import __version__
from datasync.model.limits import KIB, MIB
from datasync.storage.location import StoreUrl
from datasync.storage.s3.errors import Refused
from datasync.storage.s3.options import (
    DEFAULT_REGION,
    HEADERS,
    ONE_SEND_BYTES,
    S3Credentials,
    S3Options,
    extra_parameters,
)
from datasync.storage.s3.sigv4 import UNSIGNED, signed, target_of
from datasync.storage.s3.wire import Answer, Wire, WireError, WireOptions

PAGE_BYTES = 64 * MIB  # of a listing
ERROR_BYTES = 64 * KIB
_NOTHING = memoryview(b"")
_DNS_NAME = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_ADDRESS = re.compile(r"[0-9.]+|.*:.*")
_REGION = re.compile(r"[A-Za-z0-9-]{1,64}")
_KEY = re.compile(r"[!-~]+")
_ELSEWHERE = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
_LISTING = {
    "Prefix": "prefix",
    "Delimiter": "delimiter",
    "MaxKeys": "max-keys",
    "StartAfter": "start-after",
    "ContinuationToken": "continuation-token",
}
_NEEDS_SDK = (
    "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CREDENTIAL_EXPIRATION", "AWS_USE_FIPS_ENDPOINT",
    "AWS_USE_DUALSTACK_ENDPOINT", "AWS_SIGV4A_SIGNING_REGION_SET",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """Where requests go and how they are signed: `path` comes before a key, `authorities` is a file for TLS."""

    endpoint: str
    host: str
    path: str
    region: str
    keys: S3Credentials
    authorities: str | None


def plain_settings(where: StoreUrl, options: S3Options, environment: Mapping[str, str]) -> Settings | None:
    """Return the settings when they are all said by the URL, the program and these variables; None: ask the SDK."""
    keys, region = options.credentials or _keys(environment), where.region or environment.get("AWS_DEFAULT_REGION")
    if options.sdk or where.endpoint is None or keys is None or not _fit_a_header(keys):
        return None
    if _has_more(where, environment):
        return None
    parts = urlsplit(where.endpoint)
    host = parts.hostname or ""
    if parts.path.strip("/") or not host:
        return None
    virtual = where.addressing == "virtual"  # "auto" means the path at an endpoint that is not AWS's own
    if virtual and (_DNS_NAME.fullmatch(where.place) is None or _ADDRESS.fullmatch(host)):
        return None
    named = f"{where.place}.{host}" if virtual else f"[{host}]" if ":" in host else host
    port = "" if parts.port in (None, {"http": 80, "https": 443}[parts.scheme]) else f":{parts.port}"
    authorities = None
    if parts.scheme == "https":
        authorities = environment.get("AWS_CA_BUNDLE") or environment.get("REQUESTS_CA_BUNDLE") or _bundle()
    path = "/" if virtual else f"/{where.place}/"
    return Settings(f"{parts.scheme}://{named}{port}", named + port, path, region or DEFAULT_REGION, keys, authorities)


def _keys(environment: Mapping[str, str]) -> S3Credentials | None:
    access, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    token = environment.get("AWS_SECURITY_TOKEN") or environment.get("AWS_SESSION_TOKEN")
    return S3Credentials(access, secret, token) if access and secret else None


def _fit_a_header(keys: S3Credentials) -> bool:
    return all(_KEY.fullmatch(text) for text in (keys.access_key, keys.secret_key, keys.token or "none"))


def _has_more(where: StoreUrl, environment: Mapping[str, str]) -> bool:
    """Tell whether something else than `plain_settings` reads has a say."""
    if any(environment.get(name) for name in _NEEDS_SDK) or where.option("accelerate") or where.option("dualstack"):
        return True
    scheme = urlsplit(where.endpoint or "").scheme
    if any(environment.get(name) for proxy in (scheme, "all") for name in (f"{proxy}_proxy", f"{proxy}_proxy".upper())):
        return True
    files = (("AWS_CONFIG_FILE", "~/.aws/config"), ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"))
    named = (environment.get(variable) or usual for variable, usual in files)
    return any(os.path.exists(os.path.expandvars(os.path.expanduser(name))) for name in named)


def _bundle() -> str | None:
    """Return the certificates that the SDK trusts, the system's where it brings none."""
    for package, name in (("certifi", "cacert.pem"), ("botocore", "cacert.pem")):
        found = None
        with suppress(ValueError):  # a package that was loaded in an odd way
            found = find_spec(package)
        for place in (found.submodule_search_locations or ()) if found else ():
            if (file := Path(place, name)).is_file():
                return str(file)
    return None


class PlainClient:
    """Get, put, head, list, delete in one bucket. Thread-safe."""

    def __init__(self, where: StoreUrl, options: S3Options, settings: Settings) -> None:
        waits = WireOptions(options.connect_seconds, options.read_seconds, options.connections)
        context = None
        if settings.endpoint.startswith("https:"):
            import ssl

            context = ssl.create_default_context(cafile=settings.authorities)
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as the SDK: private authorities are seldom that strict
        self._wire = Wire(settings.endpoint, waits, context)
        self._settings = settings
        self._region = settings.region
        said = extra_parameters(where)
        self._with_put = {HEADERS[name]: value for name, value in said.items()}
        self._with_all = {HEADERS[name]: value for name, value in said.items() if name == "RequestPayer"}

    def close(self) -> None:
        """Close the connections."""
        self._wire.close()

    def get_object(self, **said: str) -> dict[str, Any]:
        """Return the answer with its body, to be read and closed."""
        headers = {"Range": said["Range"]} if "Range" in said else {}
        return _told(self._ask("GET", said["Key"], {}, headers))

    def put_object(self, **said: Any) -> dict[str, Any]:
        """Store `Body`, a view."""
        body: memoryview = said["Body"]
        headers = {"If-None-Match": said["IfNoneMatch"], **self._with_put}
        if "ChecksumCRC32" in said:
            headers["x-amz-checksum-crc32"] = said["ChecksumCRC32"]
        return _done(self._ask("PUT", said["Key"], {}, headers, body))

    def head_object(self, **said: str) -> dict[str, Any]:
        """Return length and time of an object."""
        answer = self._ask("HEAD", said["Key"], {}, {})
        told = _told(answer)
        with suppress(ValueError):  # the caller misses what is not told
            told["LastModified"] = _time(answer.headers.get("last-modified", ""))
        return told

    def delete_object(self, **said: str) -> dict[str, Any]:
        """Remove an object."""
        return _done(self._ask("DELETE", said["Key"], {}, {}))

    def list_objects_v2(self, **said: Any) -> dict[str, Any]:
        """Return one page of a listing."""
        query = {"list-type": "2", "encoding-type": "url"}
        query |= {name: str(said[parameter]) for parameter, name in _LISTING.items() if parameter in said}
        with closing(self._ask("GET", "", query, {})) as answer:
            return _page(_xml(answer.read(PAGE_BYTES)))

    def _ask(
        self, method: str, key: str, query: Mapping[str, str], headers: Mapping[str, str], body: memoryview = _NOTHING
    ) -> Answer:
        """Return the answer to a request that the server did not refuse."""
        path = self._settings.path + key if key else self._settings.path.rstrip("/") or "/"
        target, region = target_of(path, query), self._region
        answer = self._send(region, method, target, headers, body)
        if answer.status < 300:
            return answer
        refused = _refused(answer)
        if _is_elsewhere(refused, method) and refused.region != region and _REGION.fullmatch(refused.region):
            self._region = refused.region
            answer = self._send(refused.region, method, target, headers, body)
            if answer.status < 300:
                return answer
            refused = _refused(answer)
        raise refused

    def _send(self, region: str, method: str, target: str, headers: Mapping[str, str], body: memoryview) -> Answer:
        settings = self._settings
        every = signed(
            method,
            target,
            {"Host": settings.host, **self._with_all, **headers},
            keys=settings.keys,
            region=region,
            payload=UNSIGNED,
            now=time.time(),
        )
        every |= {"User-Agent": f"datasync/{__version__}", "Accept-Encoding": "identity"}  # proxies may change these
        if method == "PUT":
            every["Content-Length"] = str(len(body))
        return self._wire.send(method, target, every, body, ask=len(body) > ONE_SEND_BYTES)


def _is_elsewhere(refused: Refused, method: str) -> bool:
    """Tell whether the bucket is in another region, by what the SDK goes by."""
    by_status = refused.status in (301, 302, 307) or (method == "HEAD" and refused.status == 400)
    return by_status or refused.code in _ELSEWHERE


def _told(answer: Answer) -> dict[str, Any]:
    """Return what the SDK would tell of *answer*."""
    headers, told = answer.headers, dict[str, Any]()
    told["ResponseMetadata"] = {"HTTPStatusCode": answer.status}
    told["Body"] = answer
    if (length := headers.get("content-length", "")).isascii() and length.isdigit():
        told["ContentLength"] = int(length)
    if "content-range" in headers:
        told["ContentRange"] = headers["content-range"]
    return told


def _done(answer: Answer) -> dict[str, Any]:
    """Return what the SDK would tell of an answer without a body. A body that is an error, or no XML, is a failure
    whatever the status: S3 may send that before it is done.
    """
    with closing(answer):
        body = answer.read(ERROR_BYTES)
    if body.strip() and _is_failure(body):
        raise Refused(500, "InternalError", answer.headers)
    return _told(answer)


def _is_failure(body: bytes) -> bool:
    try:
        return _tag(_xml(body)) == "Error"
    except WireError:
        return True


def _xml(document: bytes) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(document)
    except (ElementTree.ParseError, LookupError, ValueError):  # the last two: an encoding that nobody knows
        raise WireError("NoXml") from None


def _refused(answer: Answer) -> Refused:
    """Return what the server's refusal says."""
    said = {"Region": answer.headers.get("x-amz-bucket-region", "")}
    with closing(answer), suppress(WireError):  # a proxy's page, or nothing: the status is all that is known
        said |= {_tag(item): item.text.strip() for item in _xml(answer.read(ERROR_BYTES)) if item.text}
    return Refused(answer.status, said.get("Code") or str(answer.status), answer.headers, said["Region"])


def _page(found: ElementTree.Element) -> dict[str, Any]:
    if _tag(found) != "ListBucketResult":
        raise WireError("NoListing")
    page: dict[str, Any] = {"Contents": [], "CommonPrefixes": []}
    encoded = found.findtext("{*}EncodingType") == "url"
    for item in found:
        tag = _tag(item)
        if tag in ("Contents", "CommonPrefixes"):
            page[tag].append(_fields(item, encoded=encoded))
        elif tag == "IsTruncated":
            page[tag] = (item.text or "").strip() == "true"
        elif tag == "NextContinuationToken":
            page[tag] = item.text
    return page


def _fields(item: ElementTree.Element, *, encoded: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in item:
        tag, text = _tag(part), part.text or ""
        if tag in ("Key", "Prefix"):
            found[tag] = unquote(text.replace("+", " ")) if encoded else text
        elif tag == "Size":
            found[tag] = int(text)
        elif tag == "LastModified":
            found[tag] = _time(text)
    return found


def _time(text: str) -> datetime:
    """Return the time that a listing (ISO 8601) or a header (RFC 9110) tells; some servers mix them up."""
    with suppress(ValueError):
        return datetime.fromisoformat(text.strip())
    try:
        return parsedate_to_datetime(text)
    except (TypeError, OverflowError):
        raise ValueError("no time") from None


def _tag(item: ElementTree.Element) -> str:
    """Return an element's name without its namespace, which servers spell in several ways."""
    return item.tag.rpartition("}")[2]
