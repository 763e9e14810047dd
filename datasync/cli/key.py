"""datasync key: identities, and who has access to a dataset."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from datasync.cli.common import CommandGroup, common, session
from datasync.cli.key_output import PAGE_SUFFIX, report_change, report_erased, show_holdings
from datasync.cli.output import Output, plural, shown, size
from datasync.cli.secret import ask_new_secret, check_free, write_secret_file
from datasync.cli.span import parse_until
from datasync.config import Flags
from datasync.errors import PartialFailure, UsageError
from datasync.service import access, identities, recovery, settle
from datasync.service.erasure import Erased, verify_certificate

output_option = click.option(
    "--output", "target", type=click.Path(path_type=Path), metavar="FILE", help="Write it to this file."
)


@click.group("key", cls=CommandGroup)
def command() -> None:
    """Make and show identities; grant, revoke, list and rotate the keys of a dataset."""


@command.command("init")
@click.option(
    "--passphrase", is_flag=True, help="Seal the secrets with a passphrase (asked, or DATASYNC_IDENTITY_PASSPHRASE)."
)
@common
def init(passphrase: bool, output: Output, flags: Flags) -> None:
    """Make this machine's identity."""
    with session(flags, output) as opened:
        secret = None
        if passphrase:
            secret = opened.config.identity_passphrase or ask_new_secret("New passphrase of the identity")
        shown = identities.make(opened, secret)
        path = opened.config.identity
    output.note(f"new identity: {path}")
    output.note("keep access when this machine is lost: datasync key export-recovery --output FILE")
    output.line(shown.text.rstrip())
    output.result(identity=str(path), recipient=shown.recipient, signer=shown.signer, sealed=shown.sealed)


@command.command("show")
@click.option("--x25519", is_flag=True, help="The classical recipient, where ML-KEM may not be used.")
@output_option
@common
def show(x25519: bool, target: Path | None, output: Output, flags: Flags) -> None:
    """Print the identity's public halves, which an owner grants access to."""
    with session(flags, output) as opened:
        shown = identities.show(opened, x25519=x25519)
    if target is not None:
        target.write_text(shown.text)
        output.note(f"written: {target}: send it to the owner, it holds no secret")
    else:
        output.line(shown.text.rstrip())
    output.result(recipient=shown.recipient, signer=shown.signer, recovery=shown.recovery, sealed=shown.sealed)


@command.command("passphrase")
@click.option("--remove", is_flag=True, help="Keep the secrets unsealed from now on.")
@common
def passphrase(remove: bool, output: Output, flags: Flags) -> None:
    """Set, change or remove the passphrase of the identity."""
    with session(flags, output) as opened:
        identities.show(opened, x25519=False)  # the old passphrase is asked for first
        identities.set_passphrase(opened, None if remove else ask_new_secret("New passphrase of the identity"))
    output.note("the passphrase is removed" if remove else "the passphrase is set")
    output.result(sealed=not remove)


@command.command("export-recovery")
@output_option
@click.option("--png", type=click.Path(path_type=Path), metavar="FILE", help="Write the QR code to this PNG file.")
@click.option("--qr", is_flag=True, help="Draw the QR code on the terminal.")
@common
def export_recovery(target: Path | None, png: Path | None, qr: bool, output: Output, flags: Flags) -> int:
    """Make a recovery kit: a page that brings access back with nothing else; print it, keep it apart."""
    if target is None and (output.as_json or not (sys.stdout.isatty() or qr)):
        raise UsageError("the kit is a secret: pass --output FILE, or run it on a terminal")
    check_free(*filter(None, (target, png)))
    with session(flags, output) as opened:
        if qr or png is not None:
            recovery.check_qr()
        kit, problems = recovery.export(opened)
    if png is not None:
        write_secret_file(png, recovery.qr_png(kit))
    if target is not None:
        write_secret_file(target, kit.text.encode())
    else:
        output.line(kit.text)
    if qr:
        output.line(recovery.qr_terminal(kit))
    for problem in problems:
        output.warn(problem)
    datasets = [name for name, _ in kit.datasets]
    output.note(f"the kit opens {plural(len(datasets), 'dataset')}, and those that this identity makes from now on")
    for path in filter(None, (target, png)):
        output.note(f"written: {path}: print it, keep it apart from this machine, then remove the file")
    code = PartialFailure.exit_code if problems else 0
    output.result(datasets=datasets, output=str(target) if target else None, problems=problems, exit=code)
    return code


@command.command("recover")
@click.option("--kit", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="The kit's file.")
@common
def recover(kit: Path | None, output: Output, flags: Flags) -> None:
    """Make this machine's identity from a recovery kit (its file, or the secret typed in)."""
    with session(flags, output) as opened:
        text = _read(kit) if kit else opened.secret("The kit's secret (DSRK1-…)") or sys.stdin.read()
        made = recovery.recover(opened, text)
        path = opened.config.identity
    output.note(f"identity {path}: restored; it trusts {plural(len(made.trust), 'dataset')}")
    output.note("make a new identity of your own, grant it ownership, then revoke the recovery identity")
    output.result(identity=str(path), trust=list(made.trust))


