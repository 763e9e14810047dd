"""An identity: what one person or machine reads with (X-Wing) and signs with (Ed25519), and the datasets it trusts.

Its secrets may be sealed with a passphrase (Argon2id); its public halves, the trusted dataset ids and the public halves
of its recovery identity stay readable. Secrets are never shown by repr. `crypto.identity_file` is its file.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from datasync.crypto.aead import open_box, seal_box
from datasync.crypto.kdf import Argon2Cost, derive, passphrase_key, random_bytes
from datasync.crypto.recipients import KEY_PAIR_SEED_BYTES, KeyPair, Recipient
from datasync.crypto.signatures import SigningKey
from datasync.errors import IntegrityError, WrongKey

SIGNING_SEED_BYTES = 32
RECOVERY_SEED_BYTES = 32
SALT_BYTES = 32


@dataclass(frozen=True, slots=True)
class PublicIdentity:
    """What others need to know of an identity: what keys are wrapped to, and who signs."""

    recipient: Recipient
    signer: bytes


@dataclass(frozen=True, slots=True, repr=False)
class SealedSecrets:
    """An identity's secrets under a passphrase."""

    salt: bytes
    cost: Argon2Cost
    box: bytes

    @classmethod
    def seal(cls, secrets: bytes, signer: bytes, passphrase: str) -> "SealedSecrets":
        """Seal *secrets* of the identity that signs as *signer*."""
        salt, cost = random_bytes(SALT_BYTES), Argon2Cost()
        return cls(salt, cost, seal_box(passphrase_key(passphrase, salt, cost), "identity", signer, secrets))

    def open(self, signer: bytes, passphrase: str) -> bytes:
        """Return the secrets; raise `WrongKey`."""
        try:
            return open_box(passphrase_key(passphrase, self.salt, self.cost), "identity", signer, self.box)
        except IntegrityError as error:
            if "expected Argon2id" in str(error):
                raise
            raise WrongKey("the passphrase does not open this identity") from None


@dataclass(frozen=True, repr=False)
class Identity:
    """The raw secrets, the dataset ids that this identity was told to trust, and who recovers it."""

    seed: bytes
    signing_seed: bytes
    trust: tuple[str, ...] = ()
    recovery: PublicIdentity | None = None
    sealed: SealedSecrets | None = None

    @classmethod
    def generate(cls) -> "Identity":
        """Return a fresh identity."""
        return cls(random_bytes(KEY_PAIR_SEED_BYTES), random_bytes(SIGNING_SEED_BYTES))

    @classmethod
    def from_recovery(cls, seed: bytes) -> "Identity":
        """Return the recovery identity that the 32 bytes of a kit make."""
        reading = derive(seed, b"datasync/v1/recovery/reading", KEY_PAIR_SEED_BYTES)
        return cls(reading, derive(seed, b"datasync/v1/recovery/signing", SIGNING_SEED_BYTES))

    @classmethod
    def from_secrets(cls, secrets: bytes) -> "Identity":
        """Return the identity of these secrets, as `secrets` gives them."""
        return cls(secrets[:KEY_PAIR_SEED_BYTES], secrets[KEY_PAIR_SEED_BYTES:])

    @property
    def secrets(self) -> bytes:
        """Both seeds, one after the other."""
        return self.seed + self.signing_seed

    @cached_property
    def key_pair(self) -> KeyPair:
        """What opens slots."""
        return KeyPair(self.seed)

    @cached_property
    def signing_key(self) -> SigningKey:
        """What signs snapshots, keysets and trust roots."""
        return SigningKey(self.signing_seed)

    @property
    def recipient(self) -> Recipient:
        """The public half that others grant access to."""
        return self.key_pair.recipient

    @property
    def public(self) -> PublicIdentity:
        """Both public halves."""
        return PublicIdentity(self.recipient, self.signing_key.public)

    def with_passphrase(self, passphrase: str) -> "Identity":
        """Return the same identity, to be kept under *passphrase*."""
        return replace(self, sealed=SealedSecrets.seal(self.secrets, self.signing_key.public, passphrase))

    def trusting(self, dataset: str) -> "Identity":
        """Return the same identity, which also trusts *dataset*."""
        return replace(self, trust=tuple(dict.fromkeys((*self.trust, dataset))))

    def recovered_by(self, recovery: PublicIdentity) -> "Identity":
        """Return the same identity, with *recovery* as who recovers it."""
        return replace(self, recovery=recovery)
