"""The S3 driver: store (requests, answers), client (the SDK), errors (what failures mean). Imports the SDK."""

from datasync.storage.s3.client import S3Credentials, S3Options
from datasync.storage.s3.store import S3Store

__all__ = ["S3Credentials", "S3Options", "S3Store"]
