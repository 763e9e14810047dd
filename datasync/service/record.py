"""The one way in which the service records what it does.

    with recorded(session, "push", dataset=name) as event:
        ...
        event.note(snapshot=id.hex(), snapshot_seq=seq, bytes=size)

One event when the block ends: `success`, `partial` (PartialFailure), `denied` (NotAuthorized, WrongKey) or `failure`
with the error's class and reason; an IntegrityError records an alarm besides. With `security=True` (grant, revoke,
rotate, shred, release, export, delete, purge) an `intent` event is durable before the block runs, and nothing runs when
it can not be written. Otherwise the log is only made ready before, and the event is written, one fdatasync, after: what
can not be recorded fails. `durable=False` is for looking (`ls`, `status`): written, not flushed to the disk.

Fields are those of `datasync.audit.event.CALLER_FIELDS`; subject, issuer, method, behalf, address, host and key say who
acts, by default the user of this process; target, target_issuer and target_key whom it concerns; both are sealed. Other
names go to `detail`. Bytes become hex; text is cut and control characters are escaped when it is shown, not here. Never
pass keys, tokens, URLs with credentials, file contents or file names; an error's reason loses its file names here.
"""

import getpass
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from datasync import __version__
from datasync.audit.event import CALLER_FIELDS, REASON_CHARACTERS
from datasync.audit.log import Draft, Log, draft
from datasync.audit.seal import Person
from datasync.config import Config
from datasync.crypto.signatures import SigningKey, signer_text
from datasync.errors import DatasyncError, IntegrityError, NotAuthorized, PartialFailure, RollbackError, WrongKey
from datasync.service.audit_log import open_log
from datasync.service.seed_file import seed_at

if TYPE_CHECKING:
    from datasync.service.session import Session

TEXT_CHARACTERS = 4_096  # of any other text field
_PATH = re.compile(r"(?<![\w:/<>])/(?:[^:\n]*(?=: )|[^\s:,;'\")\]]+)")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_IN_URL = re.compile(r"(?<=://)[^\s/'\"]*@|(?<=\w)\?[\w%.~+-]+=[^\s'\")]*")
_RECORDED = "datasync_recorded"  # marks an error that an event has told
_WHO = ("subject", "issuer", "method", "behalf", "address", "host", "key")
_WHOM = {"target": "subject", "target_issuer": "issuer", "target_key": "key"}


class Recording:
    """What an event will say; `note` adds to it until the block ends."""

    def __init__(self, config: Config, action: str, fields: dict[str, Any]) -> None:
        self.config = config
        self.action = action
        self._fields: dict[str, Any] = {}
        self._outcome = "success"
        self.note(**fields)

    def note(self, **fields: Any) -> None:
        """Add or replace fields; None leaves a field as it was."""
        self._fields |= {name: value for name, value in fields.items() if value is not None}

    def decided(self, policy: str, by: tuple[str, ...]) -> None:
        """Add a decision: the digests of the policies that were asked, and the statements that decided. An act that
        asks several times tells all of them.
        """
        asked = [*str(self._fields.get("policy", "")).split(), *policy.split()]
        told = (*self._fields.get("decided_by", ()), *by)
        self.note(policy=" ".join(dict.fromkeys(asked)), decided_by=tuple(dict.fromkeys(told)))

    def outcome(self, outcome: str, reason: str = "") -> None:
        """Say how it ended where no error does."""
        self._outcome = outcome
        self._fields["reason"] = reason

    def draft(self, outcome: str | None = None, error: BaseException | None = None, action: str = "") -> Draft:
        """Return the event as it stands."""
        given = {name: _plain(value) for name, value in self._fields.items()}
        who = {name: str(given.pop(name)) for name in _WHO if name in given}
        whom = {inner: str(given.pop(name)) for name, inner in _WHOM.items() if name in given}
        detail = {name: given.pop(name) for name in list(given) if name not in CALLER_FIELDS}
        if error is not None:
            given |= {"error": type(error).__name__, "reason": _cut(without_paths(str(error)), REASON_CHARACTERS)}
        base = {"node": _node(self.config), "software": __version__, "repository": _repository(self.config)}
        base |= {"node_region": self.config.audit.region, "region": _region(self.config)}
        return draft(
            action or self.action,
            outcome or self._outcome,
            _actor() if not who else Person(**{"subject": "", **who}),
            Person(**{"subject": whom.get("key", ""), **whom}) if whom else None,
            detail={name: value if isinstance(value, int) else str(value) for name, value in detail.items()},
            **(base | given),
        )


