"""Forget snapshots of a dataset: those that references name, or those that no rule keeps.

Never the newest; never a tagged one unless that is asked for; never one that the policy's retention still keeps. A plan
is made first, so that a person can look at it; acting is recorded, the intent before it, and authorized for each. Ages
are by this machine's clock alone: a signed time of a clock that is ahead must not make everything old.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from datasync.errors import NotFound, UsageError
from datasync.policy.model import nfc
from datasync.repository import forgotten
from datasync.repository.forget import Living, forget, living
from datasync.repository.removal import Kept
from datasync.repository.repository import OpenDataset
from datasync.repository.retention import Dated, KeepRules, decide
from datasync.repository.snapshots import DAY_MS
from datasync.service.authorize import authorize, in_force
from datasync.service.record import recorded
from datasync.service.references import Reference, parse_reference, resolve
from datasync.service.removal import remover
from datasync.service.session import Session


@dataclass(frozen=True, slots=True)
class ForgetOptions:
    """Rules, or none: then references name each snapshot."""

    rules: KeepRules
    include_tagged: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """A snapshot, and what keeps it; nothing: it is to be forgotten."""

    snapshot: Dated
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done with a dataset's snapshots, newest first."""

    dataset: OpenDataset
    choices: list[Choice] = field(repr=False)

    @property
    def chosen(self) -> list[Dated]:
        """The snapshots to forget."""
        return [item.snapshot for item in self.choices if not item.kept]


def plan(session: Session, texts: Iterable[str], options: ForgetOptions) -> list[Plan]:
    """Return what forgetting would do, dataset by dataset; each has to be this identity's own."""
    by_name: dict[str, list[Reference]] = {}
    for text in texts:
        reference = parse_reference(text)
        by_name.setdefault(reference.name, []).append(reference)
    return [_plan(session, name, references, options) for name, references in by_name.items()]


def _plan(session: Session, name: str, references: list[Reference], options: ForgetOptions) -> Plan:
    exact = [item for item in references if item != Reference(name)]
    if options.rules.any and exact:
        raise UsageError(f"{exact[0]}: expected a dataset's name alone beside --keep options")
    if not options.rules.any and len(exact) < len(references):
        raise UsageError(
            f"{name}: expected a snapshot like {name}@3 or {name}@HASH, or a rule like --keep-last 10: a name alone "
            "means the newest snapshot, which is never forgotten"
        )
    dataset = session.repository.open(name)
    forgotten.require_owner(dataset.history)
    authorize(session, "ReadMetadata", dataset)
    if options.rules.any:
        return _by_rules(session, dataset, options)
    return _by_name(session, dataset, exact, options)


def _by_rules(session: Session, dataset: OpenDataset, options: ForgetOptions) -> Plan:
    found = living(dataset.history)
    days, now = _retention(session, dataset), _now()
    choices = []
    for item, reasons in decide(found.snapshots, options.rules, now):
        kept = list(reasons)
        kept += ["newest"] if item.seq >= found.protected and "newest" not in kept else []
        kept += [f"tag {tag}" for tag in item.tags if not options.include_tagged and f"tag {tag}" not in kept]
        kept += [f"policy: {days} days"] if now - item.created < days * DAY_MS else []
        choices.append(Choice(item, tuple(kept)))
    dataset.history.evidence.save()
    return Plan(dataset, choices)


def _retention(session: Session, dataset: OpenDataset) -> int:
    """Return how many days the policies in force keep each snapshot."""
    found = [item.engine.bundle.policy.datasets.get(nfc(dataset.name)) for item in in_force(session, dataset)]
    return max((part.retention_days or 0 for part in found if part is not None), default=0)


def _by_name(session: Session, dataset: OpenDataset, references: list[Reference], options: ForgetOptions) -> Plan:
    found = living(dataset.history)
    by_id = {item.id: item for item in found.snapshots}
    chosen: dict[bytes, Dated] = {}
    for reference in references:
        snapshot = resolve(dataset, reference)
        item = by_id.get(snapshot.id)
        if item is None:
            raise NotFound(f"{reference}: the store does not list this snapshot: run datasync verify {dataset.name}")
        _refuse_protected(reference, item, found, options)
        chosen[item.id] = item
    dataset.history.evidence.save()
    return Plan(dataset, [Choice(item, ()) for item in sorted(chosen.values(), key=lambda item: -item.seq)])


def _refuse_protected(reference: Reference, item: Dated, found: Living, options: ForgetOptions) -> None:
    if item.seq >= found.protected:
        raise UsageError(f"{reference}: it is the newest snapshot, which is never forgotten: push first")
    if item.tags and not options.include_tagged:
        raise UsageError(
            f"{reference}: the tag {item.tags[0]!r} keeps it: remove the tag (`datasync tag --delete`), or pass "
            "--include-tagged"
        )


def carry_out(session: Session, work: Plan) -> list[Kept]:
    """Forget what *work* chose; return the objects that the store keeps all the same."""
    dataset, chosen = work.dataset, work.chosen
    fields: dict[str, Any] = {"dataset": dataset.name, "dataset_id": dataset.id}
    fields["snapshots"] = numbers(item.seq for item in chosen)
    with recorded(session, "forget", security=True, **fields) as event:
        now = _now()
        for number, item in enumerate(chosen):
            age = max(0, now - item.created) // DAY_MS
            authorize(session, "Forget", dataset, event=event, seq=item.seq, age_days=age, fresh=number == 0)
        kept = forget(dataset.history, chosen, remover(session))
        dataset.history.evidence.save()
        event.note(forgotten=len(chosen), kept=len(kept) or None)
        return kept


def _now() -> int:
    return int(time.time() * 1000)


def numbers(found: Iterable[int]) -> str:
    """Return numbers as ranges: `1-3,7`."""
    return ",".join(f"{low}-{high}" if high > low else f"{low}" for low, high in _ranges(sorted(found)))


def _ranges(ordered: list[int]) -> Iterator[tuple[int, int]]:
    start = before = None
    for number in ordered:
        if before is None or start is None or number > before + 1:
            if start is not None and before is not None:
                yield start, before
            start = number
        before = number
    if start is not None and before is not None:
        yield start, before
