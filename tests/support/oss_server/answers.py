"""What the OSS test server does: buckets, objects, listings, versions, in the vendor's words and XML."""

import hashlib
import re
import xml.etree.ElementTree as ElementTree
from base64 import b64decode, b64encode
from collections.abc import Callable
from itertools import count
from urllib.parse import quote

from aiohttp import web

from tests.support.object_server import (
    PAGE_NAMES,
    PUT_BYTES,
    Account,
    Bucket,
    Call,
    Refusal,
    State,
    Version,
    cut,
    document,
    element,
    http_date,
    iso,
)
from tests.support.oss_server.policy import wishes
from tests.support.oss_server.signature import check

KEY_BYTES = 1_023
CLASSES = ("Standard", "IA", "Archive", "ColdArchive", "DeepColdArchive")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_numbers = count(1)


def answer(state: State) -> Callable[[Call], web.Response]:
    """Return what answers each request."""

    def answered(call: Call) -> web.Response:
        try:
            response = _answer(call, state)
        except Refusal as refusal:
            response = _refused(call, refusal)
        response.headers["x-oss-request-id"] = f"{next(_numbers):024X}"
        response.headers["Server"] = "AliyunOSS"
        return response

    return answered


def _refused(call: Call, refusal: Refusal) -> web.Response:
    parts = [element("Code", refusal.code), element("Message", refusal.message), element("HostId", call.host)]
    parts += [element(name, value) for name, value in refusal.more.items()]
    body = document("Error", *parts, element("RequestId", "0"))
    headers = {"x-oss-err": b64encode(body).decode()} if call.method == "HEAD" else {}
    return web.Response(
        status=refusal.status,
        body=b"" if call.method == "HEAD" else body,
        headers=headers,
        content_type="application/xml",
    )


def _answer(call: Call, state: State) -> web.Response:
    name = _bucket_of(call, state)
    if "aws-chunked" in call.headers.get("content-encoding", "") or "x-amz-trailer" in call.headers:
        raise Refusal(400, "InvalidArgument", "aws-chunked encoding is not supported.")
    if "trailer" in call.headers:
        raise Refusal(400, "InvalidArgument", "Trailers are not supported.")
    account = check(call, state, name)
    if not all(account.may(wish) for wish in wishes(call, name, state.now())):
        raise Refusal(403, "AccessDenied", "You have no right to access this object.")
    if not call.key:
        return _bucket_call(call, state, name, account)
    return _object_call(call, state, _existing(state, name), account)


def _bucket_of(call: Call, state: State) -> str:
    """Return the bucket, which only the host names."""
    bucket, _, endpoint = call.host.partition(".")
    if call.host.startswith("oss-"):
        raise Refusal(
            403, "SecondLevelDomainForbidden",
            "The bucket you are attempting to access must be addressed using OSS third level domain.",
        )  # fmt: skip
    region = state.regions.get(bucket, state.region)
    own = (f"oss-{region}.localhost", f"oss-{region}-internal.localhost")
    if endpoint not in own and re.fullmatch(r"oss-[a-z0-9-]+\.localhost", endpoint):
        message = "The bucket you are attempting to access must be addressed using the specified endpoint."
        raise Refusal(403, "AccessDenied", message, Bucket=bucket, Endpoint=f"oss-{region}.aliyuncs.com")
    if endpoint not in own or region != state.region:
        raise Refusal(
            403, "AccessDenied", "The specified endpoint is not served.", Endpoint=f"oss-{region}.aliyuncs.com"
        )
    return bucket


def _existing(state: State, name: str) -> Bucket:
    if name not in state.buckets:
        raise Refusal(404, "NoSuchBucket", "The specified bucket does not exist.", BucketName=name)
    return state.buckets[name]


def _may(allowed: bool) -> None:
    if not allowed:
        raise Refusal(403, "AccessDenied", "You have no right to access this object because of bucket acl.")


# Buckets


