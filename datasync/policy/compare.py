"""Whose access differs between two bundles, and who may do what: over all principals, datasets and actions."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, product

from datasync.policy.bundle import of_machine
from datasync.policy.decide import PolicyEngine
from datasync.policy.model import ACTIONS, Decision, Evidence, Principal, Request
from datasync.policy.situations import Changes, changes, rare_situations, situations

BATCH = 10_000  # requests at once
SEARCH = 20_000  # decisions in rare situations, twice; about five seconds
BESIDE = {"region", "purpose"}  # what built-in denials ask for besides assurances

Cell = tuple[Principal, str, str | None]


@dataclass(frozen=True, slots=True)
class Changed:
    """One cell whose answer differs, and in which situation first (empty: as things are)."""

    principal: Principal
    action: str
    dataset: str | None
    situation: str
    before: Decision
    after: Decision


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """What one principal may do with one dataset (None: with the repository)."""

    principal: Principal
    dataset: str | None
    actions: tuple[str, ...]


def compare(old: PolicyEngine, new: PolicyEngine, base: Evidence) -> list[Changed]:
    """Return every cell that *old* and *new* decide differently: as things are, in any single situation that either
    speaks of, and in those that a changed statement asks for, all its kinds of evidence at once first, as far as
    `SEARCH` decisions reach.
    """
    cells = _cells(old, new)
    found: dict[Cell, Changed] = {}
    usual = ((cells, *situation) for situation in situations(base, _offered(old, new)))
    for concerned, words, evidence in chain(usual, _rare(old, new, base, cells)):
        asked = [cell for cell in concerned if cell not in found]
        for cell, before, after in _differences(old, new, asked, evidence):
            found[cell] = Changed(*cell, words, before, after)
    return [found[cell] for cell in cells if cell in found]


def _offered(old: PolicyEngine, new: PolicyEngine) -> Changes:
    """Return what their answers may turn on."""
    offered = changes(old.bundle, old.statements)
    return offered + [item for item in changes(new.bundle, new.statements) if item not in offered]


def _rare(
    old: PolicyEngine, new: PolicyEngine, base: Evidence, cells: list[Cell]
) -> Iterator[tuple[list[Cell], str, Evidence]]:
    """Yield the cells that each changed statement can be about, and the situations that it asks for."""
    changed = [
        (one, name)
        for one, other in ((old, new), (new, old))
        for name, item in one.statements.items()
        if other.statements.get(name) != item
    ]
    for one, name in changed:
        actions = {action for action in ACTIONS if name in one.about(action)}
        concerned = [cell for cell in cells if cell[1] in actions]
        most = SEARCH // len(changed) // max(1, len(concerned))
        for words, evidence in islice(rare_situations(base, _asked_for(one, name)), most):
            yield concerned, words, evidence


def _asked_for(engine: PolicyEngine, name: str) -> Changes:
    """Return what the statement *name* speaks of, and the regions and purposes that a denial may ask for beside it."""
    forbids = {other: item for other, item in engine.statements.items() if item["effect"] == "forbid"}
    own = changes(engine.bundle, {name: engine.statements[name]})
    beside = [item for item in changes(engine.bundle, forbids) if item not in own and item[1].keys() <= BESIDE]
    return own + beside


def _cells(*engines: PolicyEngine) -> list[Cell]:
    principals = sorted({item for engine in engines for item in engine.bundle.principals()})
    datasets = sorted({name for engine in engines for name in engine.bundle.policy.datasets})
    return [
        (principal, action, dataset) for principal, dataset, action in product(principals, [None, *datasets], ACTIONS)
    ]


def _differences(
    old: PolicyEngine, new: PolicyEngine, cells: list[Cell], evidence: Evidence
) -> Iterator[tuple[Cell, Decision, Decision]]:
    for cell, before, after in zip(cells, _decided(old, cells, evidence), _decided(new, cells, evidence), strict=True):
        if before.allow != after.allow:
            yield cell, before, after


def _decided(engine: PolicyEngine, cells: list[Cell], evidence: Evidence) -> Iterator[Decision]:
    known = {item: of_machine(engine.bundle, item, evidence) for item in {cell[0] for cell in cells}}
    requests = (Request(principal, action, dataset, known[principal]) for principal, action, dataset in cells)
    while batch := list(islice(requests, BATCH)):
        yield from engine.decide_all(batch)


def matrix(engine: PolicyEngine, evidence: Evidence) -> Iterator[MatrixRow]:
    """Yield for every principal and dataset what is allowed under *evidence*."""
    cells = _cells(engine)
    allowed: dict[tuple[Principal, str | None], list[str]] = {}
    for (principal, action, dataset), decision in zip(cells, _decided(engine, cells, evidence), strict=True):
        allowed.setdefault((principal, dataset), []).extend([action] if decision.allow else [])
    for (principal, dataset), actions in allowed.items():
        yield MatrixRow(principal, dataset, tuple(actions))
