"""What the COS test server does: buckets, objects, listings, versions, in the vendor's words and XML."""

import hashlib
import re
import xml.etree.ElementTree as ElementTree
from base64 import b64encode
from collections.abc import Callable
from itertools import count
from urllib.parse import quote

from aiohttp import web

from tests.support.cos_server.policy import wish_of
from tests.support.cos_server.signature import check
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

KEY_BYTES = 850
CLASSES = (
    "STANDARD", "STANDARD_IA", "MAZ_STANDARD", "MAZ_STANDARD_IA", "INTELLIGENT_TIERING", "ARCHIVE", "DEEP_ARCHIVE",
)  # fmt: skip
OWNER = "<Owner><ID>1250000000</ID><DisplayName>1250000000</DisplayName></Owner>"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]*-\d{5,20}")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_numbers = count(1)


def answer(state: State) -> Callable[[Call], web.Response]:
    """Return what answers each request."""

    def answered(call: Call) -> web.Response:
        number = f"NjE{next(_numbers):017x}"
        try:
            response = _answer(call, state)
        except Refusal as refusal:
            response = _refused(call, refusal, number)
        response.headers["x-cos-request-id"] = number
        response.headers["Server"] = "tencent-cos"
        return response

    return answered


def _refused(call: Call, refusal: Refusal, number: str) -> web.Response:
    parts = [element("Code", refusal.code), element("Message", refusal.message)]
    parts += [element("Resource", f"{call.host}{call.path}"), element("RequestId", number), element("TraceId", "T")]
    parts += [element(name, value) for name, value in refusal.more.items()]
    body = b"" if call.method == "HEAD" else document("Error", *parts)
    return web.Response(status=refusal.status, body=body, content_type="application/xml")


def _answer(call: Call, state: State) -> web.Response:
    name = _bucket_of(call, state)
    if "aws-chunked" in call.headers.get("content-encoding", "") or "x-amz-trailer" in call.headers:
        raise Refusal(501, "NotImplemented", "A header you provided implies functionality that is not implemented.")
    if "trailer" in call.headers:
        raise Refusal(501, "NotImplemented", "A header you provided implies functionality that is not implemented.")
    if call.headers.get("authorization", "").startswith("AWS4-"):
        raise Refusal(403, "SignatureDoesNotMatch", "This server checks the native signature only.")
    account = check(call, state)
    if not account.may(wish_of(call, name, state)):
        raise Refusal(403, "AccessDenied", "Access Denied.")
    if not call.key:
        return _bucket_call(call, state, name, account)
    return _object_call(call, state, _existing(state, name), account)


def _bucket_of(call: Call, state: State) -> str:
    """Return the bucket, which only the host names."""
    bucket, _, endpoint = call.host.partition(".")
    if call.host.startswith("cos."):
        message = "The bucket you are attempting to access must be addressed using COS virtual-styled domain."
        raise Refusal(403, "PathStyleDomainForbidden", message)
    if _BUCKET.fullmatch(bucket) is None:
        raise Refusal(400, "InvalidBucketName", "The specified bucket is not valid.")
    if endpoint != f"cos.{state.region}.localhost" or bucket in state.regions:
        raise Refusal(
            404, "NoSuchBucket", "The specified bucket does not exist."
        )  # a region knows its own buckets only
    return bucket


def _existing(state: State, name: str) -> Bucket:
    if name not in state.buckets:
        raise Refusal(404, "NoSuchBucket", "The specified bucket does not exist.")
    return state.buckets[name]


def _may(allowed: bool) -> None:
    if not allowed:
        raise Refusal(403, "AccessDenied", "Access Denied.")


# Buckets


def _bucket_call(call: Call, state: State, name: str, account: Account) -> web.Response:
    query = call.query
    bucket = _existing(state, name)
    if call.method == "POST" and "delete" in query:
        return _delete_many(call, state, bucket, account)
    if call.method != "GET":
        raise Refusal(405, "MethodNotAllowed")
    if "versioning" in query:
        return _xml("VersioningConfiguration", element("Status", bucket.versioning) if bucket.versioning else "")
    if "object-lock" in query:
        return _lock(bucket)
    if "versions" in query:
        return _list_versions(name, bucket, query)
    return _list(name, bucket, query)


