"""datasync audit export and report."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from datasync.audit.export import FORMATS
from datasync.audit.report import REPORTS
from datasync.audit.report.words import LANGUAGES
from datasync.audit.seal import People
from datasync.audit.segments import LogFiles
from datasync.cli.audit import log_option
from datasync.cli.common import common, session
from datasync.cli.output import Output, plural, size
from datasync.cli.output_file import write_file
from datasync.config import Config, Flags, load_config
from datasync.errors import UsageError
from datasync.service import audit, audit_export, audit_remote, audit_report
from datasync.service.audit_log import people_of

remote_option = click.option("--remote", is_flag=True, help="From what all machines shipped to the repository.")


@contextmanager
def _logs(
    flags: Flags, output: Output, directory: Path | None, remote: bool
) -> Iterator[tuple[Config, list[LogFiles], People]]:
    config = load_config(flags)
    if not remote:
        yield config, audit.chosen(config, directory), people_of(config)
        return
    if directory is not None:
        raise UsageError("audit: expected --log or --remote, found both")
    with session(flags, output) as opened, audit_remote.fetched(opened) as (logs, people, _):
        yield config, logs, people


@click.command("export")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="jsonl",
    show_default=True,
    help="The form of the file.",
)
@click.option("--since", metavar="TIME", default="", help="From this on: a date, a time, or a span before now like 7d.")
@click.option("--until", metavar="TIME", default="", help="Before this.")
@click.option(
    "--output", "output_file", type=click.Path(path_type=Path), metavar="FILE", required=True, help="The new file."
)
@remote_option
@log_option
@common
def export(
    form: str,
    since: str,
    until: str,
    output_file: Path,
    remote: bool,
    directory: Path | None,
    output: Output,
    flags: Flags,
) -> None:
    """Write events to a file, by time, and beside it FILE.manifest.json, signed."""
    with _logs(flags, output, directory, remote) as (config, logs, people):
        done = audit_export.export_to(config, logs, people, form, output_file, since, until)
    output.note(
        f"{plural(done['events'], 'event')} ({size(done['bytes'])}) of {plural(len(logs), 'log')} in {output_file}"
    )
    output.result(
        path=str(output_file),
        manifest=str(output_file) + audit_export.MANIFEST,
        format=form,
        events=done["events"],
        bytes=done["bytes"],
        sha256=done["sha256"],
    )


@click.command("report")
@click.argument("name", type=click.Choice(list(REPORTS)))
@click.option("--dataset", default="", metavar="NAME", help="About this dataset; `access` needs it.")
@click.option("--day", default="", metavar="DATE", help="The day, in UTC, like 2026-11-30; `access` needs it.")
@click.option("--person", default="", metavar="PERSON", help="About this person; `person` needs it.")
@click.option("--year", default="", metavar="YEAR", help="Of this year, for `transfers`.")
@click.option("--lang", type=click.Choice(LANGUAGES), default="en", show_default=True, help="The report's language.")
@click.option(
    "--output", "output_file", type=click.Path(path_type=Path), metavar="FILE", help="The new file, .html or .json."
)
@remote_option
@log_option
@common
def report(
    name: str,
    dataset: str,
    day: str,
    person: str,
    year: str,
    lang: str,
    output_file: Path | None,
    remote: bool,
    directory: Path | None,
    output: Output,
    flags: Flags,
) -> None:
    """Make a report: access, person, keys, processing, erasure, transfers, integrity or retention."""
    if output_file is not None and output_file.suffix not in (".html", ".json"):
        raise UsageError(f"{output_file}: expected a name that ends with .html or .json")
    asked = {"dataset": dataset, "day": day, "person": person, "year": year}
    with _logs(flags, output, directory, remote) as (config, logs, people):
        made = audit_report.make(config, name, asked, logs, people)
    value, page = audit_report.render(made, lang)
    text = json.dumps(value, indent=1, ensure_ascii=False)
    if output_file is not None:
        write_file(output_file, page if output_file.suffix == ".html" else text + "\n", new=True)
        output.note(f"written to {output_file}")
    else:
        output.line(text)
    output.result(**value)


COMMANDS = {"export": export, "report": report}
