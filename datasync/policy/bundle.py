"""A bundle: the files of one policy, parsed strictly (docs/policy.md has the TOML).

`policy.toml` names principals, datasets and grants; `*.cedar` adds statements; `*.table.toml` holds decision tables
(`datasync.policy.tables`). Built-in roles and denials are part of every bundle, so a published one means the same for
ever. Every name that a grant uses has to be declared: a misspelt one is refused here. Raises `UsageError`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated

import msgspec

from datasync.errors import UsageError
from datasync.model.limits import POLICY_BYTES, POLICY_FILES
from datasync.policy.model import ACTIONS, KINDS, Evidence, Principal, nfc
from datasync.policy.shipped import GUARDS, ROLES, shipped
from datasync.policy.toml import check_visible, read_toml

POLICY = "policy.toml"
TABLE = ".table.toml"
CEDAR = ".cedar"
NAME_CHARACTERS = 256
EVERYTHING = "*"

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARACTERS)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base: an unknown key is refused."""


class Who(_Part, frozen=True):
    """A user, node or job: the verified identities that it is known by (`dss1…`, or issuer and subject of a token),
    its groups, and a node's region.
    """

    identities: tuple[str, ...] = ()
    groups: tuple[Name, ...] = ()
    region: str | None = None


class GroupPart(_Part, frozen=True):
    """A group, which may be in others."""

    groups: tuple[Name, ...] = ()


class DatasetPart(_Part, frozen=True):
    """What a policy knows of a dataset."""

    tags: tuple[Name, ...] = ()
    classification: str | None = None
    owner: str | None = None
    region: str | None = None
    allowed_regions: tuple[Name, ...] | None = None
    purposes: tuple[Name, ...] | None = None
    frozen: bool = False
    two_person: bool = False
    retention_days: Count | None = None


class RolePart(_Part, frozen=True):
    """A role: what it may do."""

    actions: tuple[str, ...]


class Rule(_Part, frozen=True):
    """A grant or a denial: who, what, on which datasets, while which conditions hold."""

    id: Name
    to: tuple[str, ...] = (EVERYTHING,)
    on: tuple[str, ...] = (EVERYTHING,)
    role: str | None = None
    actions: tuple[str, ...] = ()
    since: datetime | None = msgspec.field(default=None, name="from")
    until: datetime | None = None
    regions: tuple[Name, ...] = ()
    purposes: tuple[Name, ...] = ()
    nodes: tuple[Name, ...] = ()
    networks: tuple[Name, ...] = ()
    mfa: bool = False
    attested: bool = False
    reason: str = ""


class PolicyFile(_Part, frozen=True):
    """policy.toml as it is written."""

    users: dict[Name, Who] = {}
    nodes: dict[Name, Who] = {}
    jobs: dict[Name, Who] = {}
    groups: dict[Name, GroupPart] = {}
    datasets: dict[Name, DatasetPart] = {}
    roles: dict[Name, RolePart] = {}
    grant: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class Bundle:
    """A parsed bundle: `files` are what is published and hashed, `cedar` the statements in Cedar by file."""

    files: Mapping[str, str]
    policy: PolicyFile
    roles: Mapping[str, tuple[str, ...]]
    cedar: tuple[str, ...]

    def principals(self) -> list[Principal]:
        """Return everybody whom the bundle names."""
        policy = self.policy
        kinds = (("user", policy.users), ("node", policy.nodes), ("job", policy.jobs))
        return [Principal(kind, name) for kind, named in kinds for name in named]

    def of(self, principal: Principal) -> Who | None:
        """Return what the bundle says of *principal*."""
        policy = self.policy
        return {"user": policy.users, "node": policy.nodes, "job": policy.jobs}[principal.kind].get(principal.name)

    def known_as(self, identity: str) -> Principal | None:
        """Return who has the verified *identity*."""
        for principal in self.principals():
            who = self.of(principal)
            if who is not None and identity in who.identities:
                return principal
        return None


def of_machine(bundle: Bundle, principal: Principal, evidence: Evidence) -> Evidence:
    """Return *evidence* with what *bundle* itself says of a node that asks: which one it is, and its region."""
    who = bundle.of(principal) if principal.kind == "node" else None
    if who is None:
        return evidence
    return replace(evidence, node=evidence.node or principal.name, region=evidence.region or who.region)


def complete(files: Mapping[str, str]) -> dict[str, str]:
    """Return *files* with the shipped roles and denials, where the bundle does not carry those it was made with."""
    return {ROLES: shipped(ROLES), GUARDS: shipped(GUARDS), **files}