def _bucket_call(call: Call, state: State, name: str, account: Account) -> web.Response:
    query = call.query
    if call.method == "PUT":
        _may(account.writes)
        return _put_bucket(call, state, name, query)
    bucket = _existing(state, name)
    if call.method == "POST" and "delete" in query:
        return _delete_many(call, state, bucket, account)
    if call.method != "GET":
        raise Refusal(405, "MethodNotAllowed")
    if "versioning" in query:
        return _xml("VersioningConfiguration", element("Status", bucket.versioning) if bucket.versioning else "")
    if "worm" in query:
        return _worm(bucket)
    if "versions" in query:
        return _list_versions(name, bucket, query)
    return _list(name, bucket, query)


def _put_bucket(call: Call, state: State, name: str, query: dict[str, str]) -> web.Response:
    if "versioning" in query:
        status = ElementTree.fromstring(call.body).findtext("Status") or ""
        if status not in ("Enabled", "Suspended"):
            raise Refusal(400, "InvalidArgument")
        _existing(state, name).versioning = status
        return web.Response()
    if query:
        raise Refusal(501, "NotImplemented")
    if _BUCKET.fullmatch(name) is None:
        raise Refusal(400, "InvalidBucketName", "The specified bucket is not valid.")
    if name in state.buckets:
        raise Refusal(409, "BucketAlreadyExists")
    state.buckets[name] = Bucket()
    return web.Response()


def _worm(bucket: Bucket) -> web.Response:
    if bucket.retention_days is None:
        raise Refusal(404, "NoSuchWORMConfiguration", "The WORM Configuration does not exist.")
    parts = [element("WormId", "W1"), element("State", "Locked"), element("CreationDate", iso(0))]
    return _xml("WormConfiguration", *parts, element("RetentionPeriodInDays", bucket.retention_days))


def _limit(query: dict[str, str]) -> int:
    text = query.get("max-keys") or "100"
    if not text.isdigit() or not 1 <= int(text) <= PAGE_NAMES:
        raise Refusal(400, "InvalidArgument", "Argument maxKeys is invalid.")
    return int(text)


def _coder(query: dict[str, str]) -> Callable[[str], str]:
    kind = query.get("encoding-type", "")
    if kind not in ("", "url"):
        raise Refusal(400, "InvalidArgument")
    return (lambda text: quote(text, safe="")) if kind else str


def _list(name: str, bucket: Bucket, query: dict[str, str]) -> web.Response:
    second = query.get("list-type") == "2"
    token = b64decode(query.get("continuation-token", "")).decode() if second else query.get("marker", "")
    after = max(token, query.get("start-after", "")) if second else token
    limit, code, delimiter = _limit(query), _coder(query), query.get("delimiter", "")
    keys, prefixes, more = cut(bucket.keys(), query.get("prefix", ""), delimiter, after, limit)
    parts = [element("Name", name), element("Prefix", code(query.get("prefix", ""))), element("MaxKeys", limit)]
    parts += [element("Delimiter", code(delimiter)), element("IsTruncated", str(more).lower())]
    parts += [element("EncodingType", "url")] if query.get("encoding-type") else []
    if more:
        last = max([*keys, *prefixes])
        following = b64encode(last.encode()).decode() if second else last
        parts.append(element("NextContinuationToken" if second else "NextMarker", code(following)))
    parts += [_contents(key, bucket.objects[key][-1], code) for key in keys]
    parts += [f"<CommonPrefixes>{element('Prefix', code(prefix))}</CommonPrefixes>" for prefix in prefixes]
    return _xml("ListBucketResult", *parts, *([element("KeyCount", len(keys) + len(prefixes))] if second else []))


def _contents(key: str, version: Version, code: Callable[[str], str]) -> str:
    parts = [element("Key", code(key)), element("LastModified", iso(version.modified)), element("ETag", version.etag)]
    parts += [element("Type", "Normal"), element("Size", len(version.data or b""))]
    return f"<Contents>{''.join(parts)}{element('StorageClass', version.storage_class or 'Standard')}</Contents>"