def _lock(bucket: Bucket) -> web.Response:
    if bucket.retention_days is None:
        raise Refusal(404, "ObjectLockConfigurationNotFoundError", "There is no object lock configuration.")
    retention = element("Mode", "COMPLIANCE") + element("Days", bucket.retention_days)
    rule = f"<Rule><DefaultRetention>{retention}</DefaultRetention></Rule>"
    return _xml("ObjectLockConfiguration", element("ObjectLockEnabled", "Enabled"), rule)


def _limit(query: dict[str, str]) -> int:
    text = query.get("max-keys") or "1000"
    if not text.isdigit() or not 1 <= int(text) <= PAGE_NAMES:
        raise Refusal(400, "InvalidArgument", "The max-keys is invalid.")
    return int(text)


def _coder(query: dict[str, str]) -> Callable[[str], str]:
    kind = query.get("encoding-type", "")
    if kind not in ("", "url"):
        raise Refusal(400, "InvalidArgument")
    return (lambda text: quote(text, safe="/")) if kind else str


def _list(name: str, bucket: Bucket, query: dict[str, str]) -> web.Response:
    limit, code, delimiter = _limit(query), _coder(query), query.get("delimiter", "")
    marker = query.get("marker", "")
    keys, prefixes, more = cut(bucket.keys(), query.get("prefix", ""), delimiter, marker, limit)
    parts = [element("Name", name), element("EncodingType", "url"), element("Prefix", code(query.get("prefix", "")))]
    parts += [element("Marker", code(marker)), element("MaxKeys", limit), element("IsTruncated", str(more).lower())]
    if more:
        parts.append(element("NextMarker", code(max([*keys, *prefixes]))))
    parts += [_contents(key, bucket.objects[key][-1], code) for key in keys]
    parts += [f"<CommonPrefixes>{element('Prefix', code(prefix))}</CommonPrefixes>" for prefix in prefixes]
    return _xml("ListBucketResult", *parts)


def _contents(key: str, version: Version, code: Callable[[str], str]) -> str:
    parts = [element("Key", code(key)), element("LastModified", iso(version.modified)), element("ETag", version.etag)]
    parts += [element("Size", len(version.data or b"")), OWNER]
    return f"<Contents>{''.join(parts)}{element('StorageClass', version.storage_class or 'STANDARD')}</Contents>"


def _list_versions(name: str, bucket: Bucket, query: dict[str, str]) -> web.Response:
    limit, code, prefix = _limit(query), _coder(query), query.get("prefix", "")
    place = query.get("key-marker", ""), query.get("version-id-marker", "")
    found = [
        (key, version, version is versions[-1])
        for key, versions in sorted(bucket.objects.items()) if key.startswith(prefix)
        for version in reversed(versions)
    ]  # fmt: skip
    places = [index for index, (key, version, _) in enumerate(found) if (key, version.id) == place]
    start = places[0] + 1 if places else sum(key <= place[0] for key, _, _ in found)
    page, more = found[start : start + limit], len(found) > start + limit
    parts = [element("Name", name), element("EncodingType", "url"), element("Prefix", code(prefix))]
    parts += [element("MaxKeys", limit), element("IsTruncated", str(more).lower())]
    if more:
        parts += [element("NextKeyMarker", code(page[-1][0])), element("NextVersionIdMarker", page[-1][1].id)]
    return _xml("ListVersionsResult", *parts, *(_one_version(*item, code) for item in page))


def _one_version(key: str, version: Version, newest: bool, code: Callable[[str], str]) -> str:
    parts = [element("Key", code(key)), element("VersionId", version.id), element("IsLatest", str(newest).lower())]
    parts += [element("LastModified", iso(version.modified)), OWNER]
    if version.data is None:
        return f"<DeleteMarker>{''.join(parts)}</DeleteMarker>"
    parts += [element("ETag", version.etag), element("Size", len(version.data)), element("StorageClass", "STANDARD")]
    return f"<Version>{''.join(parts)}</Version>"


