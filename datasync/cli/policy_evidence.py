"""Options that say what a question takes for verified."""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from datasync.errors import UsageError
from datasync.service.policy_questions import evidence_of


@dataclass(frozen=True, slots=True)
class Given:
    """The options as they were given."""

    at: str | None
    fields: dict[str, Any]

    def evidence(self) -> Any:
        """Return the evidence for the engine."""
        return evidence_of(_moment(self.at), **self.fields)


def evidence_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --at, --region, --purpose, --node, --source, --mfa, --attested, --approvals and --age; pass a `Given`."""

    @click.option("--at", metavar="TIME", help="At this time: 2026-12-31 or 2026-12-31T18:00Z; by default now.")
    @click.option("--region", metavar="NAME", help="On a machine in this region.")
    @click.option("--purpose", metavar="NAME", help="For this purpose.")
    @click.option("--node", metavar="NAME", help="On this node, as the policy calls it.")
    @click.option("--source", metavar="IP", help="From this address.")
    @click.option("--mfa", is_flag=True, help="With a second factor.")
    @click.option("--attested", is_flag=True, help="On an attested machine.")
    @click.option(
        "--approvals", type=click.IntRange(min=1), metavar="N", default=1, help="With so many people's signatures."
    )
    @click.option(
        "--age", "age_days", type=click.IntRange(min=0), metavar="DAYS", help="For a snapshot so many days old."
    )
    @functools.wraps(function)
    def wrapper(*args: Any, at: str | None, **kwargs: Any) -> Any:
        names = ("region", "purpose", "node", "source", "mfa", "attested", "approvals", "age_days")
        given = Given(at, {name: kwargs.pop(name) for name in names})
        return function(*args, given=given, **kwargs)

    return wrapper


def _moment(text: str | None) -> int:
    if text is None:
        return int(time.time() * 1000)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(f"time {text!r}: expected a date like 2026-12-31 or a time like 2026-12-31T18:00Z") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
