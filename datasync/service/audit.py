"""The audit log, for the command line and the API: look, find, verify, prove, anchor. All but `anchor` only read.

A log is this machine's own, one of its earlier ones, or a directory that was brought from elsewhere.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from datasync.audit.checkpoint import Checkpoint, log_id, parse_note, parse_verifier_key, verifier_key
from datasync.audit.event import OUTCOMES
from datasync.audit.prove import prove_event, prove_growth
from datasync.audit.query import Tags, Wanted, last, select
from datasync.audit.rows import Row, row_of, rows
from datasync.audit.seal import People
from datasync.audit.segments import PUBLIC, LogFiles, local_log
from datasync.audit.verify import Verified, check_beginnings, verify_log
from datasync.config import Config
from datasync.errors import FormatError, IntegrityError, NotFound, RollbackError, UsageError
from datasync.service.audit_log import PRIMITIVES, audit_root, live_log, open_log, people_of
from datasync.service.authorize import authorize
from datasync.service.log_key import log_key
from datasync.service.record import recorded

SEEN = "seen"
_SPAN = re.compile(r"([0-9]+)([smhdwy])")
_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}


@dataclass(frozen=True, slots=True)
class Search:
    """What `query` was asked for; persons by name or tag, times as text."""

    actor: str = ""
    target: str = ""
    dataset: str = ""
    action: str = ""
    outcome: str = ""
    request: str = ""
    since: str = ""
    until: str = ""


def local_logs(config: Config) -> list[LogFiles]:
    """Return every log of this machine, its present one first."""
    root = audit_root(config)
    mine = log_id(PRIMITIVES, log_key(config.evidence.parent).public)
    names = sorted(os.listdir(root), key=lambda name: (name != mine, name)) if root.is_dir() else []
    there = [name for name in names if (root / name / PUBLIC).exists()]
    return [live_log(config) if name == mine else local_log(PRIMITIVES, root / name) for name in there]


def chosen(config: Config, directory: Path | None) -> list[LogFiles]:
    """Return the logs that a command is about: the one in *directory*, or this machine's."""
    found = [local_log(PRIMITIVES, directory)] if directory is not None else local_logs(config)
    if not found:
        raise NotFound(f"{audit_root(config)}: no audit log there yet: it begins with the first push or warm")
    return found


def tags_of(people: People, name: str) -> Tags:
    """Return the tags of a person: a tag itself, a whole name, or a name without what follows its `@`."""
    keys = [(key.month, key.tag) for key in people.all_keys() if name in (key.subject, key.subject.split("@")[0])]
    return frozenset([*keys, ("", name)] if re.fullmatch("[0-9a-f]{32}", name) else keys)


def wanted_of(people: People, search: Search) -> Wanted:
    """Return the filter for *search*."""
    if search.outcome not in ("", *OUTCOMES):
        raise UsageError(f"outcome {search.outcome!r}: expected one of {', '.join(OUTCOMES)}")
    return Wanted(
        actors=tags_of(people, search.actor) if search.actor else None,
        concerned=tags_of(people, search.target) if search.target else None,
        dataset=search.dataset,
        action=search.action,
        outcome=search.outcome,
        request=search.request,
        since=moment(search.since),
        until=moment(search.until),
    )


def moment(text: str) -> str:
    """Return a point in time as the log writes it: a date, a time (UTC unless it says so), or a span before now."""
    if not text:
        return ""
    match = _SPAN.fullmatch(text)
    try:
        if match:
            found = datetime.now(UTC) - timedelta(seconds=int(match[1]) * _UNIT[match[2]])
        else:
            found = datetime.fromisoformat(text)
            found = found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"time {text!r}: expected 2026-11-30, 2026-11-30T08:00:00Z, or a span like 7d") from None
    return f"{found:%Y-%m-%dT%H:%M:%S.%f}Z"


def query(config: Config, search: Search, directory: Path | None = None) -> Iterator[Row]:
    """Yield what *search* finds, by time. Recorded before the first one."""
    authorize(config, "ReadAudit")
    people = people_of(config)
    logs = chosen(config, directory)
    with recorded(config, "audit.query", durable=False, filters=_named(search)):
        pass
    return rows(logs, wanted_of(people, search), people)


def _named(search: Search) -> str:
    names = ("actor", "target", "dataset", "action", "outcome", "request", "since", "until")
    return " ".join(name for name in names if getattr(search, name))


def tail(config: Config, search: Search, count: int, directory: Path | None = None) -> list[Row]:
    """Return the last *count* events of what *search* finds, by time."""
    authorize(config, "ReadAudit")
    people = people_of(config)
    wanted = wanted_of(people, search)
    events = [event for log in chosen(config, directory) for event in last(log, wanted, count)]
    events.sort(key=lambda event: (event.time, event.log, event.seq))
    return [row_of(event, people) for event in events[-count:]]


def ends(config: Config, directory: Path | None = None) -> dict[str, int]:
    """Return the number of each log's newest event now."""
    authorize(config, "ReadAudit")
    return {
        log.name: max((event.seq for event in last(log, Wanted(), 1)), default=-1) for log in chosen(config, directory)
    }


