"""One event of the audit log, and its one encoding: the leaf of the tree (docs/format.md, section 15).

JSON of the fields in the order below, absent when they have their default, no white space, UTF-8. What parses must
encode to the same bytes again. An event never holds keys, tokens, signed URLs or file contents; who did it and whom it
concerns are sealed (`datasync.audit.seal`). Raises `FormatError` for bytes, `UsageError` for an event too large.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Literal

import msgspec

from datasync.errors import FormatError, UsageError

VERSION = 1
EVENT_BYTES = 64 * 1024  # one encoded event
REASON_CHARACTERS = 1_000

Outcome = Literal["intent", "success", "partial", "failure", "denied"]
OUTCOMES: tuple[Outcome, ...] = ("intent", "success", "partial", "failure", "denied")
Action = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)*$", max_length=64)]
Time = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z$")]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person, sealed: the tag of the month's key, and the ciphertext in base64."""

    tag: str
    box: str


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What happened. Times in UTC, sizes in bytes, ids in hex; empty means: does not apply, or is not known."""

    v: Literal[1] = msgspec.field(name="v")
    log: str
    seq: Count
    time: Time
    action: Action
    outcome: Outcome
    clock: str = ""
    reason: str = ""
    error: str = ""
    who: Sealed | None = None
    whom: Sealed | None = None
    node: str = ""
    node_region: str = ""
    attestation: str = ""
    repository: str = ""
    dataset: str = ""
    dataset_id: str = ""
    snapshot_seq: Count = 0
    snapshot: str = ""
    tag: str = ""
    entries: Count = 0
    files: Count = 0
    bytes: Count = 0
    sent_bytes: Count = 0
    policy: str = ""
    decided_by: tuple[str, ...] = ()
    epoch: Count = 0
    slot: str = ""
    region: str = ""
    classification: str = ""
    purpose: str = ""
    request: str = ""
    software: str = ""
    detail: dict[str, str | int] = {}


FIELDS = frozenset(Event.__struct_fields__)
_GIVEN_BY_LOG = frozenset({"v", "log", "seq", "time", "clock", "who", "whom"})
CALLER_FIELDS = FIELDS - _GIVEN_BY_LOG - {"action", "outcome", "detail"}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    """Return the event's one encoding."""
    line = _ENCODER.encode(event)
    if len(line) > EVENT_BYTES:
        raise UsageError(f"event {event.action}: expected at most {EVENT_BYTES} bytes, found {len(line)}")
    return line


def decode(line: bytes) -> Event:
    """Return the event in *line*, which is the one encoding of it."""
    try:
        event = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"does not parse as an event: {error}") from None
    if _ENCODER.encode(event) != line:
        raise FormatError("is not in the one encoding of its event")
    return event


def time_text(microseconds: int) -> str:
    """Return Unix time in microseconds as RFC 3339 in UTC."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{_second_text(seconds)}.{rest:06}Z"


@lru_cache(maxsize=4)
def _second_text(seconds: int) -> str:
    """Events come many a second: the part that they share is written once."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def microseconds(text: str) -> int:
    """Return the Unix time of an event in microseconds."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


def time_value(text: str) -> datetime:
    """Return the time of an event."""
    return datetime.fromisoformat(text)
