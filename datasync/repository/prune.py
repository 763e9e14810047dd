"""Prune: condemn the packs that nothing needs, delete those that were condemned long enough ago, and seal anew what is
left in packs that are mostly spare (docs/format.md, section 12).

Order of one run: survey, which ends the run when a needed pack is not there; seal chosen packs anew, tell their new
places, and only then name them as emptied; write the list; by the store's clock on that list, and once snapshots that
came meanwhile are surveyed, delete what is due; write the list without what is gone. Each step is found again by the
next run, so a run that is killed anywhere only leaves work over, and two at a time only do some of it twice.

Why a push loses nothing: it reads the list before it begins and before it commits, and relies on no pack on it; a pack
stays on the list for the grace time, which is twice as long as any push may take; and a pack is deleted only while no
living snapshot needs it. That the grace time is over, the store tells alone: a list that it took so long ago names the
pack already, whatever times lists hold. Packs that are younger than half the grace time are left alone unless a list
names them: they may be a running push's, or in its journal.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

from datasync.errors import IntegrityError, NoSpace, NotFound
from datasync.format import pack as packs
from datasync.format.control import Condemned
from datasync.format.names import numbered as numbered_name
from datasync.format.names import pack_name
from datasync.repository.condemned import (
    GRACE_MS,
    LISTED_PACKS,
    condemn,
    listed_at,
    read_list,
    require_signer,
    set_times,
)
from datasync.repository.forget import sweep
from datasync.repository.relocate import publish
from datasync.repository.removal import Kept, Remove
from datasync.repository.reseal import Resealed, Sealer
from datasync.repository.snapshots import History
from datasync.repository.survey import Survey

YOUNG_MS = GRACE_MS // 2  # a push that takes longer starts over, and its journal forgets packs of that age
CLOCKS_APART_MS = 5 * 60_000  # a time on a list may differ from the store's by this
MAX_UNUSED = 0.05  # share of the needed packs' bytes that may be spare


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """How much may be spare, whether packs are sealed anew, how long the grace time is (ms, at least 14 days)."""

    max_unused: float = MAX_UNUSED
    repack: bool = True
    grace: int = GRACE_MS
    dry_run: bool = False


@dataclass(slots=True)
class Pruned:
    """What was done, or with a dry run would be: packs and bytes. `waiting` are condemned and not due yet, `young` too
    new to judge, `left` were found and have no room on the list.
    """

    snapshots: int = 0
    packs: int = 0
    bytes: int = 0
    spare_bytes: int = 0
    repacked: int = 0
    repacked_bytes: int = 0
    condemned: int = 0
    condemned_bytes: int = 0
    deleted: int = 0
    deleted_bytes: int = 0
    waiting: int = 0
    young: int = 0
    left: int = 0
    no_clock: bool = False
    kept: list[Kept] = field(default_factory=list)


def prune(history: History, options: PruneOptions, remove: Remove, report: Callable[[Pruned], None]) -> Pruned:
    """Prune one dataset; raise before anything is written when not everything that is needed could be read."""
    done = Pruned()
    require_signer(history)

    def count(snapshots: int) -> None:
        done.snapshots = snapshots
        report(done)

    try:
        with closing(Survey(history, count)) as survey:
            _Run(history, options, remove, report, survey, done).run()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
            raise
        raise NoSpace(
            f"dataset {history.dataset.hex()[:16]}: no space for the temporary tables of the survey: make room, or set "
            "TMPDIR to another disk, then run the same line again"
        ) from error
    history.evidence.save()
    return done


@dataclass(slots=True)
class _Run:
    history: History
    options: PruneOptions
    remove: Remove
    report: Callable[[Pruned], None]
    survey: Survey
    done: Pruned

    def run(self) -> None:
        done, survey = self.done, self.survey
        survey.list_stored()  # before the snapshots: a pack that comes later is not found spare
        survey.collect()
        self._refuse_missing()
        done.packs, done.bytes = survey.totals()
        listed, _ = read_list(self.history)
        survey.note_condemned(pack for pack, _ in listed.packs)
        self._choose()
        if self.options.dry_run:
            self._condemn(listed, write=False)
            self._delete(self._due(listed, self.history.now()), write=False)
            return
        emptied = self._repack()
        done.kept += sweep(self.history, self.remove)
        listed = self._condemn(listed, emptied)
        if self._due(listed, self.history.now()):
            listed = self._look_again()
            now = self._store_time(listed)
            done.no_clock = now is None
            long_listed = listed_at(self.history, now - self.options.grace) if now is not None else frozenset()
            self._delete([pack for pack in self._due(listed, now or 0) if pack in long_listed], write=True)
        done.waiting = len(read_list(self.history)[0].packs)

    def _refuse_missing(self) -> None:
        """Raise when a needed pack is not in the store: what says that others are spare may be wrong, too."""
        gone = [pack for pack in self.survey.unlisted() if self._is_gone(pack)]
        if gone:
            raise IntegrityError(
                f"{pack_name(self.history.dataset, gone[0])}: a snapshot needs this pack, and the store does not have "
                f"it ({len(gone):,} in all), so nothing is pruned: run datasync verify, then bring the packs back or "
                "forget the snapshots that it names"
            )

    # seal anew

    def _choose(self) -> None:
        done = self.done
        done.spare_bytes, needed = self.survey.measure()
        if self.options.repack:
            excess = done.spare_bytes - int(self.options.max_unused * needed)
            done.repacked, done.repacked_bytes = self.survey.choose(excess)

    def _repack(self) -> list[bytes]:
        """Seal the chosen packs' chunks anew; return the packs that are empty then."""
        chosen = self.survey.chosen()
        if not chosen:
            return []
        sealed = Resealed()
        for type_ in (packs.DATA, packs.METADATA):
            Sealer(self.history, type_, sealed, lambda _: self.report(self.done)).run(self.survey)
        publish(self.history, emptied=chosen)
        return chosen

    # condemn

    def _condemn(self, listed: Condemned, emptied: list[bytes] | None = None, *, write: bool = True) -> Condemned:
        """Put what nothing needs on the list, take what is gone off it, and let the time of what is needed after all
        begin anew; return the list as it is then.
        """
        before = (self.history.now() - YOUNG_MS) / 1000
        room, there = LISTED_PACKS - len(listed.packs), {pack for pack, _ in listed.packs}
        found = [pack for pack in emptied or () if pack not in there]
        found += [pack for pack, _ in self.survey.unneeded(before=before)]
        added, self.done.left = found[: max(0, room)], max(0, len(found) - room)
        self.done.young = self.survey.count_young(since=before)
        self.done.condemned = len(added)
        self.done.condemned_bytes = sum(self.survey.stored_size(pack) or 0 for pack in added)
        gone = [pack for pack, _ in listed.packs if self._is_gone(pack)]
        moved = frozenset(emptied or ())  # of these readers may just have begun to read
        needed = [
            pack for pack, since in listed.packs if pack in moved or (self.survey.needs(pack) and self._is_due(since))
        ]
        if not write or not (added or gone or needed):
            return listed
        made = condemn(self.history, added, gone, restarted=needed)
        return self._by_store_time(made, {*added, *needed})

    def _is_gone(self, pack: bytes) -> bool:
        """Tell whether the store has *pack* no more; a listing alone may lag."""
        if self.survey.stored_size(pack) is not None:
            return False
        try:
            self.history.store.stat(pack_name(self.history.dataset, pack))
        except NotFound:
            return True
        return False

    def _is_due(self, since: int) -> bool:
        return self.history.now() - since >= self.options.grace

    def _by_store_time(self, made: Condemned, new: set[bytes]) -> Condemned:
        """Correct the times of *new* on the list where this machine's clock is not the store's."""
        now = self._store_time(made)
        if now is None:
            return made
        wrong = [(pack, now) for pack, since in made.packs if pack in new and abs(now - since) > CLOCKS_APART_MS]
        return set_times(self.history, wrong) if wrong else made

    def _store_time(self, listed: Condemned) -> int | None:
        """Return when *listed* was stored, in ms by the store's clock: it was written in this run. None for a store
        that does not tell.
        """
        names = self.history.store.list(self.history.prefix("condemned") + numbered_name(listed.number))
        modified = max(item.modified for item in names)
        return int(modified * 1000) if modified > 0 else None

    # delete

    def _due(self, listed: Condemned, now: int) -> list[bytes]:
        """Return the packs whose grace time is over at *now* and that nothing needs."""
        return [
            pack
            for pack, since in listed.packs
            if now - since >= self.options.grace
            and self.survey.stored_size(pack) is not None
            and not self.survey.needs(pack)
        ]

    def _look_again(self) -> Condemned:
        """Write the list once more, so that its own time tells what the store's clock says now; then survey what came
        meanwhile.
        """
        made = condemn(self.history, ())
        while self.survey.collect():
            continue
        return made

    def _delete(self, due: list[bytes], *, write: bool) -> None:
        done = self.done
        names = {pack_name(self.history.dataset, pack): pack for pack in due}
        if write:
            self._end_entries(due)
        kept = self.remove(names) if write else []
        held = {names[item.name] for item in kept}
        gone = [pack for pack in due if pack not in held]
        done.kept += kept
        done.deleted = len(gone)
        done.deleted_bytes = sum(self.survey.stored_size(pack) or 0 for pack in gone)
        self.report(done)
        if write and gone:
            condemn(self.history, (), gone)

    def _end_entries(self, due: list[bytes]) -> None:
        """Name packs that relocations lead to as emptied before they go, so that no reader follows an old entry."""
        table = self.history.relocations
        targets = [pack for pack in due if table is not None and table.holds(pack) and not table.has_emptied(pack)]
        if targets:
            publish(self.history, emptied=targets)
