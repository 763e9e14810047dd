"""COS through cos-python-sdk-v5: one SDK client for each set of keys, so that keys never mix within a request.

What the SDK does that is not wanted here: its credential objects lose the token, so keys go in whole; it logs headers;
it follows up 3xx as success (the session refuses them); it reads XML answers with eval(), so listings are asked for
with its `send_request` and parsed here.
"""

import hashlib
import logging
import xml.etree.ElementTree as ElementTree
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import escape

from qcloud_cos import CosClientError, CosConfig, CosS3Client, CosServiceError
from qcloud_cos.cos_auth import CosS3Auth

from datasync.storage.body import Body
from datasync.storage.http import HttpOptions
from datasync.storage.sdk.client import Asked, Item, Page, Said, VersionItem, VersionPage
from datasync.storage.sdk.credentials import Keys, Provider
from datasync.storage.sdk.errors import NETWORK, PARSING
from datasync.storage.sdk.session import SdkSession

logging.getLogger("qcloud_cos").setLevel(logging.CRITICAL + 1)  # it logs signatures and tokens
MANY = 1_000


class CosClient:
    """One bucket."""

    failures: tuple[type[Exception], ...] = (CosClientError, CosServiceError, *NETWORK, *PARSING)

    def __init__(self, bucket: str, region: str, endpoint: str, keys: Provider, options: HttpOptions) -> None:
        self.session = SdkSession(options)
        self._bucket, self._region, self._keys = bucket, region, keys
        self._endpoint = urlsplit(endpoint)
        self._made: tuple[Keys, CosS3Client] | None = None

    def put(self, key: str, body: Body | bytes, headers: Mapping[str, str]) -> None:
        self._client().put_object(self._bucket, body, key, Metadata=dict(headers))

    def get(self, key: str, headers: Mapping[str, str]) -> None:
        self._client().get_object(self._bucket, key, KeySimplifyCheck=False, Metadata=dict(headers))

    def head(self, key: str) -> None:
        self._client().head_object(self._bucket, key)

    def delete(self, key: str, version: str = "") -> None:
        self._client().delete_object(self._bucket, key, **({"VersionId": version} if version else {}))

    def delete_many(self, keys: Sequence[str]) -> Sequence[tuple[str, str]]:
        objects = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys)
        body = f"<Delete><Quiet>true</Quiet>{objects}</Delete>".encode()
        digest = b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        root = self._ask(
            "DeleteResult", "POST", {"delete": ""}, body, {"Content-MD5": digest, "Content-Type": "application/xml"}
        )
        return [(node.findtext("Key") or "", node.findtext("Code") or "") for node in root.findall("Error")]

    def list(self, asked: Asked) -> Page:
        root = self._ask(
            "ListBucketResult",
            "GET",
            {
                "prefix": asked.prefix,
                "delimiter": asked.delimiter,
                "marker": asked.more or asked.after,
                "max-keys": str(asked.limit),
                "encoding-type": "url",
            },
        )
        items = [Item(_key(node), int(_text(node, "Size")), _time(node)) for node in root.findall("Contents")]
        prefixes = [unquote(_text(node, "Prefix")) for node in root.findall("CommonPrefixes")]
        more = _text(root, "NextMarker") if _text(root, "IsTruncated") == "true" else ""
        return Page(items, prefixes, unquote(more))

    def sign(self, method: str, key: str, seconds: int, headers: Mapping[str, str]) -> str:
        keys = self._keys()
        parameters = {"x-cos-security-token": keys.token} if keys.token else {}
        client = self._of(keys)
        url = client.get_presigned_url(self._bucket, key, method, seconds, Params=parameters, Headers=dict(headers))
        return str(url)

    def versioning(self) -> str:
        return self._ask("VersioningConfiguration", "GET", {"versioning": ""}).findtext("Status") or ""

    def list_versions(self, prefix: str, more: tuple[str, str]) -> VersionPage:
        asked = {"versions": "", "prefix": prefix, "max-keys": str(MANY), "encoding-type": "url"}
        root = self._ask("ListVersionsResult", "GET", asked | {"key-marker": more[0], "version-id-marker": more[1]})
        items = [_version(node) for node in root if node.tag in ("Version", "DeleteMarker")]
        items.sort(key=lambda item: (item.key, not item.newest, -item.modified))
        nexts = unquote(root.findtext("NextKeyMarker") or ""), root.findtext("NextVersionIdMarker") or ""
        return VersionPage(items, nexts if _text(root, "IsTruncated") == "true" else None)

    def retention_days(self) -> int | None:
        try:
            root = self._ask("ObjectLockConfiguration", "GET", {"object-lock": ""})
        except CosServiceError as error:
            if error.get_status_code() == 404 and _code(error) != "NoSuchBucket":
                return None
            raise
        days = root.findtext("Rule/DefaultRetention/Days")
        return int(days) if days else None

    def said(self, error: BaseException) -> Said | None:
        return Said(error.get_status_code(), _code(error)) if isinstance(error, CosServiceError) else None

    def close(self) -> None:
        self.session.close()

    def _client(self) -> CosS3Client:
        return self._of(self._keys())

    def _of(self, keys: Keys) -> CosS3Client:
        """Return the SDK's client for *keys*; all share one session."""
        made = self._made
        if made is None or made[0] != keys:
            config = CosConfig(
                Region=self._region,
                SecretId=keys.access_key,
                SecretKey=keys.secret_key,
                Token=keys.token or None,
                Scheme=self._endpoint.scheme,
                Endpoint=self._endpoint.netloc,
                AutoSwitchDomainOnRetry=False,
            )
            made = self._made = keys, CosS3Client(config, retry=0, session=self.session)
        return made[1]

    def _ask(
        self,
        expected: str,
        method: str,
        parameters: dict[str, str],
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ElementTree.Element:
        """Send a request about the bucket and return its XML, the document *expected*, without name spaces."""
        client = self._client()
        config = client.get_conf()
        answer = client.send_request(
            method=method,
            url=config.uri(bucket=self._bucket),
            bucket=self._bucket,
            auth=CosS3Auth(config, params=parameters),
            params=parameters,
            headers=dict(headers or {}),
            **({"data": body} if body is not None else {}),
        )
        self.session.expect(expected)
        root = ElementTree.fromstring(answer.content)
        for node in root.iter():
            node.tag = node.tag.rpartition("}")[2]
        return root


def _code(error: CosServiceError) -> str:
    """Return the code; the SDK has none for answers to HEAD but 404, and keeps their headers instead."""
    told = error.get_digest_msg()
    return str(told.get("code", "")) if isinstance(told, Mapping) else ""


def _text(node: ElementTree.Element, name: str) -> str:
    text = node.findtext(name)
    if text is None:
        raise ValueError(f"the answer has no {name}")
    return text


def _key(node: ElementTree.Element) -> str:
    return unquote(_text(node, "Key"))


def _time(node: ElementTree.Element) -> float:
    return datetime.fromisoformat(_text(node, "LastModified")).timestamp()


def _version(node: ElementTree.Element) -> VersionItem:
    deleted = node.tag == "DeleteMarker"
    newest, size = _text(node, "IsLatest") == "true", 0 if deleted else int(_text(node, "Size"))
    return VersionItem(_key(node), _text(node, "VersionId"), newest, deleted, size, _time(node))
