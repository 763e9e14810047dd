"""datasync policy: check, test and explain policies, compare two, publish one; offline grants."""

import time
from pathlib import Path
from typing import Any

import click

from datasync.cli.common import CommandGroup, common, session
from datasync.cli.output import Output, plural, shown
from datasync.cli.policy_evidence import Given, evidence_options
from datasync.cli.secret import write_secret_file
from datasync.cli.span import parse_until, seconds
from datasync.config import Flags
from datasync.errors import PartialFailure, UsageError
from datasync.repository.policies import write_policy_proposal
from datasync.service import credentials, offline_grants, policy_admin
from datasync.service import policy_questions as questions
from datasync.service.policy_admin import Applied

DIRECTORY = click.Path(path_type=Path, exists=True, file_okay=False)
policy_option = click.option(
    "--policy", "directory", type=DIRECTORY, metavar="DIR", help="The policy in this directory, not the one in force."
)
output_option = click.option(
    "--output", "target", type=click.Path(path_type=Path), metavar="FILE", help="Write it to this file."
)


@click.group("policy", cls=CommandGroup)
def command() -> None:
    """Who may do what: policies as files, decided by Cedar."""


@command.command("check")
@click.argument("directory", type=DIRECTORY)
@common
def check(directory: Path, output: Output, flags: Flags) -> None:
    """Load the policy in DIRECTORY as strictly as when it is in force: syntax, names, attributes, types."""
    engine = policy_admin.load(directory)
    statements, principals = len(engine.statements), len(engine.bundle.principals())
    output.line(f"{directory}: {plural(statements, 'statement')}, {plural(principals, 'principal')}: loads")
    output.line(f"digest {engine.digest}")
    output.result(policy=engine.digest, statements=statements, principals=principals)


@command.command("test")
@click.argument("directory", type=DIRECTORY)
@common
def test(directory: Path, output: Output, flags: Flags) -> None:
    """Run the decision tables (*.table.toml) in DIRECTORY against its policy."""
    engine = policy_admin.load(directory)
    outcomes = policy_admin.test(engine)
    if not outcomes:
        raise UsageError(f"{directory}: expected a decision table (*.table.toml), found none")
    failed = [outcome for outcome in outcomes if not outcome.holds]
    for item in failed:
        expected = f"{_word(item.row.allow)} by {' '.join(item.row.reasons) or 'nobody'}"
        found = f"{_word(item.decision.allow)} by {' '.join(item.decision.reasons) or 'nobody'}"
        wrong = f" ({'; '.join(item.decision.errors)})" if item.decision.errors else ""
        output.line(shown(f"{item.row}: expected {expected}, found {found}{wrong}"))
        output.event("row", table=item.row.table, row=item.row.number, expected=expected, found=found)
    if failed:
        raise PartialFailure(f"policy {directory}: {len(failed)} of {len(outcomes)} rows do not hold")
    output.line(f"{directory}: all {plural(len(outcomes), 'row')} hold")
    output.result(policy=engine.digest, rows=len(outcomes))


def _word(allow: bool) -> str:
    return "allow" if allow else "deny"


@command.command("explain")
@click.argument("who")
@click.argument("action")
@click.argument("dataset")
@policy_option
@evidence_options
@common
def explain(
    who: str, action: str, dataset: str, directory: Path | None, given: Given, output: Output, flags: Flags
) -> None:
    """Say whether WHO (a user, node:NAME or job:NAME) may do ACTION on DATASET (`*`: the repository), by which policy,
    and what would have to change.
    """
    with session(flags, output) as opened:
        told = questions.explain(opened, directory, who, action, dataset, given.evidence())
    output.line(_word(told.decision.allow))
    for line in told.because:
        output.line(shown(f"  because: {line}"))
    for line in told.would_allow:
        output.line(shown(f"  would be allowed: {line}"))
    if not told.whole:
        output.line("  other situations that may allow it were not tried: there are too many")
    output.result(
        decision=_word(told.decision.allow),
        decided_by=list(told.decision.reasons),
        errors=list(told.decision.errors),
        because=list(told.because),
        would_allow=list(told.would_allow),
        tried_all=told.whole,
        policy=told.decision.policy_digest,
    )


