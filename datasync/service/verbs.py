"""The commands that a daemon runs for others, and what of their arguments is the daemon's own. Pure.

All of them look; none changes a dataset, a key or a policy. `warm`, `run` and `push` ask the daemon by routes of their
own, and what makes, grants, removes or hands out is done by who holds the identity, without a daemon in between.
"""

from collections.abc import Sequence

from datasync.model.limits import KIB

VERBS = (
    "status", "ls", "log", "diff", "du", "verify", "path", "ready", "cache status", "cache ls", "audit tail",
    "audit query", "audit verify", "plan",
)  # fmt: skip
RELAYED = "--relayed"
OWN = (
    "--config", "--repository", "--trust", "--daemon", "--cache", "--log", "--remote", "--output", "--target",
    "--order",
)  # fmt: skip
LINE_BYTES = 512 * KIB  # one printed line: a path has 64 KiB, each byte at most six characters of JSON


def verb_of(arguments: Sequence[str]) -> str | None:
    """Return the verb that *arguments* begin with, None when a daemon does not run it."""
    for count in (1, 2):
        text = " ".join(arguments[:count])
        if text in VERBS and len(arguments) >= count:
            return text
    return None


def refused_option(arguments: Sequence[str]) -> str | None:
    """Return the first option that the daemon answers for itself."""
    for item in arguments:
        if item == "--":
            return None
        name = item.partition("=")[0]
        if name in OWN:
            return name
    return None


def without_daemon(arguments: Sequence[str]) -> list[str]:
    """Return *arguments* without --daemon and its value."""
    found: list[str] = []
    rest = iter(arguments)
    for item in rest:
        if item == "--":
            return [*found, item, *rest]
        if item == "--daemon":
            next(rest, None)
        elif not item.startswith("--daemon="):
            found.append(item)
    return found
