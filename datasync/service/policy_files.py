"""A policy's files: from a directory, and as the engine that decides by them. Parsed once for each digest."""

import os
import stat
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from datasync.crypto.hashing import hash_bytes
from datasync.crypto.signatures import parse_signer, signer_text
from datasync.errors import UsageError
from datasync.model.limits import POLICY_BYTES, POLICY_FILES
from datasync.policy.bundle import CEDAR, POLICY, TABLE, complete, parse_bundle
from datasync.policy.decide import PolicyEngine, digest_text
from datasync.policy.shipped import GUARDS, ROLES, shipped

ENGINES = 64  # kept parsed, of all datasets that this process decides about


def read_directory(directory: Path) -> dict[str, str]:
    """Return the files of the policy in *directory*, and the built-in ones; other files are left alone."""
    try:
        names = [name for name in os.listdir(directory) if is_policy_file(name)]
        if len(names) > POLICY_FILES:
            raise UsageError(f"policy {directory}: expected at most {POLICY_FILES} files, found {len(names)}")
        found = {name: _read(directory / name) for name in sorted(names)}
    except OSError as error:
        raise UsageError(f"policy {directory}: can not be read: {error.strerror}") from None
    for name in (GUARDS, ROLES):
        if found.get(name, shipped(name)) != shipped(name):
            raise UsageError(
                f"policy {directory}: {name} is built in, and this one would replace it: give it another name"
            )
    if POLICY not in found:
        raise UsageError(f"policy {directory}: expected a file {POLICY}, found none")
    return complete(found)


def is_policy_file(name: str) -> bool:
    """Tell whether a file of this name belongs to a policy."""
    return name in (POLICY, ROLES) or name.endswith((CEDAR, TABLE))


def _read(path: Path) -> str:
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a FIFO would be waited for, or read as empty
            raise UsageError(f"{path}: expected a file")
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
    """Return the engine of *files*; raise `UsageError` for what does not load, an identity that nobody can have
    included: who is misspelt escapes what is denied to them.
    """
    return _engine(tuple(sorted(complete(files).items())))


@lru_cache(ENGINES)
def _engine(files: tuple[tuple[str, str], ...]) -> PolicyEngine:
    bundle = parse_bundle(dict(files))
    for principal in bundle.principals():
        who = bundle.of(principal)
        for identity in who.identities if who is not None else ():
            _check_identity(f"{POLICY}: {principal}", identity)
    return PolicyEngine(bundle, digest_of(dict(files)))


def _check_identity(whose: str, identity: str) -> None:
    if "#" in identity:
        return  # an issuer and a subject: whatever these are
    try:
        printed: str | None = signer_text(parse_signer(identity))
    except UsageError:
        printed = None
    if printed != identity:
        raise UsageError(f"{whose}: expected a signer (dss1…) or ISSUER#SUBJECT as it is printed, found {identity!r}")
