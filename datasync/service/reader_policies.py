"""Which local accounts the policies in force let read a dataset on this node (`datasync.service.readers` asks, where
settings name accounts or a group).

With a policy in force: the accounts that `[cache.accounts]` gives to principals whom every policy lets ReadData on this
machine now; a group of a policy when all whom it lists may. Whoever may not, and is mapped to a user, is shut out by
whatever local group. With none: the one group that `--group` or `[cache] group` names. Else nobody, and then nobody is
asked. What is not known of others (purpose, second factor, attestation, address) stays unknown. A policy that does not
load lets nobody in. Raises `UsageError` for settings that are wrong, and what a look at the newest policy raises.
"""

import os
import unicodedata
from collections.abc import Iterable
from dataclasses import replace

from datasync.cache.gate import ACCOUNTS, Gate
from datasync.config import Config
from datasync.errors import NotAuthorized, UsageError
from datasync.policy.bundle import Bundle
from datasync.policy.model import Evidence, Principal, Request, parse_principal
from datasync.repository.repository import OpenDataset
from datasync.service.accounts import USER, Account, find_account, find_group
from datasync.service.caller import Asked, caller_of, grants_held, request_of
from datasync.service.policy_files import engine_of
from datasync.service.policy_force import InForce, decision_time, published, site_policy
from datasync.service.readers import NOBODY_ELSE, OWNER_ALONE, Readers, Warn
from datasync.service.session import Session

ACTION = "ReadData"
REASONS_TOLD = 32


def ask(session: Session, dataset: OpenDataset, group: str | None, *, fresh: bool, warn: Warn) -> Readers:
    """Return who may read *dataset* here, with *group* as it was asked for, as `readers.decide`."""
    config = session.config
    wanted = group or config.cache_group
    try:
        policies = _in_force(session, dataset, fresh=fresh or session.decided)
    except _Unloadable:
        return NOBODY_ELSE
    if not policies:
        return Readers(_group_gate(wanted), "group") if wanted is not None else OWNER_ALONE
    if group is not None:
        warn(f"{dataset.name}: a policy is in force, so [cache.accounts] says who reads, not group {group!r}")
    now = decision_time(config, dataset.history.now())
    caller, asked = caller_of(session), Asked(ACTION)
    grants = grants_held(config, dataset, caller, asked, now)
    known = [request_of(item.engine.bundle, caller, asked, dataset.name, now, grants).evidence for item in policies]
    return _by_policy(config, policies, dataset.name, known, warn)


def narrowed(config: Config, name: str, now: Gate, warn: Warn) -> Readers:
    """Return *now* without what the settings and the site's policy, asked alone, do not give on dataset *name*."""
    try:
        site = _loaded(config)
    except _Unloadable:
        return NOBODY_ELSE
    if site is None:
        everybody = _gate(_accounts(config, warn), frozenset(config.accounts))
        if config.cache_group is not None:
            everybody = replace(everybody, groups=everybody.groups | _group_gate(config.cache_group).groups)
        return Readers(now.narrowed(everybody), "owner")
    moment, caller = decision_time(config, 0), caller_of(config)
    evidence = request_of(site.engine.bundle, caller, Asked(ACTION), name, moment, []).evidence
    found = _by_policy(config, [site], name, [evidence], warn)
    return replace(found, gate=now.narrowed(found.gate))


# the policies


class _Unloadable(Exception):
    """A policy is in force that does not load: nobody may anything."""


def _loaded(config: Config) -> InForce | None:
    try:
        return site_policy(config)
    except NotAuthorized as error:
        raise _Unloadable from error


def _in_force(session: Session, dataset: OpenDataset, *, fresh: bool) -> list[InForce]:
    """Return the policies that decide, also where a control side has decided about this machine's own warm."""
    site, own = _loaded(session.config), published(session, dataset, fresh=fresh)
    found = [site] if site is not None else []
    if own is None:
        return found
    try:
        return [*found, InForce(dataset.name, own.number, engine_of(own.files))]
    except (UsageError, NotAuthorized) as error:
        raise _Unloadable from error


def _by_policy(config: Config, policies: list[InForce], name: str, known: list[Evidence], warn: Warn) -> Readers:
    allowed, reasons = frozenset(config.accounts), set[str]()
    for policy, evidence in zip(policies, known, strict=True):
        told = _told(policy, name, replace(evidence, purpose=None, approvals=1), allowed)
        reasons |= {f"{policy.source}:{reason}" for because in told.values() for reason in because}
        allowed = frozenset(told)
    digests = " ".join(item.engine.digest for item in policies)
    return Readers(_gate(_accounts(config, warn), allowed), "policy", digests, tuple(sorted(reasons)[:REASONS_TOLD]))


def _told(policy: InForce, dataset: str, evidence: Evidence, names: Iterable[str]) -> dict[str, set[str]]:
    """Return who of *names* may read, with the statements that say so."""
    allowed = {}
    for name in names:
        people = _people(policy.engine.bundle, parse_principal(name))
        decisions = policy.engine.decide_all([Request(person, ACTION, dataset, evidence) for person in people])
        if decisions and all(item.allow for item in decisions):
            allowed[name] = {reason for item in decisions for reason in item.reasons}
    return allowed


def _people(bundle: Bundle, principal: Principal) -> list[Principal]:
    """Return *principal*, or everybody whom *bundle* lists in that group or in one within it."""
    if principal.kind != "group":
        return [principal]
    within, grown = {unicodedata.normalize("NFC", principal.name)}, True
    while grown:
        more = {name for name, part in bundle.policy.groups.items() if within & set(part.groups)}
        grown, within = not more <= within, within | more
    return [item for item in bundle.principals() if (who := bundle.of(item)) is not None and within & set(who.groups)]


# accounts


def _accounts(config: Config, warn: Warn) -> dict[str, Account]:
    """Return the account of each principal; one that this machine does not have (any more) is told and left out."""
    if len(config.accounts) > ACCOUNTS:
        raise UsageError(f"cache.accounts: expected at most {ACCOUNTS}, found {len(config.accounts)}: use groups")
    found = {}
    for name, text in config.accounts.items():
        account = find_account(text, f"cache.accounts: {name}")
        if account is None:
            warn(f"cache.accounts: {name}: this machine has no account {text!r}: left out")
        else:
            found[name] = account
    return found


def _gate(accounts: dict[str, Account], allowed: frozenset[str]) -> Gate:
    inside = {account for name, account in accounts.items() if name in allowed}
    outside = set(accounts.values()) - inside
    groups = frozenset(item.number for item in inside if item.kind != USER)
    return Gate(_users(inside), groups, _users(outside) if groups else frozenset())


def _users(accounts: Iterable[Account]) -> frozenset[int]:
    return frozenset(item.number for item in accounts if item.kind == USER) - {os.geteuid()}  # the owner may anyway


def _group_gate(group: str) -> Gate:
    return Gate(groups=frozenset({find_group(group).number}))