def _list_versions(name: str, bucket: Bucket, query: dict[str, str]) -> web.Response:
    limit, code, prefix = _limit(query), _coder(query), query.get("prefix", "")
    marker, version_marker = query.get("key-marker", ""), query.get("version-id-marker", "")
    found = [
        (key, version, version is versions[-1])
        for key, versions in sorted(bucket.objects.items()) if key.startswith(prefix)
        for version in reversed(versions)
    ]  # fmt: skip
    places = [index for index, (key, version, _) in enumerate(found) if (key, version.id) == (marker, version_marker)]
    start = places[0] + 1 if places else sum(key <= marker for key, _, _ in found)
    page, more = found[start : start + limit], len(found) > start + limit
    parts = [element("Name", name), element("Prefix", code(prefix)), element("KeyMarker", code(marker))]
    parts += [element("VersionIdMarker", version_marker), element("MaxKeys", limit), element("Delimiter", "")]
    parts += [element("EncodingType", "url")] if query.get("encoding-type") else []
    parts.append(element("IsTruncated", str(more).lower()))
    if more:
        parts += [element("NextKeyMarker", code(page[-1][0])), element("NextVersionIdMarker", page[-1][1].id)]
    return _xml("ListVersionsResult", *parts, *(_one_version(*item, code) for item in page))


def _one_version(key: str, version: Version, newest: bool, code: Callable[[str], str]) -> str:
    parts = [element("Key", code(key)), element("VersionId", version.id), element("IsLatest", str(newest).lower())]
    parts += [element("LastModified", iso(version.modified)), "<Owner><ID>1</ID><DisplayName>1</DisplayName></Owner>"]
    if version.data is None:
        return f"<DeleteMarker>{''.join(parts)}</DeleteMarker>"
    parts += [element("ETag", version.etag), element("Type", "Normal"), element("Size", len(version.data))]
    return f"<Version>{''.join(parts)}{element('StorageClass', version.storage_class or 'Standard')}</Version>"


def _delete_many(call: Call, state: State, bucket: Bucket, account: Account) -> web.Response:
    _md5(call, required=True)
    _may(account.deletes)
    keys = [node.findtext("Key") or "" for node in ElementTree.fromstring(call.body).findall("Object")]
    if not 1 <= len(keys) <= PAGE_NAMES:
        raise Refusal(400, "MalformedXML")
    done, code = list[str](), _coder(call.query)
    for key in keys:
        version = bucket.current(key)
        if version and bucket.kept(version, state.now()):
            continue
        bucket.remove(key, "", state.now())
        done.append(f"<Deleted>{element('Key', code(key))}</Deleted>")
    encoding = [element("EncodingType", "url")] if call.query.get("encoding-type") else []
    return _xml("DeleteResult", *encoding, *done)


# Objects


def _object_call(call: Call, state: State, bucket: Bucket, account: Account) -> web.Response:
    if len(call.key.encode()) > KEY_BYTES:
        raise Refusal(400, "InvalidObjectName")
    if call.method == "PUT":
        _may(account.writes)
        return _put(call, state, bucket)
    if call.method == "DELETE":
        _may(account.deletes)
        return _delete(call, state, bucket)
    if call.method not in ("GET", "HEAD"):
        raise Refusal(501, "NotImplemented", "A header or a subresource is not built here.")
    version = bucket.current(call.key)
    if version is None:
        raise Refusal(404, "NoSuchKey", "The specified key does not exist.", Key=call.key)
    return _get(call, version)


