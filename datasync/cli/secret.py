"""Secrets on a terminal and in files: asked twice and not shown; files are 0600 and never over an existing one."""

import os
import sys
from pathlib import Path

import click

from datasync.errors import UsageError


def ask_secret(what: str) -> str | None:
    """Ask for a secret without showing it; None off a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    text: str = click.prompt(what, hide_input=True, err=True)
    return text


def ask_new_secret(what: str) -> str:
    """Ask twice for a new secret; raise `UsageError` off a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{what}: expected a terminal to ask on, or DATASYNC_IDENTITY_PASSPHRASE: secrets are no flags"
        )
    text: str = click.prompt(what, hide_input=True, confirmation_prompt=True, err=True)
    return text


def write_secret_file(path: Path, data: bytes) -> None:
    """Create *path* (0600) with *data*; raise `UsageError` when it is there."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UsageError(f"{path}: expected no file there, found one: it is not overwritten") from None
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)


def check_free(*paths: Path) -> None:
    """Raise `UsageError` unless each of *paths* can be made: before something is done that is told in them alone."""
    for path in paths:
        if paths.count(path) > 1:
            raise UsageError(f"{path}: expected names for {len(paths)} files, found one name: choose another")
        if path.exists():
            raise UsageError(f"{path}: expected no file there, found one: it is not overwritten")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise UsageError(f"{path}: expected a directory that can be written, found none: nothing was done")
