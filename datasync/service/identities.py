"""This machine's identity: making one, showing its public halves, keeping it under a passphrase."""

from dataclasses import dataclass

from datasync.crypto.identity import Identity
from datasync.crypto.identity_file import write_identity
from datasync.crypto.signatures import signer_text
from datasync.errors import WrongKey
from datasync.service.record import recorded
from datasync.service.session import Session


@dataclass(frozen=True, slots=True)
class Shown:
    """The public halves of an identity: what others grant to, and who signs."""

    recipient: str
    signer: str
    recovery: str | None
    sealed: bool
    trust: tuple[str, ...]

    @property
    def text(self) -> str:
        """The two lines that an owner needs, as a file holds them."""
        return f"recipient = {self.recipient}\nsigner = {self.signer}\n"


def make(session: Session, passphrase: str | None) -> Shown:
    """Make a new identity, never over an existing one; with *passphrase* its secrets are sealed."""
    identity = Identity.generate()
    if passphrase is not None:
        identity = identity.with_passphrase(passphrase)
    with recorded(session, "key.init", security=True, key=signer_text(identity.signing_key.public)):
        write_identity(session.config.identity, identity)
    return _shown(identity)


def show(session: Session, *, x25519: bool) -> Shown:
    """Return the identity's public halves; *x25519*: the classical recipient alone, where X-Wing can not be used."""
    if session.identity is None:
        raise WrongKey("there is no identity here: run `datasync key init`, or set DATASYNC_IDENTITY")
    return _shown(session.identity, x25519=x25519)


def _shown(identity: Identity, *, x25519: bool = False) -> Shown:
    recipient = identity.key_pair.x25519_recipient if x25519 else identity.recipient
    recovery = identity.recovery.recipient.fingerprint.hex() if identity.recovery else None
    return Shown(
        recipient.text,
        signer_text(identity.signing_key.public),
        recovery,
        identity.sealed is not None,
        identity.trust,
    )


def set_passphrase(session: Session, passphrase: str | None) -> None:
    """Seal the identity's secrets with *passphrase*, or (None) keep them unsealed."""
    identity = session.identity
    if identity is None:
        raise WrongKey("there is no identity here: run `datasync key init`, or set DATASYNC_IDENTITY")
    changed = (
        Identity(identity.seed, identity.signing_seed, identity.trust, identity.recovery)
        if passphrase is None
        else identity.with_passphrase(passphrase)
    )
    with recorded(session, "key.passphrase", security=True):
        session.keep_identity(changed)