@command.command("diff")
@click.argument("old", type=DIRECTORY)
@click.argument("new", type=DIRECTORY)
@evidence_options
@common
def diff(old: Path, new: Path, given: Given, output: Output, flags: Flags) -> None:
    """Show whose access differs between two policies: over all principals, datasets and actions, as things are and in
    every situation that either policy speaks of.
    """
    count = 0
    for item in questions.differences(old, new, given.evidence()):
        count += 1
        where = f" ({item.situation})" if item.situation else ""
        sign, dataset = "+" if item.after.allow else "-", item.dataset or "*"
        output.line(shown(f"{sign} {item.principal} {item.action} {dataset}{where}"))
        output.event(
            "changed",
            principal=str(item.principal),
            action=item.action,
            dataset=item.dataset,
            allowed=item.after.allow,
            situation=item.situation,
        )
    output.note(f"{plural(count, 'cell')} changed")
    output.result(changed=count)


@command.command("matrix")
@policy_option
@click.option("--dataset", metavar="NAME", help="By the policy in force for this dataset.")
@evidence_options
@common
def matrix(directory: Path | None, dataset: str | None, given: Given, output: Output, flags: Flags) -> None:
    """Print what every principal may do with every dataset."""
    count = 0
    with session(flags, output) as opened:
        for row in questions.matrix(opened, directory, dataset, given.evidence()):
            count += 1
            output.line(shown(f"{row.principal} {row.dataset or '*'}: {' '.join(row.actions) or '-'}"))
            output.event("row", principal=str(row.principal), dataset=row.dataset, actions=list(row.actions))
    output.result(rows=count)


# the one in force


@command.command("show")
@click.argument("dataset", required=False)
@click.option("--cedar", is_flag=True, help="Print what the policy became in Cedar.")
@policy_option
@common
def show(dataset: str | None, cedar: bool, directory: Path | None, output: Output, flags: Flags) -> None:
    """Print the policy in force for DATASET (without it: the site's), or the one in a directory."""
    with session(flags, output) as opened:
        found = questions.policy(opened, directory, dataset)
        who = policy_admin.me(opened, found.engine)
    files = dict(found.engine.bundle.files)
    output.line(
        f"# policy {found.engine.digest} of {found.source}" + (f", number {found.number}" if found.number else "")
    )
    output.line(f"# here you are {shown(str(who)) if who else 'nobody whom it names'}")
    for name in [] if cedar else sorted(files):
        output.line(f"\n# --- {name}\n{shown(files[name])}")
    if cedar:
        output.line(shown(found.engine.text))
    output.result(
        policy=found.engine.digest, source=found.source, number=found.number, you=str(who) if who else None, files=files
    )


@command.command("apply")
@click.argument("dataset")
@click.argument("directory", type=DIRECTORY)
@output_option
@common
def apply(dataset: str, directory: Path, target: Path | None, output: Output, flags: Flags) -> None:
    """Publish the policy in DIRECTORY for DATASET, signed; its tables have to hold."""
    with session(flags, output) as opened:
        _report(dataset, policy_admin.apply(opened, dataset, directory), target, output)


