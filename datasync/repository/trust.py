"""Trust roots: making the first one, and following the chain from the pinned one (docs/format.md, section 6).

The dataset id is the hash of version 1, so whoever knows the id knows whom to believe. Raises `IntegrityError` by name.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from datasync.crypto.hashing import hash_bytes
from datasync.crypto.signatures import SigningKey, signer_text, verify
from datasync.errors import IntegrityError, NotFound, RollbackError
from datasync.format import signed as plain
from datasync.format.names import dataset_prefix
from datasync.format.signed import Signature, Signed, read_plain, read_signed, write_plain, write_signed
from datasync.format.trust import OWNER, PUSH_ONLY, TAGGER, WRITER, Principal, TrustRoot, read_trust, write_trust
from datasync.model.ids import ZERO_ID
from datasync.model.limits import KIB, PLAIN_PAYLOAD_BYTES
from datasync.repository import numbered
from datasync.repository.local import LocalCopies
from datasync.storage.protocol import ObjectStore

PLAIN_BYTES = 2 * PLAIN_PAYLOAD_BYTES + 64 * KIB


class Unlisted(IntegrityError):
    """A whole, signed object whose signer may not sign it: it stands in the way until an owner settles it."""


@dataclass(frozen=True, slots=True)
class Trusted:
    """The newest trust root, its hash, and who owned the dataset first."""

    root: TrustRoot
    digest: bytes
    founders: frozenset[bytes]

    def require(self, signers: list[bytes], roles: int, what: str, *, at: int, removed: bool = False) -> None:
        """Refuse an object made *at* that time (ms, as signed) which none of *signers* might sign then;
        *removed*: may sign, or might before it was removed.
        """
        allowed = self.root.with_role(roles, removed=removed, at=at)
        if not any(signer in allowed for signer in signers):
            names = ", ".join(signer_text(signer)[:16] for signer in signers)
            raise Unlisted(
                f"{what}: signed by {names}…, whom the trust root does not list for it: an owner settles that: "
                "`datasync key settle`"
            )


WRITERS = WRITER | PUSH_ONLY
TAGGERS = OWNER | WRITER | TAGGER


def first_trust_root(owner: SigningKey, others: Iterable[bytes], created: int) -> bytes:
    """Return trust root version 1 of a dataset that *owner* makes; *others* are the signers of further owners."""
    signers = sorted({owner.public, *others})
    principals = tuple(Principal(signer, OWNER | WRITER, b"", created, 0, None) for signer in signers)
    body = write_trust(TrustRoot(1, ZERO_ID, ZERO_ID, created, 0, 1, principals))
    return write_plain(plain.TRUST, write_signed(body, [Signature(owner.public, owner.sign("trust", body))]))


def check_signatures(signed: Signed, kind: str, what: str) -> list[bytes]:
    """Return the signers of *signed*; refuse the whole when one signature does not hold."""
    for item in signed.signatures:
        try:
            verify(item.signer, kind, signed.body, item.signature)
        except IntegrityError as error:
            raise IntegrityError(f"{what}: {error}") from None
    return [item.signer for item in signed.signatures]


def require_threshold(signers: list[bytes], root: TrustRoot, what: str, *, at: int) -> None:
    """Refuse unless enough who owned by *root* at that time (ms, as signed) are among *signers*."""
    owners = root.with_role(OWNER, at=at)
    found = sum(signer in owners for signer in signers)
    if found < root.threshold:
        raise IntegrityError(f"{what}: expected the signatures of {root.threshold} owners, found {found}")


def load_trust(store: ObjectStore, copies: LocalCopies, dataset: bytes, newest: int | None = None) -> Trusted:
    """Follow the chain of *dataset* to its newest version, or to version *newest* when that is known."""
    prefix = dataset_prefix(dataset) + "trust/"
    listed = newest is None
    if newest is None:
        found = numbered.newest(store, prefix)
        if found is None:
            raise NotFound(f"dataset {dataset.hex()[:16]}: no trust root in the repository")
        newest = found.number
    trusted: Trusted | None = None
    for version in range(1, newest + 1):
        fetch = partial(numbered.read_number, store, prefix, version, limit=PLAIN_BYTES)
        follow = partial(_next, trusted, version=version, dataset=dataset)
        try:
            trusted = copies.get(f"{prefix}{version}", fetch, follow)
        except NotFound as error:
            if not listed:
                raise
            raise IntegrityError(f"{error}: the store lists trust root {newest}, so it was deleted") from None
    if trusted is None:
        raise RollbackError(f"dataset {dataset.hex()[:16]}: no trust root in the repository")
    return trusted


def _next(before: Trusted | None, data: bytes, version: int, dataset: bytes) -> Trusted:
    what = f"trust root {version} of dataset {dataset.hex()[:16]}"
    digest = hash_bytes(data)
    if before is None and digest != dataset:
        raise IntegrityError(
            f"{what}: its bytes hash to {digest.hex()[:16]}, not to the dataset's id: the object was changed"
        )
    signed = read_signed(read_plain(plain.TRUST, data, what), what)
    signers = check_signatures(signed, "trust", what)
    root = read_trust(signed.body, what)
    if root.version != version:
        raise IntegrityError(f"{what}: it says version {root.version}")
    if before is None:
        require_threshold(signers, root, what, at=root.created)
        return Trusted(root, digest, frozenset(root.with_role(OWNER)))
    if root.previous != before.digest or root.dataset != dataset:
        raise IntegrityError(f"{what}: it does not follow version {version - 1} of this dataset")
    require_threshold(signers, before.root, what, at=root.created)
    return Trusted(root, digest, before.founders)
