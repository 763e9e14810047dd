"""The trust root's body (docs/format.md, section 6)."""

from typing import Annotated

import msgspec

from datasync.errors import FormatError
from datasync.format.encoding import U8, U63, Id, Record, decode, encode
from datasync.model.ids import ZERO_ID
from datasync.model.limits import PRINCIPALS, SIGNATURES

OWNER = 1
WRITER = 2
PUSH_ONLY = 4
TAGGER = 8
AUDITOR = 16
ALL_ROLES = OWNER | WRITER | PUSH_ONLY | TAGGER | AUDITOR


class Principal(Record, frozen=True):
    """One signer and what it may do; times in ms, `removed` is the last snapshot accepted from it."""

    signer: Id
    roles: U8
    label: bytes
    since: U63
    until: U63
    removed: tuple[U63, Id] | None


class TrustRoot(Record, frozen=True):
    """Who may own, write, tag and audit; `dataset` and `previous` are zero in version 1."""

    version: U63
    dataset: Id
    previous: Id
    created: U63
    expires: U63
    threshold: Annotated[int, msgspec.Meta(ge=1, le=SIGNATURES)]
    principals: Annotated[tuple[Principal, ...], msgspec.Meta(min_length=1, max_length=PRINCIPALS)]

    def with_role(self, roles: int, *, removed: bool = False, at: int = 0) -> dict[bytes, Principal]:
        """Return the principals that have any of *roles*, by signer; those that were removed only when asked for,
        and none whose time had ended *at* that time (ms).
        """
        return {
            item.signer: item
            for item in self.principals
            if item.roles & roles and (removed or item.removed is None) and not (item.until and at >= item.until)
        }


def read_trust(body: bytes, what: str) -> TrustRoot:
    """Return the trust root in *body*."""
    root = decode(TrustRoot, body, what)
    signers = [item.signer for item in root.principals]
    if signers != sorted(set(signers)):
        raise FormatError(f"{what}: expected principals sorted by signer, each once")
    if (
        root.version < 1
        or (root.version == 1) != (root.dataset == ZERO_ID)
        or (root.version == 1) != (root.previous == ZERO_ID)
    ):
        raise FormatError(f"{what}: expected zero dataset id and previous hash in version 1 and only there")
    if any(item.roles & ~ALL_ROLES for item in root.principals):
        raise FormatError(f"{what}: a principal has roles that version 1 does not know")
    return root


def write_trust(root: TrustRoot) -> bytes:
    """Return the body of *root*."""
    return encode(root)
