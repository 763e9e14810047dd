"""The Google Cloud Storage driver: store, credentials (the vendor's chain), errors (what answers mean)."""

from datasync.storage.gcs.credentials import GcsOptions
from datasync.storage.gcs.store import GcsStore

__all__ = ["GcsOptions", "GcsStore"]