def _put(call: Call, state: State, bucket: Bucket) -> web.Response:
    if call.query.keys() & {"partNumber", "uploadId", "acl", "tagging"} or "x-oss-copy-source" in call.headers:
        raise Refusal(501, "NotImplemented")
    if "content-length" not in call.headers and call.headers.get("transfer-encoding") != "chunked":
        raise Refusal(411, "MissingContentLength")
    if len(call.body) > PUT_BYTES:
        raise Refusal(400, "EntityTooLarge")
    _md5(call)
    forbid = call.headers.get("x-oss-forbid-overwrite", "false")
    if forbid not in ("true", "false"):
        raise Refusal(400, "InvalidArgument", "The x-oss-forbid-overwrite must be true or false.")
    storage_class = call.headers.get("x-oss-storage-class", "")
    if storage_class not in ("", *CLASSES):
        raise Refusal(400, "InvalidArgument", "The storage class you specified is invalid.")
    there = bucket.current(call.key)
    # Vendor's page "PutObject": the header has no effect once versions are enabled or suspended.
    kept = any(call.key.startswith(prefix) for prefix in bucket.protected)  # vendor's page "PutBucketOverwriteConfig"
    if there and (kept or (forbid == "true" and not bucket.versioning)):
        raise Refusal(409, "FileAlreadyExists", "The object you specified already exists and can not be overwritten.")
    if there and bucket.kept(there, state.now()):
        raise Refusal(409, "FileImmutable", "The object is kept by the bucket's retention policy.")
    version = bucket.add(call.key, call.body, state.now(), storage_class)
    headers = {"ETag": version.etag, "x-oss-hash-crc64ecma": str(version.crc)}
    return web.Response(headers=headers | ({"x-oss-version-id": version.id} if bucket.versioning == "Enabled" else {}))


def _md5(call: Call, *, required: bool = False) -> None:
    given = call.headers.get("content-md5")
    if given is None and required:
        raise Refusal(400, "MissingArgument", "Missing Some Required Arguments.")
    if given is not None and b64encode(hashlib.md5(call.body, usedforsecurity=False).digest()).decode() != given:
        raise Refusal(400, "InvalidDigest", "The Content-MD5 you specified was invalid.")


def _delete(call: Call, state: State, bucket: Bucket) -> web.Response:
    version = bucket.current(call.key)
    if version and bucket.kept(version, state.now()):
        raise Refusal(409, "FileImmutable", "The object is kept by the bucket's retention policy.")
    bucket.remove(call.key, call.query.get("versionId", ""), state.now())
    return web.Response(status=204)


def _get(call: Call, version: Version) -> web.Response:
    data = version.data or b""
    headers = {
        "ETag": version.etag, "Last-Modified": http_date(version.modified), "Accept-Ranges": "bytes",
        "Content-Type": "application/octet-stream", "x-oss-object-type": "Normal",
        "x-oss-hash-crc64ecma": str(version.crc), "x-oss-storage-class": version.storage_class or "Standard",
    }  # fmt: skip
    if call.method == "HEAD":
        return web.Response(headers=headers | {"Content-Length": str(len(data))})
    wanted = _range(call, len(data))
    if wanted is None:
        return web.Response(body=data, headers=headers)
    headers["Content-Range"] = f"bytes {wanted.start}-{wanted.stop - 1}/{len(data)}"
    return web.Response(status=206, body=data[wanted.start : wanted.stop], headers=headers)


def _range(call: Call, size: int) -> range | None:
    """Return the range; None for all: which a range that is not valid means, unless standard behaviour is asked for."""
    match = _RANGE.fullmatch(call.headers.get("range", ""))
    if match is None:
        return None
    first, last = int(match[1]), int(match[2] or size - 1)
    standard = call.headers.get("x-oss-range-behavior") == "standard"
    if first >= size or last < first:
        if standard:
            raise Refusal(416, "InvalidRange", "The requested range cannot be satisfied")
        return None
    if last >= size and not standard:
        return None
    return range(first, min(last, size - 1) + 1)


def _xml(root: str, *parts: str) -> web.Response:
    return web.Response(body=document(root, *parts), content_type="application/xml")
