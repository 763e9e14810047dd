"""datasync jobs."""

from pathlib import Path

import click

from datasync.cli.common import CommandGroup, common
from datasync.cli.output import Output
from datasync.config import Flags, load_config
from datasync.errors import UsageError
from datasync.integrations.jobs import VARIANTS, Job, render

SCRIPT_MODE = 0o755


@click.group("jobs", cls=CommandGroup)
def command() -> None:
    """Ready-made job files, filled in for a dataset."""


@command.command("render")
@click.argument("kind", type=click.Choice(list(VARIANTS)))
@click.argument("reference")
@click.option("--command", "line", metavar="LINE", help="What the job runs, a line for bash; for torchrun its script.")
@click.option("--cache", metavar="DIR", help="The cache directory on the node; for k8s a host path, else an emptyDir.")
@click.option("--nodes", type=int, metavar="N", default=1, show_default=True, help="The number of nodes.")
@click.option(
    "--image", metavar="IMAGE", help="The container image, for k8s, skypilot and docker; it has datasync in it."
)
@click.option("--variant", metavar="NAME", help="slurm: prolog or run; k8s: init or sidecar.")
@click.option(
    "--output", "target", type=click.Path(path_type=Path), metavar="FILE", help="Write this file instead of stdout."
)
@common
def render_command(
    kind: str,
    reference: str,
    line: str | None,
    cache: str | None,
    nodes: int,
    image: str | None,
    variant: str | None,
    target: Path | None,
    output: Output,
    flags: Flags,
) -> None:
    """Print the job file of KIND that makes REFERENCE ready before the job and tells it the path."""
    config = load_config(flags)
    text = render(kind, Job(reference, line, config.repository, config.trust, cache, nodes, image), variant)
    if target is None:
        output.line(text.removesuffix("\n"))
    else:
        _write(target, text)
        output.note(f"{target}: written")
    output.result(kind=kind, output=str(target) if target else None, text=text)


def _write(target: Path, text: str) -> None:
    try:
        target.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            target.chmod(SCRIPT_MODE)
    except OSError as error:
        raise UsageError(f"{target}: cannot be written: {error.strerror}") from None