def parse_bundle(files: Mapping[str, str]) -> Bundle:
    """Return the bundle in *files*, by name."""
    files = complete(files)
    size = sum(len(text.encode()) for text in files.values())
    if len(files) > POLICY_FILES or size > POLICY_BYTES:
        raise UsageError(
            f"policy: expected at most {POLICY_FILES} files and {POLICY_BYTES} bytes, found {len(files)} and {size}"
        )
    for name, text in files.items():
        check_visible(name, text)
        if name not in (POLICY, ROLES) and not name.endswith((TABLE, CEDAR)):
            raise UsageError(f"policy: expected {POLICY}, *{CEDAR} and *{TABLE}, found {name!r}")
    if POLICY not in files:
        raise UsageError(f"policy: expected a file {POLICY}, found none")
    policy = read_toml(POLICY, files[POLICY], PolicyFile)
    built_in = read_toml(ROLES, files[ROLES], dict[str, RolePart])
    roles = {name: part.actions for name, part in {**built_in, **policy.roles}.items()}
    if both := sorted(built_in.keys() & policy.roles.keys()):
        raise UsageError(f"{POLICY}: roles.{both[0]}: is a built-in role: give yours another name")
    bundle = Bundle(files, policy, roles, tuple(nfc(files[name]) for name in sorted(files) if name.endswith(CEDAR)))
    _check(bundle)
    return bundle


# names


def _check(bundle: Bundle) -> None:
    policy = bundle.policy
    for section in (policy.users, policy.nodes, policy.jobs, policy.groups, policy.datasets, bundle.roles):
        for name in section:
            _check_name(name)
    for role, actions in bundle.roles.items():
        _known(f"role {role}", "action", actions, ACTIONS)
    known = _targets(bundle)
    identities = [item for who in map(bundle.of, bundle.principals()) if who is not None for item in who.identities]
    if twice := sorted({item for item in identities if identities.count(item) > 1}):
        raise UsageError(f"{POLICY}: identity {twice[0]!r}: expected one principal that has it, found two")
    for name, part in policy.datasets.items():
        _known(f"datasets.{name}", "user", [part.owner] if part.owner else [], policy.users)
    for rule in (*policy.grant, *policy.deny):
        _check_rule(bundle, rule, known)
    ids = [rule.id for rule in (*policy.grant, *policy.deny)]
    if len(ids) != len(set(ids)):
        raise UsageError(f"{POLICY}: id {next(i for i in ids if ids.count(i) > 1)!r}: two grants or denials have it")


def _check_name(name: str) -> None:
    if not name.isprintable() or ":" in name or name == EVERYTHING:
        raise UsageError(f"{POLICY}: name {name!r}: expected printable characters without `:`")


def _targets(bundle: Bundle) -> tuple[set[str], set[str]]:
    """Return what `to` and `on` may name."""
    policy = bundle.policy
    everybody = bundle.principals()
    groups = set(policy.groups)
    for who in map(bundle.of, everybody):
        groups |= set(who.groups if who is not None else ())
    for part in policy.groups.values():
        groups |= set(part.groups)
    tags = {tag for part in policy.datasets.values() for tag in part.tags}
    to = {EVERYTHING, *map(str, everybody), *(f"group:{name}" for name in groups)}
    return to, {EVERYTHING, *policy.datasets, *(f"tag:{tag}" for tag in tags)}


def _check_rule(bundle: Bundle, rule: Rule, known: tuple[set[str], set[str]]) -> None:
    what = f"{POLICY}: {rule.id}"
    if (rule.role is None) == (not rule.actions):
        raise UsageError(f"{what}: expected either role or actions")
    if not rule.to or not rule.on:
        raise UsageError(f"{what}: expected somebody in `to` and a dataset in `on`")
    if not rule.id.isprintable() or not rule.reason.isprintable():
        raise UsageError(f"{what}: expected printable characters in id and reason")
    _known(what, "role", [rule.role] if rule.role else [], bundle.roles)
    _known(what, "action", rule.actions, ACTIONS)
    _known(what, "principal or group", [item.removeprefix("user:") for item in rule.to], known[0])
    _known(what, "dataset or tag", rule.on, known[1])
    _known(what, "node", rule.nodes, bundle.policy.nodes)


def _known(what: str, kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise UsageError(f"{what}: no {kind} {name!r}; known: {', '.join(sorted(known)[:12])}")


def actions_of(bundle: Bundle, rule: Rule) -> tuple[str, ...]:
    """Return what *rule* is about."""
    return bundle.roles[rule.role] if rule.role is not None else rule.actions


def kind_of(text: str) -> tuple[str, str]:
    """Return (Cedar type, id) of one item of `to`."""
    kind, colon, name = text.partition(":")
    return (KINDS[kind], name) if colon else ("User", text)