def _delete_many(call: Call, state: State, bucket: Bucket, account: Account) -> web.Response:
    _md5(call, required=True)
    root = ElementTree.fromstring(call.body)
    keys = [node.findtext("Key") or "" for node in root.findall("Object")]
    if not 1 <= len(keys) <= PAGE_NAMES:
        raise Refusal(400, "MalformedXML")
    parts = list[str]()
    for key in keys:
        version = bucket.current(key)
        if not account.deletes or (version and bucket.kept(version, state.now())):
            code = element("Code", "AccessDenied") + element("Message", "Access Denied.")
            parts.append(f"<Error>{element('Key', key)}{code}</Error>")
            continue
        bucket.remove(key, "", state.now())
        if root.findtext("Quiet") != "true":
            parts.append(f"<Deleted>{element('Key', key)}</Deleted>")
    return _xml("DeleteResult", *parts)


# Objects


def _object_call(call: Call, state: State, bucket: Bucket, account: Account) -> web.Response:
    if len(call.key.encode()) > KEY_BYTES:
        raise Refusal(400, "KeyTooLong")
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
        raise Refusal(404, "NoSuchKey", "The specified key does not exist.")
    return _get(call, version)


def _put(call: Call, state: State, bucket: Bucket) -> web.Response:
    if call.query.keys() & {"partNumber", "uploadId", "acl", "tagging"} or "x-cos-copy-source" in call.headers:
        raise Refusal(501, "NotImplemented")
    if "content-length" not in call.headers and call.headers.get("transfer-encoding") != "chunked":
        raise Refusal(411, "MissingContentLength")
    if len(call.body) > PUT_BYTES:
        raise Refusal(400, "EntityTooLarge")
    _md5(call)
    storage_class = call.headers.get("x-cos-storage-class", "")
    if storage_class not in ("", *CLASSES):
        raise Refusal(400, "InvalidStorageClass")
    there = bucket.current(call.key)
    # Vendor's page "PUT Object": the header has no effect in a bucket that has or had versions.
    if there and call.headers.get("x-cos-forbid-overwrite") == "true" and not bucket.versioning:
        raise Refusal(409, "FileAlreadyExists", "The file already exists.")
    if there and bucket.kept(there, state.now()):
        raise Refusal(403, "AccessDenied", "Object is locked.")
    version = bucket.add(call.key, call.body, state.now(), storage_class)
    headers = {"ETag": version.etag.lower(), "x-cos-hash-crc64ecma": str(version.crc)}
    return web.Response(headers=headers | ({"x-cos-version-id": version.id} if bucket.versioning == "Enabled" else {}))


def _md5(call: Call, *, required: bool = False) -> None:
    given = call.headers.get("content-md5")
    if given is None and required:
        raise Refusal(400, "MissingRequestHeader", "Content-MD5 is required.")
    if given is not None and b64encode(hashlib.md5(call.body, usedforsecurity=False).digest()).decode() != given:
        raise Refusal(400, "BadDigest", "The Content-MD5 you specified did not match what was received.")


def _delete(call: Call, state: State, bucket: Bucket) -> web.Response:
    version = bucket.current(call.key)
    if version and bucket.kept(version, state.now()):
        raise Refusal(403, "AccessDenied", "Object is locked.")
    bucket.remove(call.key, call.query.get("versionId", ""), state.now())
    return web.Response(status=204)


def _get(call: Call, version: Version) -> web.Response:
    data = version.data or b""
    headers = {
        "ETag": version.etag.lower(), "Last-Modified": http_date(version.modified), "Accept-Ranges": "bytes",
        "Content-Type": "application/octet-stream", "x-cos-hash-crc64ecma": str(version.crc),
        "x-cos-force-download": "true", "Content-Disposition": "attachment",
    }  # fmt: skip
    if version.storage_class not in ("", "STANDARD"):
        headers["x-cos-storage-class"] = version.storage_class
    if call.method == "HEAD":
        return web.Response(headers=headers | {"Content-Length": str(len(data))})
    match = _RANGE.fullmatch(call.headers.get("range", ""))
    if match is None:
        return web.Response(body=data, headers=headers)
    first, last = int(match[1]), min(int(match[2] or len(data) - 1), len(data) - 1)
    if first > last:
        raise Refusal(416, "InvalidRange", "The requested range is not satisfiable.")
    headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
    return web.Response(status=206, body=data[first : last + 1], headers=headers)


def _xml(root: str, *parts: str) -> web.Response:
    return web.Response(body=document(root, *parts), content_type="application/xml")
