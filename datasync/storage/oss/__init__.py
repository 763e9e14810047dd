"""The OSS driver: store, over one of two SDKs (oss2_client, v2_client), endpoint, credentials. Imports one of them."""

from datasync.storage.oss.store import open_oss

__all__ = ["open_oss"]
