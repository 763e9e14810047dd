"""OSS through alibabacloud-oss-v2, signature V4. Content-MD5 guards what is sent (`SdkStore`), so its CRC-64 is off."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import alibabacloud_oss_v2 as oss
from alibabacloud_oss_v2.retry import NopRetryer
from alibabacloud_oss_v2.transport import RequestsHttpClient

from datasync.storage.body import Body
from datasync.storage.http import HttpOptions
from datasync.storage.sdk.client import Asked, Item, Page, Said, VersionItem, VersionPage
from datasync.storage.sdk.credentials import Provider
from datasync.storage.sdk.errors import NETWORK, PARSING
from datasync.storage.sdk.session import SdkSession

MANY = 1_000


class _Keys(oss.credentials.CredentialsProvider):  # type: ignore[misc]
    def __init__(self, keys: Provider) -> None:
        self._keys = keys

    def get_credentials(self) -> oss.credentials.Credentials:
        keys = self._keys()
        return oss.credentials.Credentials(keys.access_key, keys.secret_key, keys.token or None)


class V2Client:
    """One bucket."""

    failures: tuple[type[Exception], ...] = (oss.exceptions.BaseError, *NETWORK, *PARSING)

    def __init__(self, bucket: str, region: str, endpoint: str, keys: Provider, options: HttpOptions) -> None:
        self.session = SdkSession(options)
        self._place = {"bucket": bucket}
        self._client = oss.Client(
            oss.Config(
                region=region,
                endpoint=endpoint,
                credentials_provider=_Keys(keys),
                http_client=RequestsHttpClient(session=self.session),
                retryer=NopRetryer(),
                disable_upload_crc64_check=True,
                disable_download_crc64_check=True,
            )
        )

    def put(self, key: str, body: Body | bytes, headers: Mapping[str, str]) -> None:
        self._client.put_object(oss.PutObjectRequest(**self._place, key=key, body=body, headers=dict(headers)))

    def get(self, key: str, headers: Mapping[str, str]) -> None:
        standard = {"x-oss-range-behavior": "standard"} if headers else {}  # else a range past the end is everything
        self._client.get_object(oss.GetObjectRequest(**self._place, key=key, headers={**headers, **standard}))

    def head(self, key: str) -> None:
        self._client.head_object(oss.HeadObjectRequest(**self._place, key=key))

    def delete(self, key: str, version: str = "") -> None:
        self._client.delete_object(oss.DeleteObjectRequest(**self._place, key=key, version_id=version or None))

    def delete_many(self, keys: Sequence[str]) -> Sequence[tuple[str, str]]:
        wanted = oss.Delete(objects=[oss.ObjectIdentifier(key=key) for key in keys], quiet=False)
        answer = self._client.delete_multiple_objects(
            oss.DeleteMultipleObjectsRequest(**self._place, encoding_type="url", delete=wanted)
        )
        self.session.expect("DeleteResult")
        done = {item.key for item in answer.deleted_objects or ()}
        return [(key, "") for key in keys if key not in done]

    def list(self, asked: Asked) -> Page:
        found = self._client.list_objects_v2(
            oss.ListObjectsV2Request(
                **self._place,
                prefix=asked.prefix,
                delimiter=asked.delimiter or None,
                start_after=asked.after or None,
                continuation_token=asked.more or None,
                max_keys=asked.limit,
                encoding_type="url",
            )
        )
        self.session.expect("ListBucketResult")
        items = [Item(item.key, item.size, item.last_modified.timestamp()) for item in found.contents or ()]
        prefixes = [item.prefix for item in found.common_prefixes or ()]
        return Page(items, prefixes, found.next_continuation_token or "" if found.is_truncated else "")

    def sign(self, method: str, key: str, seconds: int, headers: Mapping[str, str]) -> str:
        kind = {"GET": oss.GetObjectRequest, "PUT": oss.PutObjectRequest}[method]
        request = kind(**self._place, key=key, headers=dict(headers))
        return str(self._client.presign(request, expires=timedelta(seconds=seconds)).url)

    def versioning(self) -> str:
        found = self._client.get_bucket_versioning(oss.GetBucketVersioningRequest(**self._place))
        self.session.expect("VersioningConfiguration")
        return found.version_status or ""

    def list_versions(self, prefix: str, more: tuple[str, str]) -> VersionPage:
        found = self._client.list_object_versions(
            oss.ListObjectVersionsRequest(
                **self._place,
                prefix=prefix,
                key_marker=more[0] or None,
                version_id_marker=more[1] or None,
                max_keys=MANY,
                encoding_type="url",
            )
        )
        self.session.expect("ListVersionsResult")
        items = [_version(item, item.size, deleted=False) for item in found.version or ()]
        items += [_version(item, 0, deleted=True) for item in found.delete_marker or ()]
        items.sort(key=lambda item: (item.key, not item.newest, -item.modified))
        nexts = (found.next_key_marker or "", found.next_version_id_marker or "")
        return VersionPage(items, nexts if found.is_truncated else None)

    def retention_days(self) -> int | None:
        try:
            found = self._client.get_bucket_worm(oss.GetBucketWormRequest(**self._place))
        except oss.exceptions.OperationError as error:
            said = self.said(error)
            if said is not None and said.code == "NoSuchWORMConfiguration":
                return None
            raise
        return int(found.worm_configuration.retention_period_in_days)

    def said(self, error: BaseException) -> Said | None:
        inner = error.unwrap() if isinstance(error, oss.exceptions.OperationError) else error
        if not isinstance(inner, oss.exceptions.ServiceError):
            return None
        return Said(inner.status_code, inner.code or "", (inner.error_fileds or {}).get("Endpoint") or "")

    def close(self) -> None:
        self.session.close()


def _version(item: Any, size: int, *, deleted: bool) -> VersionItem:
    modified = item.last_modified.timestamp()
    return VersionItem(item.key, item.version_id, bool(item.is_latest), deleted, size, modified)
