"""Tokens that an owner gives to nodes: `dst1_<id>_<secret>`, for datasets and actions, until a time.

Kept on the control side: who and what, and BLAKE3 of the secret, never the secret; it has 32 random bytes, so a plain
hash is enough and comparing hashes tells nothing. One JSON file under the data directory, replaced whole under a lock;
a running daemon reads it again when it changes. Making and revoking are recorded before they happen. Raises
`NotAuthorized` for a token that is not good, whatever is wrong with it, and `NotFound`, `UsageError` for the owner.
"""

import base64
import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from datasync.config import Config
from datasync.crypto.hashing import hash_bytes
from datasync.crypto.kdf import random_bytes
from datasync.errors import NotAuthorized, NotFound, UsageError
from datasync.format.names import check_name
from datasync.service.authorize import authorize
from datasync.service.daemon_settings import ACTIONS
from datasync.service.principal import ANY, Principal, Right
from datasync.service.record import Recording, recorded

PREFIX = "dst1_"
ID_BYTES = 8
SECRET_BYTES = 32
TOKENS = 10_000  # living and revoked ones
NODE_CHARACTERS = 253  # of a host's name
_TEXT = re.compile(r"dst1_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_KEPT_MS = 90 * 24 * 3600 * 1000  # ended tokens stay listed this long


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token as it is kept; times in ms, `revoked` 0 while it lives."""

    id: str
    node: str
    datasets: tuple[str, ...]
    actions: tuple[str, ...]
    first: int
    last: int
    created: int
    until: int
    revoked: int
    digest: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a new token is for; `ttl` in seconds, snapshots from `first` to `last` (0: any)."""

    node: str
    datasets: tuple[str, ...]
    actions: tuple[str, ...]
    ttl: float
    first: int = 1
    last: int = 0


_tokens = msgspec.json.Decoder(list[Token])


def token_path(config: Config) -> Path:
    """Return where this machine keeps its tokens."""
    return config.evidence.parent / "tokens.json"


def create(config: Config, wanted: Wanted) -> tuple[Token, str]:
    """Make a token; return it and its text, which is shown once; recorded."""
    _check(wanted)
    now = int(time.time() * 1000)
    secret = base64.urlsafe_b64encode(random_bytes(SECRET_BYTES)).decode().rstrip("=")
    token = Token(
        random_bytes(ID_BYTES).hex(),
        wanted.node,
        wanted.datasets,
        wanted.actions,
        wanted.first,
        wanted.last,
        now,
        now + int(wanted.ttl * 1000),
        0,
        hash_bytes(secret.encode()).hex(),
    )
    fields: dict[str, Any] = {"target": wanted.node, "token": token.id, "until": token.until}
    fields["datasets"] = " ".join(wanted.datasets)
    with recorded(config, "token.create", security=True, **fields) as event, _locked(config):
        _allow(config, wanted.datasets, event)
        kept = [item for item in listed(config) if item.until > now - _KEPT_MS]
        if len(kept) >= TOKENS:
            raise UsageError(f"tokens: expected at most {TOKENS}, found {len(kept)}: shorter times end sooner")
        _write(config, [*kept, token])
    return token, f"{PREFIX}{token.id}_{secret}"


def _check(wanted: Wanted) -> None:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,253}", wanted.node):
        raise UsageError(f"node {wanted.node[:40]!r}: expected a name of letters, digits and . _ -")
    for name in wanted.datasets:
        if name != ANY:
            check_name(name, "dataset")
    unknown = sorted(set(wanted.actions) - set(ACTIONS))
    if unknown or not wanted.actions or not wanted.datasets:
        raise UsageError(f"actions: expected some of {', '.join(ACTIONS)}, found {', '.join(unknown) or 'none'}")
    if wanted.first < 1 or (wanted.last and wanted.last < wanted.first):
        raise UsageError(f"snapshots: expected a range like 1-10, found {wanted.first}-{wanted.last}")


def revoke(config: Config, token: str) -> Token:
    """End the token with this id, or its beginning; recorded."""
    match = _TEXT.fullmatch(token)
    wanted = match[1] if match else token
    found = [item for item in listed(config) if item.id.startswith(wanted)]
    if len(wanted) < 4 or not found:
        raise NotFound(f"token {wanted[:16]!r}: there is no such token: see `datasync token list`")
    if len(found) > 1:
        raise UsageError(f"token {wanted!r}: {len(found)} tokens begin so: give more digits")
    one = found[0]
    with recorded(config, "token.revoke", security=True, target=one.node, token=one.id) as event, _locked(config):
        _allow(config, one.datasets, event)
        now = int(time.time() * 1000)
        ended = msgspec.structs.replace(one, revoked=one.revoked or now)
        _write(config, [ended if item.id == one.id else item for item in listed(config)])
        return ended


def _allow(config: Config, datasets: tuple[str, ...], event: Recording) -> None:
    """Let none but who may manage the keys of all *datasets* say who gets them. The site's policy decides; the
    datasets' own do when a key is released.
    """
    for name in datasets:
        authorize(config, "ManageKeys", None if name == ANY else name, event=event)


def shown(config: Config) -> list[Token]:
    """Return all tokens to a person who may manage this daemon."""
    authorize(config, "ManageDaemon")
    return listed(config)


def listed(config: Config) -> list[Token]:
    """Return all tokens, the oldest first."""
    path = token_path(config)
    try:
        return _tokens.decode(path.read_bytes())
    except FileNotFoundError:
        return []
    except msgspec.DecodeError:
        raise UsageError(f"{path}: expected a list of tokens: restore it, or remove it to end all") from None


class TokenBook:
    """The tokens as a daemon looks them up: read again when the file changes."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stamp: tuple[int, int] | None = None
        self._by_id: dict[str, Token] = {}

    def principal(self, text: str, now: int) -> Principal:
        """Return whom the token *text* is for; raise `NotAuthorized`."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise NotAuthorized("token: not one that this daemon gave")
        self._refresh()
        token = self._by_id.get(match[1])
        if token is None or token.digest != hash_bytes(match[2].encode()).hex():
            raise NotAuthorized("token: not one that this daemon gave")
        if token.revoked:
            raise NotAuthorized(f"token {token.id}: it was revoked: ask the owner for a new one")
        if now >= token.until:
            raise NotAuthorized(f"token {token.id}: its time is over: ask the owner for a new one")
        right = Right(token.datasets, token.actions, token.until, token.first, token.last)
        return Principal(token.node, "token", f"token {token.id}", (right,))

    def _refresh(self) -> None:
        try:
            status = os.stat(token_path(self._config))
            stamp = (status.st_ino, status.st_mtime_ns)
        except FileNotFoundError:
            stamp = None
        if stamp != self._stamp:
            self._by_id = {item.id: item for item in listed(self._config)}
            self._stamp = stamp


@contextmanager
def _locked(config: Config) -> Iterator[None]:
    path = token_path(config)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(config: Config, tokens: list[Token]) -> None:
    path = token_path(config)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.encode(tokens))
        file.flush()
        os.fsync(fd)
    aside.replace(path)