@contextmanager
def recorded(
    where: "Session | Config", action: str, *, security: bool = False, durable: bool = True, **fields: Any
) -> Iterator[Recording]:
    """Record *action* around the block (see above)."""
    config = where if isinstance(where, Config) else where.config
    event = Recording(config, action, fields)
    with open_log(config) as log:
        if security:
            log.append(event.draft("intent"), sync=True)
        else:
            log.ready()
        try:
            yield event
        except BaseException as error:
            _failed(log, event, error)
            raise
        log.append(event.draft(), sync=durable)
        log.flush(durable=durable)


def _failed(log: Log, event: Recording, error: BaseException) -> None:
    """Record how it failed; an error of the log itself adds to the first one, and does not hide it."""
    outcome = "failure"
    if isinstance(error, NotAuthorized | WrongKey):
        outcome = "denied"
    elif isinstance(error, PartialFailure):
        outcome = "partial"
    try:
        if isinstance(error, IntegrityError):
            alarm = "alarm.rollback" if isinstance(error, RollbackError) else "alarm.integrity"
            log.append(event.draft("failure", error, action=alarm), sync=False)
        log.append(event.draft(outcome, error), sync=True)
        error.__dict__[_RECORDED] = True
    except DatasyncError as unrecorded:
        error.add_note(f"and this failure could not be recorded: {unrecorded}")


@contextmanager
def watched(where: "Session | Config") -> Iterator[None]:
    """Record an alarm for an IntegrityError that leaves the block and that no event inside told."""
    try:
        yield
    except IntegrityError as error:
        if _RECORDED not in error.__dict__:
            try:
                alarm(where, error)
            except DatasyncError as unrecorded:
                error.add_note(f"and this alarm could not be recorded: {unrecorded}")
        raise


@contextmanager
def refusals(where: "Session | Config", action: str, **fields: Any) -> Iterator[None]:
    """Record a refusal (`NotAuthorized`, `WrongKey`) of *action* that leaves the block and that no event inside told:
    who may not do it, or has no key, is refused before there is anything to do.
    """
    try:
        yield
    except (NotAuthorized, WrongKey) as error:
        if _RECORDED not in error.__dict__:
            event = Recording(where if isinstance(where, Config) else where.config, action, fields)
            with open_log(event.config) as log:
                _failed(log, event, error)
        raise


def alarm(where: "Session | Config", error: IntegrityError, **fields: Any) -> None:
    """Record an alarm about something that was found and does not end the action."""
    config = where if isinstance(where, Config) else where.config
    name = "alarm.rollback" if isinstance(error, RollbackError) else "alarm.integrity"
    with open_log(config) as log:
        log.append(Recording(config, name, fields).draft("failure", error), sync=True)


def without_paths(text: str) -> str:
    """Return an error's message without names of files (absolute paths up to what is said of them, and what it quotes)
    and without what a URL may carry besides a place: a user, a password, a signature.
    """
    return _QUOTED.sub("'…'", _PATH.sub("<path>", _IN_URL.sub("", text))) or "interrupted"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value
    if isinstance(value, list | tuple):
        return tuple(_cut(str(item), TEXT_CHARACTERS) for item in value)
    return _cut(str(value), TEXT_CHARACTERS)


def _cut(text: str, limit: int) -> str:
    """Return *text* as UTF-8 can hold it, not longer than *limit*."""
    clean = text.encode("utf-8", "backslashreplace").decode()
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


@cache
def _actor() -> Person:
    """Return the user of this process, as the system names it: this machine's word, no more."""
    name = str(os.getuid())
    with suppress(KeyError, OSError):
        name = getpass.getuser()
    host = socket.gethostname()
    return Person(f"{name}@{host}", method="os-user", host=host)


def _node(config: Config) -> str:
    return _node_text(str(config.evidence.parent))


@cache
def _node_text(directory: str) -> str:
    return signer_text(SigningKey(seed_at(Path(directory) / "node.key")).public)


def _region(config: Config) -> str:
    """Return the region that the repository's URL names."""
    query = (config.repository or "").partition("?")[2]
    return parse_qs(query).get("region", [""])[0]


def _repository(config: Config) -> str:
    """Return the repository's URL without what may hold credentials."""
    scheme, mark, rest = (config.repository or "").partition("://")
    if not mark:
        return config.repository or ""
    place, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"
