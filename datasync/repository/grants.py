"""Offline grants: issued by an owner, checked with nothing but the trust root and this machine's own key.

A grant carries no key: those come with slots. Raises `NotAuthorized` for a grant that does not hold here or now,
`IntegrityError` for one that was changed.
"""

import time

from datasync.crypto.signatures import SigningKey, signer_text
from datasync.errors import NotAuthorized
from datasync.format.grant import KIND, Grant, read_grant, signed_grant, write_grant
from datasync.format.signed import Signature
from datasync.format.trust import OWNER, TrustRoot
from datasync.repository.trust import check_signatures

AHEAD_MS = 3600 * 1000  # how far an owner's clock may be ahead


def issue(grant: Grant, issuer: SigningKey) -> str:
    """Return *grant* as the line that its machine gets."""
    return signed_grant(grant, Signature(issuer.public, issuer.sign(KIND, write_grant(grant))))


def check_grant(text: str, dataset: bytes, root: TrustRoot, nodes: frozenset[bytes], now: int) -> tuple[Grant, bytes]:
    """Return the grant in *text* and who issued it: for *dataset*, for one of *nodes*, in force at *now* (ms)."""
    grant, signed = read_grant(text, "grant")
    issuer = check_signatures(signed, KIND, "grant")[0]
    what = f"grant of {signer_text(issuer)[:16]}…"
    if grant.dataset != dataset:
        raise NotAuthorized(f"{what}: it is for dataset {grant.dataset.hex()[:16]}, not for {dataset.hex()[:16]}")
    if issuer not in root.with_role(OWNER, at=now):
        raise NotAuthorized(f"{what}: its issuer does not own dataset {dataset.hex()[:16]}")
    if grant.node not in nodes:
        raise NotAuthorized(f"{what}: it is bound to {signer_text(grant.node)[:16]}…, which is another machine's key")
    if grant.issued > now + AHEAD_MS:
        raise NotAuthorized(f"{what}: it was issued at {_time(grant.issued)}, which is to come: a clock is wrong")
    if now >= grant.until:
        raise NotAuthorized(f"{what}: it ended at {_time(grant.until)}: ask for a new one")
    return grant, issuer


def covers(grant: Grant, action: str, seq: int | None) -> bool:
    """Tell whether *grant* is about *action* and the snapshot *seq* (None: no snapshot in particular)."""
    if action not in grant.actions:
        return False
    if seq is None:
        return True
    return grant.first <= seq and not (grant.last and seq > grant.last)


def _time(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(ms / 1000))
