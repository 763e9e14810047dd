"""A command with --daemon: run by the daemon that is named, where it only looks; the same words, progress, exit codes.

`warm`, `plan`, `run`, `push` and the commands of `daemon` speak to a daemon themselves. Every other command with
--daemon is refused, so that nobody thinks that a daemon did it.
"""

import click

from datasync.cli.output import Output, replay
from datasync.config import Flags, load_config
from datasync.errors import StorageUnavailable, UsageError
from datasync.service.client import require_local
from datasync.service.sockets import is_url
from datasync.service.verbs import VERBS, refused_option, verb_of, without_daemon

THEMSELVES = ("warm", "plan", "run", "push", "daemon")


def asked_daemon(flags: Flags, output: Output) -> bool:
    """Let the daemon run this command; False when the command speaks to it itself."""
    arguments: tuple[str, ...] = click.get_current_context().find_root().obj or ()
    if not arguments or arguments[0] in THEMSELVES:
        return False
    verb = verb_of(arguments)
    if verb is None:
        known = ", ".join(dict.fromkeys((*THEMSELVES, *VERBS)))
        raise UsageError(f"{arguments[0]} --daemon: it is done by this process alone; a daemon is asked by {known}")
    if is_url(flags.daemon):
        raise UsageError(
            f"{verb} --daemon: expected a daemon's socket: over TLS a control side lends keys, for warm and run"
        )
    words = without_daemon(arguments)
    refused = refused_option(words)
    if refused is not None:
        raise UsageError(f"{verb} {refused} --daemon: the daemon has its own: leave one of them out")
    api = require_local(load_config(flags))
    if not replay(api.stream("POST", "/v1/commands", {"arguments": words}), output):
        raise StorageUnavailable(f"{api.name}: it ended before the command did: run the same line again")
    return True