def follow(config: Config, search: Search, seen: dict[str, int], directory: Path | None = None) -> list[Row]:
    """Return the wanted events after the numbers in *seen*, which are moved on to each log's end."""
    authorize(config, "ReadAudit")
    people, found = people_of(config), list[Row]()
    wanted = wanted_of(people, search)
    for log in chosen(config, directory):
        for event in select(log, Wanted(seqs=(seen.get(log.name, -1) + 1, 2**63))):
            seen[log.name] = event.seq
            if wanted.matches(event):
                found.append(row_of(event, people))
    return found


def show(config: Config, seq: int, directory: Path | None = None) -> Row:
    """Return event *seq* of the log."""
    authorize(config, "ReadAudit")
    log = chosen(config, directory)[0]
    for event in select(log, Wanted(seqs=(seq, seq + 1))):
        return row_of(event, people_of(config))
    raise NotFound(f"log {log.name}: no event {seq}")


def read_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint in a file that `anchor` wrote, or in a note alone; nothing of it is verified."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: can not be read: {error}") from None
    try:
        note = str(json.loads(text)["checkpoint"]) if text.lstrip().startswith("{") else text
        return parse_note(note)[0]
    except (ValueError, KeyError, TypeError, FormatError):
        raise UsageError(f"{path}: expected a checkpoint, as datasync audit anchor writes it") from None


def verify(
    config: Config,
    directory: Path | None = None,
    *,
    kept: tuple[Checkpoint, ...] = (),
    key: str | None = None,
    max_silence: timedelta | None = None,
) -> list[Verified]:
    """Return what the logs are; raise `IntegrityError` for the first that does not hold. Recorded, of this machine."""
    if directory is not None:
        authorize(config, "ReadAudit")
        (log,) = with_key([local_log(PRIMITIVES, directory)], key)
        done = [verify_log(PRIMITIVES, log, kept=kept, max_silence=max_silence)]
        check_beginnings(done)
        return done
    done = []
    with recorded(config, "audit.verify") as event:
        authorize(config, "ReadAudit", event=event)
        logs = with_key(chosen(config, None), key)
        check_known(kept, {item.name for item in logs})
        check_there(audit_root(config) / SEEN, "", {item.name for item in logs}, key)
        for files in logs:
            seen = audit_root(config) / SEEN / files.name
            mine = [item for item in kept if item.log == files.name]
            mine += [read_checkpoint(seen)] if seen.exists() else []
            done.append(verify_log(PRIMITIVES, files, kept=mine, max_silence=max_silence))
            keep_seen(seen, done[-1].note)
        if key is None:
            check_beginnings(done)
        event.note(logs=len(done), events=sum(item.size - item.begins for item in done))
    return done


def check_there(seen: Path, prefix: str, logs: set[str], key: str | None) -> None:
    """Refuse when a log that was verified before is not there any more (with *key* one log alone is looked at)."""
    names = os.listdir(seen) if seen.is_dir() and key is None else []
    for name in sorted(names):
        log = name.removeprefix(prefix)
        if name.startswith(prefix) and re.fullmatch("[0-9a-f]{32}", log) and log not in logs:
            raise RollbackError(
                f"log {log}: it was verified before and is not there any more: was it deleted? If you moved it away "
                f"yourself, remove {seen / name}, too"
            )


def check_known(kept: tuple[Checkpoint, ...], logs: set[str]) -> None:
    for item in kept:
        if item.log not in logs:
            raise IntegrityError(f"the kept checkpoint is of log {item.log}, which is not here: the log was replaced")


def with_key(logs: list[LogFiles], key: str | None) -> list[LogFiles]:
    """Return the logs of *key* (None: all); refuse when none has it."""
    if key is None:
        return logs
    public = parse_verifier_key(PRIMITIVES, key)
    found = [item for item in logs if item.public == public]
    if not found:
        raise IntegrityError(f"log {logs[0].name}: expected the key of {key.split('+')[0]}: the key was replaced")
    return found


def keep_seen(path: Path, note: str) -> None:
    """Remember the newest checkpoint that was verified here."""
    if note:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        aside.write_text(note)
        os.replace(aside, path)


def prove(config: Config, seq: int, directory: Path | None = None) -> dict[str, Any]:
    """Return the proof that event *seq* is in the log."""
    authorize(config, "ReadAudit")
    return prove_event(PRIMITIVES, chosen(config, directory)[0], seq)


def prove_since(config: Config, old: Checkpoint, directory: Path | None = None) -> dict[str, Any]:
    """Return the proof that the log continues *old*."""
    authorize(config, "ReadAudit")
    return prove_growth(PRIMITIVES, chosen(config, directory)[0], old)


def anchor(config: Config) -> dict[str, Any]:
    """Return the newest checkpoint of this machine's log and its verifier key, to be kept elsewhere. Recorded."""
    with recorded(config, "audit.anchor") as event:
        authorize(config, "ReadAudit", event=event)
    with open_log(config) as log, log.quiet() as found:
        note, size = found.note, found.frontier.size
    key = verifier_key(PRIMITIVES, log_key(config.evidence.parent).public)
    return {"kind": "datasync audit checkpoint", "log": log.id, "size": size, "checkpoint": note, "key": key}
