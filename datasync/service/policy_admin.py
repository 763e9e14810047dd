"""Publishing a policy, and looking at the one in force.

`apply` checks a directory, makes sure that it locks no owner out, and publishes it as the dataset's newest signed
bundle; where several owners have to sign, it is a proposal first. What the present policy says of ManagePolicy is
obeyed while it can be read; one that can not is replaced by the owners' signatures alone.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasync.crypto.signatures import SigningKey, signer_text
from datasync.errors import IntegrityError, RollbackError, UsageError, WrongKey
from datasync.format.trust import OWNER
from datasync.policy.decide import PolicyEngine
from datasync.policy.model import Evidence, Principal, Request
from datasync.policy.tables import Outcome, read_tables, run
from datasync.repository import policies, succession
from datasync.repository.policies import PolicyProposal, Published
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import KeysMoved
from datasync.service.authorize import authorize
from datasync.service.caller import caller_of
from datasync.service.policy_files import digest_of, engine_of, read_directory
from datasync.service.policy_force import FAR_MS, InForce, decision_time, published, site_policy
from datasync.service.record import recorded
from datasync.service.session import Session

TRIES = 8  # other owners who were first


@dataclass(frozen=True, slots=True)
class Applied:
    """A stored policy, or a proposal that other owners have to sign first."""

    digest: str
    number: int
    proposal: PolicyProposal | None
    missing: int


def load(directory: Path) -> PolicyEngine:
    """Return the engine of the policy in *directory*; raise `UsageError` for what does not load."""
    return engine_of(read_directory(directory))


def test(engine: PolicyEngine) -> list[Outcome]:
    """Run every decision table of the policy."""
    return run(engine, read_tables(engine.bundle))


def apply(session: Session, name: str, directory: Path) -> Applied:
    """Publish the policy in *directory* for the dataset *name*; its tables have to hold."""
    files = read_directory(directory)
    engine = engine_of(files)
    failed = [outcome for outcome in test(engine) if not outcome.holds]
    if failed:
        raise UsageError(
            f"policy {directory}: {len(failed)} rows of its tables do not hold, the first: {failed[0].row}"
        )
    for _ in range(TRIES):
        dataset = session.repository.open(name)
        succession.require_owner(dataset)
        _may_replace(session, dataset)
        _check_owners_in(session, dataset, engine)
        signer = _signer(session)
        proposal = policies.propose_policy(dataset.history, files, signer)
        missing = proposal.missing(dataset.history)
        if missing:
            return Applied(engine.digest, proposal.bundle.number, proposal, missing)
        try:
            return _store(session, dataset, proposal)
        except KeysMoved:
            continue
    raise KeysMoved(f"dataset {name!r}: other owners were first {TRIES} times: run the same line again")


def cosign(session: Session, name: str, text: str, what: str) -> Applied:
    """Sign another owner's proposal; store it when it has all its signatures."""
    dataset = session.repository.open(name)
    succession.require_owner(dataset)
    _may_replace(session, dataset)
    proposal = policies.read_policy_proposal(text, what)
    if proposal.dataset != dataset.id:
        raise IntegrityError(f"{what}: the proposal is not for dataset {name!r}")
    engine = engine_of(dict(proposal.bundle.files))
    _check_owners_in(session, dataset, engine)
    signed = policies.cosign_policy(proposal, _signer(session))
    missing = signed.missing(dataset.history)
    if missing:
        return Applied(engine.digest, signed.bundle.number, signed, missing)
    return _store(session, dataset, signed)


def _store(session: Session, dataset: OpenDataset, proposal: PolicyProposal) -> Applied:
    digest = digest_of(dict(proposal.bundle.files))
    fields: dict[str, Any] = {"dataset": dataset.name, "dataset_id": dataset.id, "digest": digest}
    fields["number"] = proposal.bundle.number
    with recorded(session, "policy.apply", security=True, **fields):
        stored = policies.store_policy(dataset.history, proposal)
    return Applied(digest, stored.number, None, 0)


def _signer(session: Session) -> SigningKey:
    if session.identity is None:
        raise WrongKey("publishing a policy needs an identity: set DATASYNC_IDENTITY")
    return session.identity.signing_key


def _may_replace(session: Session, dataset: OpenDataset) -> None:
    """Ask the present policy, if there is one that can be read."""
    try:
        found = published(session, dataset)
        if found is not None:
            engine_of(found.files)
    except RollbackError:
        raise
    except (IntegrityError, UsageError) as error:
        session.warn(f"the present policy can not be read, it is replaced by the owners' signatures alone: {error}")
        return
    authorize(session, "ManagePolicy", dataset)


def _check_owners_in(session: Session, dataset: OpenDataset, engine: PolicyEngine) -> None:
    """Refuse a policy under which no owner of the dataset could replace it."""
    now = decision_time(session.config, dataset.history.now())
    times = (now, FAR_MS - 1)  # for ever: a grant that ends would leave nobody
    owners = [signer_text(signer) for signer in dataset.trusted.root.with_role(OWNER)]
    known = [found for found in map(engine.bundle.known_as, owners) if found is not None]
    asked = [[Request(item, "ManagePolicy", dataset.name, Evidence(time)) for time in times] for item in known]
    if not any(all(decision.allow for decision in engine.decide_all(both)) for both in asked):
        raise UsageError(
            f"policy: no owner of dataset {dataset.name!r} may ManagePolicy under it at any time and without further "
            "evidence (a second factor is never known to the command line), so nobody could replace it: put an owner's "
            f"signer among a user's identities (yours: {signer_text(_signer(session).public)}) and grant it"
        )


# looking


def show(session: Session, name: str) -> tuple[OpenDataset, Published | None]:
    """Return the bundle that the owners of the dataset published, None without one."""
    dataset = session.repository.open(name)
    authorize(session, "ReadMetadata", dataset)
    return dataset, published(session, dataset)


def engine_for(session: Session, name: str | None) -> InForce:
    """Return the policy that decides about dataset *name*, or the site's; `UsageError` when none is in force."""
    if name is not None and session.config.repository:
        dataset, found = show(session, name)
        if found is not None:
            return InForce(dataset.name, found.number, engine_of(found.files))
    site = site_policy(session.config)
    if site is None:
        raise UsageError(
            "no policy is in force: pass --policy DIR, publish one (`datasync policy apply`), or set [policy] dir"
        )
    return site


def me(session: Session, engine: PolicyEngine) -> Principal | None:
    """Return whom the policy knows this identity as, None when it does not."""
    signer = caller_of(session).signer
    return engine.bundle.known_as(signer_text(signer)) if signer is not None else None
