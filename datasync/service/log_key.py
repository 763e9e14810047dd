"""The audit log's own key, not the data's: kept beside the evidence like the node's (0600, made at first use)."""

from pathlib import Path

from datasync.crypto.notes import NoteKey
from datasync.service.seed_file import seed_at

NAME = "log.key"


def log_key(directory: Path) -> NoteKey:
    """Return the key in *directory*, made at first use."""
    return NoteKey(seed_at(directory / NAME))


def index_key(directory: Path) -> bytes:
    """Return the key that hides persons in the names of their key files."""
    return seed_at(directory / "people.key")
