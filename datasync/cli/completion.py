"""datasync completion."""

import click
from click.shell_completion import get_completion_class

from datasync.cli.common import common
from datasync.cli.output import Output
from datasync.config import Flags
from datasync.errors import UsageError


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common
def command(shell: str, output: Output, flags: Flags) -> None:
    """Print the completion script of SHELL; for bash: datasync completion bash >> ~/.bashrc."""
    from datasync.cli.main import cli

    found = get_completion_class(shell)
    if found is None:
        raise UsageError(f"completion: no script for {shell}")
    script = found(cli, {}, "datasync", "_DATASYNC_COMPLETE").source()
    output.line(script)
    output.result(shell=shell, script=script)
