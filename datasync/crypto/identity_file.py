"""The identity's file: TOML, 0600, owner-checked after opening, replaced whole.

Raises `NotFound`, `UsageError` (permissions), `WrongKey` (unusable file, wrong or missing passphrase). The text is a
secret, so no message repeats any of it.
"""

import os
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datasync.crypto.identity import SIGNING_SEED_BYTES, Identity, PublicIdentity, SealedSecrets
from datasync.crypto.kdf import Argon2Cost
from datasync.crypto.recipients import KEY_PAIR_SEED_BYTES, MLKEM_SEED_BYTES, Recipient
from datasync.crypto.signatures import parse_signer, signer_text
from datasync.errors import IntegrityError, NotFound, UsageError, WrongKey

IDENTITY_LIMIT_BYTES = 1024 * 1024
SECRET_BYTES = KEY_PAIR_SEED_BYTES + SIGNING_SEED_BYTES
Passphrase = Callable[[], str | None]


def write_identity(path: Path, identity: Identity) -> None:
    """Create the file at *path* (0600), never over an existing one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        _write(path, identity)
    except FileExistsError:
        raise UsageError(f"identity {path}: expected no file there, found one: it is not overwritten") from None


def replace_identity(path: Path, identity: Identity) -> None:
    """Replace the file at *path*, all or nothing; what is sealed stays sealed."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.unlink(missing_ok=True)
    _write(aside, identity)
    os.replace(aside, path)


def _write(path: Path, identity: Identity) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(_render(identity))
        file.flush()
        os.fsync(fd)


def _render(identity: Identity) -> str:
    lines = [
        "# datasync identity: whoever has this file reads and signs as you. Keep it secret, keep a copy.",
        f'recipient = "{identity.recipient.text}"',
        f'signer = "{signer_text(identity.signing_key.public)}"',
        *(_sealed_lines(identity.sealed) if identity.sealed else _plain_lines(identity)),
        f"trust = [{', '.join(f'{item!r}' for item in identity.trust)}]",
    ]
    if identity.recovery is not None:
        lines.append(f"recovery = ['{identity.recovery.recipient.text}', '{signer_text(identity.recovery.signer)}']")
    return "\n".join(lines) + "\n"


def _plain_lines(identity: Identity) -> list[str]:
    return [
        f'mlkem_seed = "{identity.seed[:MLKEM_SEED_BYTES].hex()}"',
        f'x25519 = "{identity.seed[MLKEM_SEED_BYTES:].hex()}"',
        f'ed25519 = "{identity.signing_seed.hex()}"',
    ]


def _sealed_lines(sealed: SealedSecrets) -> list[str]:
    cost = sealed.cost
    return [
        f"argon2id = ['{sealed.salt.hex()}', {cost.memory}, {cost.passes}, {cost.lanes}]",
        f'sealed = "{sealed.box.hex()}"',
    ]


def read_identity(path: Path, passphrase: Passphrase = lambda: None) -> Identity:
    """Return the identity in *path*; *passphrase* is called when it is sealed."""
    text = _read(path)
    try:
        fields = tomllib.loads(text.decode())
        identity = _unsealed(fields) if "sealed" not in fields else _opened(fields, path, passphrase)
        trust = tuple(str(item) for item in fields.get("trust", ()))
        identity = Identity(identity.seed, identity.signing_seed, trust, _recovery(fields), identity.sealed)
        lengths = len(identity.seed), len(identity.signing_seed)
    except (ValueError, KeyError, TypeError, UsageError):  # the parser's own words would show the text
        lengths = (0, 0)
    if lengths != (KEY_PAIR_SEED_BYTES, SIGNING_SEED_BYTES):
        raise WrongKey(
            f"identity {path}: expected the TOML keys mlkem_seed, x25519 and ed25519 in hex, found something else"
        )
    return identity


def _unsealed(fields: dict[str, Any]) -> Identity:
    seed = bytes.fromhex(fields["mlkem_seed"]) + bytes.fromhex(fields["x25519"])
    return Identity(seed, bytes.fromhex(fields["ed25519"]))


def _opened(fields: dict[str, Any], path: Path, passphrase: Passphrase) -> Identity:
    salt, memory, passes, lanes = fields["argon2id"]
    sealed = SealedSecrets(
        bytes.fromhex(salt), Argon2Cost(int(memory), int(passes), int(lanes)), bytes.fromhex(fields["sealed"])
    )
    secret = passphrase()
    if secret is None:
        raise WrongKey(f"identity {path}: it is sealed with a passphrase: set DATASYNC_IDENTITY_PASSPHRASE")
    try:
        secrets = sealed.open(parse_signer(fields["signer"]), secret)
    except (IntegrityError, WrongKey) as error:
        raise type(error)(f"identity {path}: {error}") from None
    if len(secrets) != SECRET_BYTES:
        raise ValueError("secrets of another length")
    identity = Identity.from_secrets(secrets)
    return Identity(identity.seed, identity.signing_seed, sealed=sealed)


def _recovery(fields: dict[str, Any]) -> PublicIdentity | None:
    found = fields.get("recovery")
    if found is None:
        return None
    recipient, signer = found
    return PublicIdentity(Recipient.parse(recipient), parse_signer(signer))


def _read(path: Path) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise NotFound(
            f"identity {path}: expected the file, found none: run `datasync init`, or set DATASYNC_IDENTITY"
        ) from None
    except OSError as error:
        raise UsageError(f"identity {path}: cannot be opened: {error.strerror}") from None
    with os.fdopen(fd, "rb") as file:
        _check_owner(path, os.fstat(fd))
        return file.read(IDENTITY_LIMIT_BYTES)


def _check_owner(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"identity {path}: expected a regular file")
    if status.st_uid != os.geteuid():
        raise UsageError(f"identity {path}: expected to be owned by uid {os.geteuid()}, found {status.st_uid}")
    if status.st_mode & 0o077:
        raise UsageError(
            f"identity {path}: expected mode 0600, found {status.st_mode & 0o777:04o}: run chmod 600 {path}"
        )
