"""Warm wherever it is best: by this machine's daemon, with a key that a control side lends, or alone.

The daemon is asked when it serves the same repository and cache as this command line, or when `--daemon` names it; so a
job needs no key of its own, and without a daemon everything works as before. What speaks to a daemon or a control side
is loaded only where there may be one: HTTP, TLS and their settings take 15 ms. Raises as a warm does; the daemon's
errors keep their class.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from datasync.config import Config
from datasync.errors import UsageError
from datasync.service.session import Session
from datasync.service.sockets import is_url, listening
from datasync.service.warm import Report, Warmed, WarmOptions, warm

if TYPE_CHECKING:
    from datasync.service.client import Api


def warm_by_daemon(
    session: Session,
    reference: str,
    report: Report,
    waiting: Callable[[], None] | None,
    options: WarmOptions,
) -> Warmed:
    """Return a ready view of what *reference* means."""
    config = session.config
    api = daemon_for(config)
    if api is not None and options.group is not None:
        raise other_readers(api, options.group)
    if api is not None:
        from datasync.service.daemon_warm import ask

        return ask(api, reference, report, waiting, options, session.warn)
    if config.tables or is_url(config.daemon):  # which may name a control side
        from datasync.service.borrow import Lender, borrowed

        if Lender(config).lends:
            with borrowed(config, reference, session.warn) as (lent, exact):
                return warm(lent, exact, report, waiting, options)
    return warm(session, reference, report, waiting, options)


def other_readers(api: "Api", group: str) -> UsageError:
    """Return the refusal of a group where a daemon decides who reads."""
    return UsageError(
        f"group {group!r}: {api.name} makes the view, and its own settings say who reads: "
        "set [cache] group there, or pass --daemon off"
    )


def daemon_for(config: Config) -> "Api | None":
    """Return the daemon of this machine if it serves what this command line means."""
    path = listening(config)
    if path is None:
        return None
    from datasync.service.daemon_warm import usable

    return usable(config, path)
