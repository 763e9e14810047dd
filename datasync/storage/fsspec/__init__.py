"""The driver for any other scheme that fsspec knows: store (files as objects), filesystem (opening, sftp's ways)."""

from datasync.storage.fsspec.filesystem import opener
from datasync.storage.fsspec.store import FilesystemStore
from datasync.storage.location import StoreUrl


def open_filesystem(where: StoreUrl) -> FilesystemStore:
    """Return the store at *where*; connects with the first request."""
    return FilesystemStore(where, opener(where))


__all__ = ["FilesystemStore", "open_filesystem"]
