"""The COS driver: store, client (the SDK), credentials. Imports cos-python-sdk-v5."""

from datasync.storage.cos.store import open_cos

__all__ = ["open_cos"]
