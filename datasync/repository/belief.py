"""Who opens a repository, and which datasets are believed: this identity founded them, was told to trust them, or a
person says so now. Rules over what was read and verified already; raises `UntrustedError`, `WrongKey`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from datasync.crypto.identity import Identity
from datasync.errors import UntrustedError
from datasync.format.trust import OWNER, PUSH_ONLY
from datasync.repository.evidence import Evidence
from datasync.repository.holders import Secrets
from datasync.repository.keysets import Closed
from datasync.repository.trust import Trusted

Ask = Callable[[str, str], bool]
"""Asks a person whether a dataset (name, id in hex) is to be trusted."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who opens the repository: what opens slots; dataset ids told to trust; and whom to ask."""

    secrets: Secrets = field(repr=False)
    trust: frozenset[str] = frozenset()
    ask: Ask | None = None

    @property
    def identity(self) -> Identity | None:
        """The identity, if there is one."""
        return self.secrets.identity


def check_trust_time(holder: Holder, name: str, trusted: Trusted, now: int) -> None:
    """Refuse a trust root that its owners let end; an owner opens it, to renew it."""
    expires, identity = trusted.root.expires, holder.identity
    if not expires or now < expires or (identity and identity.signing_key.public in trusted.root.with_role(OWNER)):
        return
    ended = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(expires / 1000))
    raise UntrustedError(
        f"dataset {name!r}: its trust root ended at {ended}: an owner renews it: `datasync key owners --expires`"
    )


def may_deposit(holder: Holder, dataset: bytes, trusted: Trusted, now: int) -> bool:
    """Tell whether the holder is a push-only writer, who has no slot."""
    identity = holder.identity
    found = trusted.root.with_role(PUSH_ONLY).get(identity.signing_key.public) if identity else None
    if found is not None and found.until and now >= found.until:
        ended = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(found.until / 1000))
        raise Closed(f"dataset {dataset.hex()[:16]}: access ended at {ended}: ask the owner for a new grant")
    return found is not None


def was_told(holder: Holder, dataset: bytes, name: str, evidence: Evidence) -> bool:
    """Tell whether a person said that *name* is this dataset: who has no slot can not read its name, and that the
    identity trusts it says no name.
    """
    if evidence.known.pinned:
        return evidence.known.name == name
    return dataset.hex() in holder.trust


def believe(holder: Holder, dataset: bytes, name: str, trusted: Trusted, evidence: Evidence) -> None:
    """Pin the dataset when somebody vouches for its trust root; raise `UntrustedError`."""
    identity = holder.identity
    told = holder.trust | frozenset(identity.trust if identity else ())
    own = identity is not None and identity.signing_key.public in trusted.founders
    if evidence.known.pinned and evidence.known.name == name:
        return
    if own or dataset.hex() in told or (holder.ask is not None and holder.ask(name, dataset.hex())):
        evidence.pin(name)
        return
    raise UntrustedError(
        f"dataset {name!r}: nothing on this machine vouches for its trust root {dataset.hex()}: "
        "compare that with what the owner told you, then pass --trust or set DATASYNC_TRUST"
    )
