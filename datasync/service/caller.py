"""Who asks, and what is certain of this machine: evidence for a decision, never what a request says of itself.

Persons and nodes are known by keys: the identity's, and the node's own. Region and node come from the policy's entry
for the node's key; region and purpose, where that says nothing, from an offline grant that an owner signed.
"""

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from datasync.config import Config
from datasync.crypto.identity_file import read_identity
from datasync.crypto.signatures import signer_text
from datasync.errors import DatasyncError, NotFound, UsageError, WrongKey
from datasync.policy.bundle import Bundle
from datasync.policy.model import Evidence, Principal, Request
from datasync.repository.grants import check_grant, covers
from datasync.repository.repository import OpenDataset
from datasync.service.node_key import node_key
from datasync.service.session import Session

GRANT_BYTES = 64 * 1024
UNLISTED = "unlisted:"  # no name in a policy holds a colon, so nobody is taken for whom it names


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked besides who: the snapshot, its age, and the signers who approved this very action."""

    action: str
    seq: int | None = None
    age_days: int | None = None
    approvers: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class Claims:
    """Somebody else who asks, and what was verified of them: identities as a policy lists them (`issuer#subject`, a
    signer), what their token or attestation proves, and the address that their connection came from.
    """

    identities: tuple[str, ...]
    mfa: bool = False
    attested: bool = False
    region: str | None = None
    purpose: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: by keys that this machine holds, the identity's signer (None without one) and the node's; or, on the
    control side, somebody else by verified claims.
    """

    signer: bytes | None
    node: bytes
    claims: Claims | None = None

    @property
    def identities(self) -> tuple[str, ...]:
        """What a policy may know this caller as, the first that it lists counts."""
        if self.claims is not None:
            return self.claims.identities
        keys = [self.node] if self.signer is None else [self.signer, self.node]
        return tuple(map(signer_text, keys))


@dataclass(frozen=True, slots=True)
class Held:
    """An offline grant that holds here and now, and its issuer."""

    actions: tuple[str, ...]
    until: int
    region: str
    purpose: str
    issuer: bytes
    covers: bool


def caller_of(where: Session | Config, claims: Claims | None = None) -> Caller:
    """Return who asks: this machine, or with *claims* somebody else."""
    if claims is not None:
        return Caller(None, b"", claims)
    config = where if isinstance(where, Config) else where.config
    try:
        identity = (
            where.identity
            if isinstance(where, Session)
            else read_identity(config.identity, lambda: config.identity_passphrase)
        )
    except (NotFound, WrongKey):
        identity = None
    return Caller(
        identity.signing_key.public if identity is not None else None, node_key(config.evidence.parent).public
    )


def principal_of(bundle: Bundle, caller: Caller) -> Principal:
    """Return whom *bundle* knows *caller* as, else somebody whom it does not name: names alone prove nothing."""
    for identity in caller.identities:
        found = bundle.known_as(identity)
        if found is not None:
            return found
    return Principal("user", f"{UNLISTED}{caller.identities[0] if caller.identities else ''}")


def request_of(
    bundle: Bundle, caller: Caller, asked: Asked, dataset: str | None, now: int, grants: list[Held]
) -> Request:
    """Return the question to the engine, with what is certain of who asks and of their machine."""
    principal, claims = principal_of(bundle, caller), caller.claims
    machine = principal if claims is not None else bundle.known_as(signer_text(caller.node))
    node = machine if machine is not None and machine.kind == "node" else None
    named = bundle.of(node) if node is not None else None
    approvers = asked.approvers | {item.issuer for item in grants if asked.action in item.actions}
    regions = [named.region if named is not None else None, claims.region if claims is not None else None]
    purposes = [claims.purpose if claims is not None else None]
    evidence = Evidence(
        now=now,
        mfa=claims is not None and claims.mfa,
        attested=claims is not None and claims.attested,
        approvals=max(1, len(_people(bundle, principal, approvers))),
        region=next(filter(None, [*regions, *(item.region for item in grants)]), None),
        purpose=next(filter(None, [*purposes, *(item.purpose for item in grants)]), None),
        source=_address(claims.source) if claims is not None and claims.source is not None else None,
        node=node.name if node is not None else None,
        age_days=asked.age_days,
    )
    return Request(principal, asked.action, dataset, evidence)


def _people(bundle: Bundle, principal: Principal, approvers: frozenset[bytes]) -> set[Principal]:
    """Return the users of *bundle* who stand behind an action: who asks, and who signed for it. Keys are no people: two
    of one user's are one, and one that is nobody's counts for nothing (it may be anybody's second).
    """
    known = {bundle.known_as(signer_text(signer)) for signer in approvers} | {principal}
    return {item for item in known if item is not None and item.kind == "user" and bundle.of(item) is not None}


def _address(text: str) -> str | None:
    """Return an address as policies write it: without a zone, an IPv4 one that came over an IPv6 socket as what it is;
    None for what is no address.
    """
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return str(getattr(found, "ipv4_mapped", None) or found)


def grants_held(config: Config, dataset: OpenDataset, caller: Caller, asked: Asked, now: int) -> list[Held]:
    """Return this machine's grants that hold now and are about this; those that do not are no evidence.

    Where several owners have to sign, one owner's word is an approval and no more.
    """
    if caller.claims is not None:
        return []  # another machine's
    held, alone = [], dataset.trusted.root.threshold == 1
    keys = frozenset({caller.node} | ({caller.signer} if caller.signer is not None else set()))
    for path in config.grants:
        try:
            grant, issuer = check_grant(grant_line(path), dataset.id, dataset.trusted.root, keys, now)
        except DatasyncError:
            continue  # for another dataset, another machine, or over: `datasync policy grants` tells why
        if asked.seq is not None and not covers(grant, asked.action, asked.seq):
            continue
        about = alone and covers(grant, asked.action, asked.seq)
        region, purpose = (grant.region, grant.purpose) if alone else ("", "")
        held.append(Held(grant.actions, grant.until, region, purpose, issuer, about))
    return held


def grant_line(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(GRANT_BYTES).decode("ascii", "replace")
    except OSError as error:
        raise UsageError(f"grant {path}: can not be read: {error.strerror}") from None
