"""Every command and option says what it is for, in full, and in the same words everywhere."""

from collections.abc import Iterator

import click
import pytest

from datasync.cli.main import cli


def _commands(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _commands(found, click.Context(found, info_name=name, parent=context))


ALL = [
    pytest.param(command, context, id=context.command_path)
    for command, context in _commands(cli, click.Context(cli, info_name="datasync"))
]
UNNAMED = {"TEXT", "INTEGER", "INTEGER RANGE", "FLOAT"}  # what click calls a value that nobody named


@pytest.mark.parametrize(("command", "context"), ALL)
def test_every_command_and_option_has_a_help_text(command: click.Command, context: click.Context) -> None:
    options = [item for item in command.params if isinstance(item, click.Option) and not item.hidden]
    assert command.help
    assert [item.name for item in options if not item.help] == []


@pytest.mark.parametrize(("command", "context"), ALL)
def test_every_value_of_an_option_is_named(command: click.Command, context: click.Context) -> None:
    options = [item for item in command.params if isinstance(item, click.Option) and not item.hidden]
    valued = [item for item in options if not item.is_flag and not item.count]
    unnamed = [item.name for item in valued if item.metavar is None and item.make_metavar(context) in UNNAMED]
    assert unnamed == []
    outputs = [item.make_metavar(context) for item in valued if "--output" in item.opts]
    assert outputs in ([], ["FILE"])


@pytest.mark.parametrize(("command", "context"), [item for item in ALL if isinstance(item.values[0], click.Group)])
def test_a_group_shows_the_whole_first_sentence_of_its_commands(command: click.Group, context: click.Context) -> None:
    _, _, commands = command.get_help(context).partition("Commands:")
    assert commands
    assert "..." not in commands
