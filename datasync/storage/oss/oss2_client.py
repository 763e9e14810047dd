"""OSS through oss2, signature V4. Content-MD5 guards what is sent (`SdkStore`), so its CRC-64 is off."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import oss2
from oss2.credentials import Credentials, CredentialsProvider

from datasync.storage.body import Body
from datasync.storage.http import HttpOptions
from datasync.storage.sdk.client import Asked, Item, Page, Said, VersionItem, VersionPage
from datasync.storage.sdk.credentials import Provider
from datasync.storage.sdk.errors import NETWORK, PARSING
from datasync.storage.sdk.session import SdkSession

logging.getLogger("oss2").setLevel(logging.CRITICAL)  # it logs signatures and tokens
MANY = 1_000


class _Keys(CredentialsProvider):  # type: ignore[misc]
    def __init__(self, keys: Provider) -> None:
        self._keys = keys

    def get_credentials(self) -> Credentials:
        keys = self._keys()
        return Credentials(keys.access_key, keys.secret_key, keys.token)


class Oss2Client:
    """One bucket."""

    failures: tuple[type[Exception], ...] = (oss2.exceptions.OssError, *NETWORK, *PARSING)

    def __init__(self, bucket: str, region: str, endpoint: str, keys: Provider, options: HttpOptions) -> None:
        self.session = SdkSession(options)
        session = oss2.Session()
        session.session.close()
        session.session = self.session
        auth = oss2.ProviderAuthV4(_Keys(keys))
        self._bucket = oss2.Bucket(auth, endpoint, bucket, session=session, region=region, enable_crc=False)

    def put(self, key: str, body: Body | bytes, headers: Mapping[str, str]) -> None:
        self._bucket.put_object(key, body, headers=dict(headers))

    def get(self, key: str, headers: Mapping[str, str]) -> None:
        standard = {"x-oss-range-behavior": "standard"} if headers else {}  # else a range past the end is everything
        self._bucket.get_object(key, headers={**headers, **standard})

    def head(self, key: str) -> None:
        self._bucket.head_object(key)

    def delete(self, key: str, version: str = "") -> None:
        self._bucket.delete_object(key, params={"versionId": version} if version else None)

    def delete_many(self, keys: Sequence[str]) -> Sequence[tuple[str, str]]:
        done = set(self._bucket.batch_delete_objects(list(keys)).deleted_keys)
        self.session.expect("DeleteResult")
        return [(key, "") for key in keys if key not in done]

    def list(self, asked: Asked) -> Page:
        found = self._bucket.list_objects_v2(
            asked.prefix, asked.delimiter, asked.more, asked.after, max_keys=asked.limit, encoding_type="url"
        )
        self.session.expect("ListBucketResult")
        items = [Item(item.key, item.size, float(item.last_modified)) for item in found.object_list]
        return Page(items, found.prefix_list, found.next_continuation_token if found.is_truncated else "")

    def sign(self, method: str, key: str, seconds: int, headers: Mapping[str, str]) -> str:
        return str(self._bucket.sign_url(method, key, seconds, headers=dict(headers), slash_safe=True))

    def versioning(self) -> str:
        status = self._bucket.get_bucket_versioning().status or ""
        self.session.expect("VersioningConfiguration")
        return status

    def list_versions(self, prefix: str, more: tuple[str, str]) -> VersionPage:
        found = self._bucket.list_object_versions(prefix, key_marker=more[0], versionid_marker=more[1], max_keys=MANY)
        self.session.expect("ListVersionsResult")
        items = [_version(item, deleted=False) for item in found.versions]
        items += [_version(item, deleted=True) for item in found.delete_marker]
        items.sort(key=lambda item: (item.key, not item.newest, -item.modified))
        nexts = (found.next_key_marker or "", found.next_versionid_marker or "")
        return VersionPage(items, nexts if found.is_truncated else None)

    def retention_days(self) -> int | None:
        try:
            found = self._bucket.get_bucket_worm()
        except oss2.exceptions.NoSuchWORMConfiguration:
            return None
        return int(found.retention_period_days)

    def said(self, error: BaseException) -> Said | None:
        if not isinstance(error, oss2.exceptions.ServerError):
            return None
        return Said(error.status, error.code or "", _endpoint(error.details))

    def close(self) -> None:
        self.session.close()


def _version(item: Any, *, deleted: bool) -> VersionItem:
    size = 0 if deleted else item.size
    return VersionItem(item.key, item.versionid, bool(item.is_latest), deleted, size, float(item.last_modified))


def _endpoint(details: Mapping[str, str]) -> str:
    return details.get("Endpoint") or ""
