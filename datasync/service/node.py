"""Checks of a node that are no matter of directories: identity, kernel, limits, versions. Each is a `Check`."""

import os
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from datasync import __version__
from datasync.cache.kernel import has_openat2
from datasync.config import Config
from datasync.crypto.identity_file import read_identity
from datasync.errors import DatasyncError, NotFound

OPEN_FILES = 1_024  # transfers, directories held open and the cache's own files stay far below
REQUIRED = ("blake3", "click", "cryptography", "msgspec", "pyfastcdc", "xxhash", "zstandard")
OPTIONAL = ("boto3", "oss2", "cos-python-sdk-v5", "fsspec", "aiohttp", "watchdog")


@dataclass(frozen=True, slots=True)
class Check:
    """One check: `ok` False is to be mended; *note* True is worth knowing and no fault."""

    name: str
    ok: bool
    found: str
    note: bool = False


def check_node(config: Config) -> Iterator[Check]:
    """Yield every check."""
    yield _identity(config)
    yield _openat2()
    yield _open_files()
    yield Check("python", sys.version_info >= (3, 11), f"Python {sys.version.split()[0]}, Linux {os.uname().release}")
    yield _libraries()


def _identity(config: Config) -> Check:
    try:
        identity = read_identity(config.identity, lambda: config.identity_passphrase)
    except NotFound as error:
        if config.passphrase is not None:
            return Check("identity", True, "none; a passphrase is set", note=True)
        return Check("identity", True, str(error), note=True)
    except DatasyncError as error:
        return Check("identity", False, str(error))
    return Check("identity", True, f"{config.identity}: {identity.recipient.text[:16]}…, mode and owner are right")


def _openat2() -> Check:
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        there = has_openat2(fd)
    finally:
        os.close(fd)
    text = "there" if there else "not there: names are placed component by component, safely and more slowly"
    return Check("openat2", True, text, note=not there)


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= OPEN_FILES:
        return Check("open files", True, "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft:,}")
    return Check("open files", False, f"at most {soft:,} (hard limit {hard:,}): run `ulimit -n {OPEN_FILES}` before")


def _libraries() -> Check:
    versions = {name: _version(name) for name in (*REQUIRED, *OPTIONAL)}
    missing = [name for name in REQUIRED if versions[name] is None]
    if missing:
        return Check("libraries", False, f"not installed: {', '.join(missing)}: install gpu-datasync again")
    there = [f"{name} {version}" for name, version in versions.items() if version is not None]
    return Check("libraries", True, f"datasync {__version__}, " + ", ".join(there))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
