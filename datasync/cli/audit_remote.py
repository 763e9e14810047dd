"""datasync audit ship."""

import click

from datasync.cli.common import common, session
from datasync.cli.output import Output, plural
from datasync.config import Flags
from datasync.service import audit_remote


@click.command("ship")
@common
def ship(output: Output, flags: Flags) -> None:
    """Send what is new in this machine's log to the repository, sealed to its auditors."""
    with session(flags, output) as opened:
        sent = audit_remote.send(opened)
    output.note(f"{plural(sent.events, 'event')} shipped in {plural(sent.parcels, 'parcel')}")
    output.result(events=sent.events, parcels=sent.parcels, people=sent.people)


COMMANDS = {"ship": ship}
