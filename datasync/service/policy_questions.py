"""Questions about policies: explain, diff, matrix; of a directory, or of the policy in force."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasync.crypto.signatures import signer_text
from datasync.errors import UsageError
from datasync.policy import compare
from datasync.policy.bundle import EVERYTHING, of_machine
from datasync.policy.explain import Explanation
from datasync.policy.explain import explain as explain_request
from datasync.policy.model import ACTIONS, Evidence, Request, parse_principal
from datasync.service import offline_grants
from datasync.service.offline_grants import KnownGrant
from datasync.service.policy_admin import engine_for, load
from datasync.service.policy_force import InForce
from datasync.service.session import Session


@dataclass(frozen=True, slots=True)
class Grants:
    """This machine's signers in text form, and its grants."""

    node: str
    signer: str | None
    grants: list[KnownGrant]


def evidence_of(now: int, **fields: Any) -> Evidence:
    """Return evidence that a question takes for verified."""
    return Evidence(now, **fields)


def policy(session: Session, directory: Path | None, dataset: str | None) -> InForce:
    """Return the policy in *directory*, else the one in force for *dataset*, else the site's."""
    if directory is not None:
        return InForce(str(directory), 0, load(directory))
    return engine_for(session, dataset)


def explain(
    session: Session, directory: Path | None, who: str, action: str, dataset: str, evidence: Evidence
) -> Explanation:
    """Return whether *who* may do *action* on *dataset* (`*`: the repository), and why."""
    name = None if dataset == EVERYTHING else dataset
    engine = policy(session, directory, name).engine
    if action not in ACTIONS:
        raise UsageError(f"action {action!r}: expected one of {', '.join(ACTIONS)}")
    principal = parse_principal(who)
    known = of_machine(engine.bundle, principal, evidence)
    return explain_request(engine, Request(principal, action, name, known))


def differences(old: Path, new: Path, evidence: Evidence) -> list[compare.Changed]:
    """Return whose access differs between the policies in two directories."""
    return compare.compare(load(old), load(new), evidence)


def matrix(
    session: Session, directory: Path | None, dataset: str | None, evidence: Evidence
) -> Iterable[compare.MatrixRow]:
    """Return what every principal may do with every dataset."""
    return compare.matrix(policy(session, directory, dataset).engine, evidence)


def grants(session: Session, name: str) -> Grants:
    """Return this machine's signers and its grants for the dataset *name*."""
    caller, found = offline_grants.known(session, name)
    signer = signer_text(caller.signer) if caller.signer is not None else None
    return Grants(signer_text(caller.node), signer, found)