@command.command("grant")
@click.argument("dataset")
@click.argument("recipient", nargs=-1, required=True)
@click.option(
    "--role", type=click.Choice(list(access.ROLES)), default="reader", show_default=True, help="What it may do."
)
@click.option("--until", metavar="TIME", help="When access ends: 2026-12-31, 2026-12-31T18:00Z, 12h, 30d.")
@click.option("--name", metavar="NAME", help="What people call this holder.")
@output_option
@common
def grant(
    dataset: str,
    recipient: tuple[str, ...],
    role: str,
    until: str | None,
    name: str | None,
    target: Path | None,
    output: Output,
    flags: Flags,
) -> None:
    """Give RECIPIENT access to DATASET: its public lines or the file that holds them, `passphrase`, or a KMS URI."""
    wanted = access.parse_holder(recipient, name)
    with session(flags, output) as opened:
        done = access.grant(opened, dataset, wanted, role, 0 if until is None else parse_until(until))
        report_change(opened, done, output, target, f"granted: {wanted.name} is {role} of {dataset}", role=role)


@command.command("revoke")
@click.argument("dataset")
@click.argument("who")
@output_option
@common
def revoke(dataset: str, who: str, target: Path | None, output: Output, flags: Flags) -> None:
    """Take all access of WHO to DATASET away: what is written from now on is closed to it."""
    with session(flags, output) as opened:
        done = access.revoke(opened, dataset, who)
        report_change(opened, done, output, target, f"revoked: {who}; what it has read before stays with it")


@command.command("list")
@click.argument("dataset")
@common
def list_command(dataset: str, output: Output, flags: Flags) -> None:
    """Show who can read, write, own and audit DATASET, since when, and who granted it."""
    with session(flags, output) as opened:
        found, holders = access.list_holdings(opened, dataset)
        show_holdings(found, holders, output)


@command.command("rotate")
@click.argument("dataset")
@click.option(
    "--full", is_flag=True, help="Also re-seal all data that snapshots need; runs again where it was stopped."
)
@output_option
@common
def rotate(dataset: str, full: bool, target: Path | None, output: Output, flags: Flags) -> None:
    """Begin a new epoch of DATASET's keys: the same holders, new data under a new key, no data is sent again."""
    with session(flags, output) as opened:
        if not full:
            done = access.rotate(opened, dataset)
            report_change(opened, done, output, target, f"{dataset}: epoch {done.dataset.keyring.epoch} began")
            return
        done, sealed = access.rotate_full(
            opened,
            dataset,
            lambda p: output.progress(
                f"re-sealed {p.read_packs} of {p.packs} packs, {size(p.read_bytes)}", packs=p.read_packs, of=p.packs
            ),
        )
        words = f"{dataset}: epoch {done.dataset.keyring.epoch}"
        counts: dict[str, object] = {}
        if sealed is not None:
            words += f", {sealed.written_packs} packs sealed anew, {sealed.condemned} old ones condemned"
            counts = {"resealed": sealed.written_packs, "condemned": sealed.condemned}
        report_change(opened, done, output, target, words, **counts)


@command.command("owners")
@click.argument("dataset")
@click.option("--threshold", type=click.IntRange(1, 64), metavar="N", help="How many owners have to sign a change.")
@click.option(
    "--expires", metavar="TIME", help="Until when the trust root is believed: a time as in grant, or `never`."
)
@output_option
@common
def owners(
    dataset: str, threshold: int | None, expires: str | None, target: Path | None, output: Output, flags: Flags
) -> None:
    """Set how many owners have to sign changes of DATASET, and until when its trust root is believed."""
    if threshold is None and expires is None:
        raise UsageError("nothing to do: pass --threshold or --expires")
    until = None if expires is None else 0 if expires == "never" else parse_until(expires)
    with session(flags, output) as opened:
        done = access.set_owners(opened, dataset, threshold, until)
        report_change(opened, done, output, target, f"{dataset}: trust root {done.dataset.trusted.root.version}")