@command.command("cosign")
@click.argument("dataset")
@click.argument("proposal", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@output_option
@common
def cosign(dataset: str, proposal: Path, target: Path | None, output: Output, flags: Flags) -> None:
    """Sign another owner's PROPOSAL of a policy; it is published once enough owners have signed."""
    with session(flags, output) as opened:
        done = policy_admin.cosign(opened, dataset, proposal.read_text(), str(proposal))
        _report(dataset, done, target or proposal, output)


def _report(dataset: str, done: Applied, target: Path | None, output: Output) -> None:
    fields: dict[str, Any] = {"dataset": dataset, "policy": done.digest, "number": done.number, "missing": done.missing}
    if done.proposal is None:
        output.note(f"{dataset}: policy {done.number} is in force ({done.digest[:16]})")
        output.result(**fields)
        return
    path = target or Path(f"{dataset}-policy-{done.number}.json")
    path.write_text(write_policy_proposal(done.proposal))
    output.note(f"{plural(done.missing, 'owner')} still have to sign: datasync policy cosign {dataset} {path}")
    output.result(**fields, proposal=str(path))


# offline grants


@command.command("grant")
@click.argument("dataset")
@click.argument("signer")
@click.option(
    "--action", "actions", multiple=True, required=True, metavar="NAME", help="What it allows; may be repeated."
)
@click.option("--until", required=True, metavar="TIME", help="When it ends: 2026-12-31, 2026-12-31T18:00Z, 12h, 30d.")
@click.option("--snapshots", default="", metavar="FIRST-LAST", help="Only these: 5, 3-9, or 3- for all from 3 on.")
@click.option("--region", default="", metavar="NAME", help="Where the machine is, as you have verified it.")
@click.option("--purpose", default="", metavar="NAME", help="What it works for, as you have verified it.")
@output_option
@common
def grant(
    dataset: str,
    signer: str,
    actions: tuple[str, ...],
    until: str,
    snapshots: str,
    region: str,
    purpose: str,
    target: Path | None,
    output: Output,
    flags: Flags,
) -> None:
    """Sign a grant for the machine or identity SIGNER (dss1…), which it checks offline. It carries no key."""
    first, last = _range(snapshots)
    wanted = offline_grants.WantedGrant(signer, actions, parse_until(until), first, last, region, purpose)
    with session(flags, output) as opened:
        line = offline_grants.issue(opened, dataset, wanted)
    if target is not None:
        target.write_text(line + "\n")
        output.note(f"written: {target}: name it in DATASYNC_POLICY_GRANTS on the machine")
    else:
        output.line(line)
    output.result(dataset=dataset, grant=line, until=wanted.until)


def _range(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not text:
        return 0, 0
    if not first.isdecimal() or not (last.isdecimal() or not last):
        raise UsageError(f"snapshots {text!r}: expected 5, 3-9, or 3-")
    return int(first), (int(last) if last else 0) if dash else int(first)


@command.command("credential")
@click.argument("dataset")
@click.option(
    "--action",
    default="Warm",
    show_default=True,
    metavar="NAME",
    help="What for: ReadMetadata, ReadData, Warm or PushSnapshot.",
)
@click.option("--for", "span", default="1h", show_default=True, metavar="SPAN", help="For at most so long.")
@output_option
@common
def credential(dataset: str, action: str, span: str, target: Path | None, output: Output, flags: Flags) -> None:
    """Issue a storage credential for DATASET alone, for as long as the policy allows ACTION: lines for a shell."""
    with session(flags, output) as opened:
        issued = credentials.release(opened, dataset, action, seconds(span))
    lines = [f"{name}={value}" for name, value in issued.variables.items()]
    if target is not None:
        write_secret_file(target, ("\n".join(lines) + "\n").encode())
        output.note(f"written: {target}: a secret")
    elif output.as_json:
        output.event("credential", **dict(issued.variables))
    for line in [] if target is not None else lines:
        output.line(line)
    output.result(dataset=dataset, action=action, until=issued.until)


@command.command("grants")
@click.argument("dataset")
@common
def grants(dataset: str, output: Output, flags: Flags) -> None:
    """Show this machine's signers and its grants for DATASET (DATASYNC_POLICY_GRANTS), and why one does not hold."""
    with session(flags, output) as opened:
        found = questions.grants(opened, dataset)
    output.line(f"this machine {found.node}")
    if found.signer:
        output.line(f"this identity {found.signer}")
    for item in found.grants:
        if item.grant is None:
            output.line(shown(f"{item.path}: does not hold: {item.refused}"))
        else:
            until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(item.grant.until / 1000))
            output.line(shown(f"{item.path}: {' '.join(item.grant.actions)} until {until}, by {item.issuer}"))
        output.event("grant", path=str(item.path), holds=item.grant is not None, refused=item.refused)
    output.result(node=found.node, identity=found.signer, grants=sum(item.grant is not None for item in found.grants))
