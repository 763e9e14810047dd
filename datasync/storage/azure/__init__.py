"""The Azure Blob Storage driver: store, access (who asks), signing (with a key), errors (what answers mean)."""

from datasync.storage.azure.access import AzureOptions
from datasync.storage.azure.store import AzureStore

__all__ = ["AzureOptions", "AzureStore"]