@command.command("cosign")
@click.argument("dataset")
@click.argument("proposal", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--delete-data", is_flag=True, help="Of a proposal that shreds: also delete the sealed packs.")
@click.option("--reason", default="", metavar="TEXT", help="Of a proposal that shreds: why, for the certificate.")
@output_option
@common
def cosign(
    dataset: str,
    proposal: Path,
    yes: bool,
    delete_data: bool,
    reason: str,
    target: Path | None,
    output: Output,
    flags: Flags,
) -> None:
    """Sign another owner's PROPOSAL, once what it changes is shown; it is stored when enough owners have signed."""

    def confirm(lines: list[str], shreds: bool) -> None:
        for line in lines:
            output.note(f"the proposal {shown(line)}")
        if shreds or (sys.stdin.isatty() and sys.stderr.isatty()):
            _sure(yes, "Sign it?")

    if target is not None:
        check_free(target, target.with_suffix(PAGE_SUFFIX))
    with session(flags, output) as opened:
        done = access.cosign(
            opened, dataset, _read(proposal), str(proposal), confirm, delete_data=delete_data, reason=reason
        )
        path = target or (_certificate_path(dataset) if done.erased is not None else proposal)
        report_change(opened, done, output, path, f"{dataset}: the proposal is stored")


@command.command("settle")
@click.argument("dataset")
@click.option("--accept", "decision", flag_value="accept", help="Accept the snapshots of removed signers.")
@click.option("--remove", "decision", flag_value="remove", help="Delete the refused objects; copies stay here.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@common
def settle_command(
    dataset: str, decision: str | None, yes: bool, target: Path | None, output: Output, flags: Flags
) -> None:
    """Show what is refused of DATASET because of who signed it, such as pushes of a removed writer that came late, and
    accept or remove it.
    """
    with session(flags, output) as opened:
        found = settle.look(opened, dataset)
        for line in found.lines:
            output.line(shown(line))
        if decision == "accept":
            done = settle.accept(opened, dataset)
            report_change(opened, done, output, target, f"{dataset}: accepted what removed signers made")
            return
        removed = []
        if decision == "remove":
            _sure(yes, "Delete the refused objects?")
            removed = [item.name for item in settle.remove(opened, dataset)]
            output.note(f"{dataset}: {len(removed)} refused objects are deleted; copies of them stay on this machine")
        elif found.lines:
            output.note("decide: --accept, or --remove")
        else:
            output.note(f"{dataset}: nothing is refused")
        late = [
            {"signer": key.hex(), "seq": seq, "snapshot": digest.hex()} for key, (seq, digest) in found.late.items()
        ]
        refused = [item.name for item in found.refused]
        output.result(dataset=dataset, refused=refused, late=late, removed=removed)


def _sure(yes: bool, question: str) -> None:
    """Ask, unless *yes*; off a terminal raise `UsageError`."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("this can not be undone: pass --yes")
    click.confirm(question, err=True, abort=True)


@command.command("accept")
@click.argument("dataset")
@click.argument("trust_root", metavar="TRUST")
@common
def accept(dataset: str, trust_root: str, output: Output, flags: Flags) -> None:
    """Trust DATASET's trust root TRUST, as its owner's grant printed it."""
    with session(flags, output) as opened:
        reads = access.accept(opened, dataset, trust_root)
    output.note(f"{dataset}: accepted" + ("" if reads else "; this identity may push into it and reads nothing of it"))
    output.result(dataset=dataset, trust=trust_root, reads=reads)


@command.command("shred")
@click.argument("dataset")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--delete-data", is_flag=True, help="Also delete the sealed packs.")
@click.option("--reason", default="", metavar="TEXT", help="Why, for the certificate.")
@output_option
@common
def shred(
    dataset: str, yes: bool, delete_data: bool, reason: str, target: Path | None, output: Output, flags: Flags
) -> None:
    """Destroy every key of DATASET for ever, and certify it: nobody opens it any more, whoever has its objects."""
    if not yes:
        _confirm(dataset)
    path = target or _certificate_path(dataset)
    check_free(path, path.with_suffix(PAGE_SUFFIX))
    with session(flags, output) as opened:
        done = access.shred_dataset(opened, dataset, delete_data=delete_data, reason=reason)
        if isinstance(done, Erased):
            report_erased(done, output, path)
            return
        report_change(opened, done, output, path, f"{dataset}: shredded")


@command.command("certificate")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@common
def certificate(file: Path, output: Output, flags: Flags) -> None:
    """Check an erasure certificate's signature and show what it certifies; needs no repository."""
    fields = verify_certificate(_read(file), str(file))
    name, dataset, when = (shown(fields[key]) for key in ("dataset", "dataset_id", "time"))
    output.line(f"dataset {name} ({dataset[:16]}…): shredded at {when}")
    output.line(f"signed by {fields['signer']}: whether that owned the dataset, its trust root or the owner tells")
    output.result(**fields)


def _read(path: Path) -> str:
    return path.read_bytes().decode(errors="replace")  # what is no text does not parse either


def _certificate_path(dataset: str) -> Path:
    return Path(f"{dataset}-erasure-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json")


def _confirm(dataset: str) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("shredding can not be undone: pass --yes")
    typed = click.prompt(f"This can not be undone. Type the name of the dataset to shred it ({dataset})", err=True)
    if typed != dataset:
        raise UsageError(f"expected {dataset!r}, found {typed!r}: nothing was done")
