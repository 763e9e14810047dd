"""datasync audit retain, hold and erase."""

import click

from datasync.cli.common import common, session
from datasync.cli.output import Output, plural, shown
from datasync.config import Flags, load_config
from datasync.errors import UsageError
from datasync.service import audit_keep, audit_remote


@click.command("retain")
@click.option("--retention", metavar="TIME", help="Keep this long: 3y, 18m or 200d (default: audit.retention, 3y).")
@click.option("--override-legal-floor", is_flag=True, help="Go below 6 months; an event says so.")
@click.option("--apply", "remove", is_flag=True, help="Remove what is older; without it only say what would go.")
@click.option("--remote", is_flag=True, help="Of what all machines shipped to the repository, instead.")
@common
def retain(
    retention: str | None, override_legal_floor: bool, remove: bool, remote: bool, output: Output, flags: Flags
) -> None:
    """Show how long the log is kept, and remove what is older."""
    config = load_config(flags)
    if remote:
        _retain_remote(retention, override_legal_floor, remove, output, flags)
        return
    act = audit_keep.apply if remove else audit_keep.state
    found = act(config, retention, override=override_legal_floor)
    held = f", under a legal hold ({found.hold.matter}) since {found.hold.since}" if found.hold else ""
    output.line(shown(f"kept for {found.retention}{held}"))
    for item in found.logs:
        done = "removed" if remove else "older"
        output.line(
            f"log {item.log}: {plural(len(item.old.segments), 'segment')} {done}, up to event {item.old.first_kept}"
        )
        output.event("retention", log=item.log, segments=len(item.old.segments), first_kept=item.old.first_kept)
    output.result(retention=found.retention, hold=found.hold.matter if found.hold else None, removed=remove)


def _retain_remote(retention: str | None, override: bool, remove: bool, output: Output, flags: Flags) -> None:
    with session(flags, output) as opened:
        kept = retention or opened.config.audit.retention
        found = audit_remote.retain(opened, retention, override=override, remove=remove)
    output.line(f"kept for {kept}")
    for item in found:
        done = "removed" if remove else "older"
        held = ", the next is locked by the store" if item.locked else ""
        output.line(f"log {item.log}: {plural(item.parcels, 'parcel')} {done}, up to event {item.first_kept}{held}")
        output.event("retention", log=item.log, parcels=item.parcels, first_kept=item.first_kept, locked=item.locked)
    output.result(retention=kept, removed=remove)


@click.command("hold")
@click.argument("matter", required=False)
@click.option("--lift", is_flag=True, help="Lift the hold.")
@common
def hold(matter: str | None, lift: bool, output: Output, flags: Flags) -> None:
    """Put a legal hold on the log for MATTER: nothing is removed or erased until it is lifted."""
    if lift == (matter is not None):
        raise UsageError("audit hold: expected either the MATTER, or --lift")
    found = audit_keep.hold(load_config(flags), matter)
    output.note("a legal hold is in force" if found else "the legal hold is lifted")
    output.result(hold=found.matter if found else None)


@click.command("erase")
@click.argument("person")
@click.option("--remote", is_flag=True, help="Also delete the person's keys that were shipped to the repository.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def erase(person: str, remote: bool, yes: bool, output: Output, flags: Flags) -> None:
    """Erase who PERSON is from the log: the events stay and can be proved, the name can not be read any more."""
    if not yes:
        click.confirm(f"Erase {person!r} from the audit log? It can not be undone.", abort=True, err=True)
    objects = 0
    if remote:
        with session(flags, output) as opened:
            objects = audit_remote.erase(opened, person)
    months = audit_keep.erase(load_config(flags), person)
    output.note(f"{plural(len(months), 'key')} erased" + (f", {plural(objects, 'object')} deleted" if remote else ""))
    output.result(months=months, objects=objects)


COMMANDS = {"retain": retain, "hold": hold, "erase": erase}
