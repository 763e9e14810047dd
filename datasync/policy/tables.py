"""Decision tables: who may do what, as rows that a test runs (docs/policy.md).

    at = 2026-06-01                                       # when, where a row does not say
    rows = [
      ["alice", "ReadData", "imagenet", "allow", "readers"],
      ["alice", "Warm", "scans", "deny", "guard-residency", { region = "us-east" }],
    ]

A row holds who, action, dataset (`*`: the repository), allow or deny, the policies that decide (`""`: none permits it),
and evidence. Raises `UsageError`.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from datasync.errors import UsageError
from datasync.policy.bundle import EVERYTHING, TABLE, Bundle
from datasync.policy.decide import PolicyEngine
from datasync.policy.model import Decision, Evidence, Request, parse_principal
from datasync.policy.toml import moment, read_toml

ROWS = 100_000  # of one table
FIELDS = 5


class RowEvidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a row takes for verified."""

    at: datetime | None = None
    mfa: bool = False
    attested: bool = False
    approvals: int = 1
    region: str | None = None
    purpose: str | None = None
    source: str | None = None
    node: str | None = None
    age_days: int | None = None


class TableFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table as it is written."""

    at: datetime
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One row: what is asked, and what is expected."""

    table: str
    number: int
    request: Request
    allow: bool
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        asked = self.request
        return f"{self.table} row {self.number}: {asked.principal} {asked.action} {asked.dataset or EVERYTHING}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a row expected and what was decided."""

    row: Row
    decision: Decision

    @property
    def holds(self) -> bool:
        """Tell whether it came as expected: the decision, and who decided."""
        found = self.decision
        return (found.allow, found.reasons) == (self.row.allow, self.row.reasons) and not found.errors


def read_tables(bundle: Bundle) -> list[Row]:
    """Return every row of every table in *bundle*."""
    return [
        row for name in sorted(bundle.files) if name.endswith(TABLE) for row in read_table(name, bundle.files[name])
    ]


def read_table(name: str, text: str) -> list[Row]:
    """Return the rows of the table in *text*."""
    table: TableFile = read_toml(name, text, TableFile)
    if len(table.rows) > ROWS:
        raise UsageError(f"{name}: expected at most {ROWS} rows, found {len(table.rows)}")
    return [_row(name, number, cells, table.at) for number, cells in enumerate(table.rows, 1)]


def _row(name: str, number: int, cells: tuple[Any, ...], at: datetime) -> Row:
    what = f"{name}: row {number}"
    if len(cells) not in (FIELDS, FIELDS + 1) or not all(isinstance(cell, str) for cell in cells[:FIELDS]):
        raise UsageError(f'{what}: expected [who, action, dataset, "allow" or "deny", deciding policies, {{evidence}}]')
    who, action, dataset, expected, deciding = cells[:FIELDS]
    if expected not in ("allow", "deny"):
        raise UsageError(f"{what}: expected allow or deny, found {expected!r}")
    try:
        given = msgspec.convert(cells[FIELDS] if len(cells) > FIELDS else {}, RowEvidence)
    except msgspec.ValidationError as error:
        raise UsageError(f"{what}: {error}") from None
    fields = msgspec.structs.asdict(given)
    evidence = Evidence(now=moment(fields.pop("at") or at), **fields)
    request = Request(parse_principal(who), action, None if dataset == EVERYTHING else dataset, evidence)
    return Row(name, number, request, expected == "allow", tuple(sorted(deciding.split())))


def run(engine: PolicyEngine, rows: list[Row]) -> list[Outcome]:
    """Return what *engine* decides of every row."""
    decisions = engine.decide_all([row.request for row in rows])
    return [Outcome(row, decision) for row, decision in zip(rows, decisions, strict=True)]
