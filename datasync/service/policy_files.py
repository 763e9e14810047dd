"""A policy's files: from a directory, and as the engine that decides by them. Parsed once for each digest."""

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from datasync.crypto.hashing import hash_bytes
from datasync.errors import UsageError
from datasync.model.limits import POLICY_BYTES
from datasync.policy.bundle import CEDAR, POLICY, TABLE, complete, parse_bundle
from datasync.policy.decide import PolicyEngine, digest_text
from datasync.policy.shipped import ROLES

ENGINES = 64  # kept parsed, of all datasets that this process decides about


def read_directory(directory: Path) -> dict[str, str]:
    """Return the files of the policy in *directory*, and the built-in ones; other files are left alone."""
    try:
        names = [name for name in os.listdir(directory) if name in (POLICY, ROLES) or name.endswith((CEDAR, TABLE))]
        found = {name: _read(directory / name) for name in sorted(names)}
    except OSError as error:
        raise UsageError(f"policy {directory}: can not be read: {error.strerror}") from None
    if POLICY not in found:
        raise UsageError(f"policy {directory}: expected a file {POLICY}, found none")
    return complete(found)


def _read(path: Path) -> str:
    with open(path, "rb") as file:
        data = file.read(POLICY_BYTES + 1)
    if len(data) > POLICY_BYTES:
        raise UsageError(f"{path}: expected at most {POLICY_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path}: expected UTF-8") from None


def digest_of(files: Mapping[str, str]) -> str:
    """Return the digest of a bundle, in hex: BLAKE3 over its files and the schema."""
    return hash_bytes(digest_text(complete(files).items())).hex()


def engine_of(files: Mapping[str, str]) -> PolicyEngine:
    """Return the engine of *files*; raise `UsageError` for what does not load."""
    return _engine(tuple(sorted(complete(files).items())))


@lru_cache(ENGINES)
def _engine(files: tuple[tuple[str, str], ...]) -> PolicyEngine:
    return PolicyEngine(parse_bundle(dict(files)), digest_of(dict(files)))
