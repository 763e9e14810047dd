"""The S3 driver: store (requests, answers), plain (our own client, over wire and sigv4), client (the SDK, loaded
when it is needed), errors (what failures mean), extras (versions, locks, signed requests).
"""

from datasync.storage.s3.options import S3Credentials, S3Options
from datasync.storage.s3.store import S3Store

__all__ = ["S3Credentials", "S3Options", "S3Store"]
