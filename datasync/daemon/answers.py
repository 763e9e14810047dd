"""What the API takes and answers, as types: the code and docs/openapi.json are made from these.

Times are Unix seconds (in keys: ms), sizes bytes. Bodies refuse unknown fields.
"""

from typing import Annotated, Any

import msgspec

from datasync.service.borrow import Answer

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class Error(msgspec.Struct, frozen=True):
    """Why a request failed: the class of the error, words for a person, the exit code of the command line."""

    error: str
    message: str
    exit: int
    request: str


class Health(msgspec.Struct, frozen=True):
    """The daemon answers."""

    status: str


class Done(msgspec.Struct, frozen=True):
    """What was asked for was begun."""

    status: str


class Begun(msgspec.Struct, frozen=True):
    """A push was asked for; the event `ran` with this number says how it ended."""

    status: str
    run: int


class Reloaded(msgspec.Struct, frozen=True):
    """The settings are in force, but for those in `restart`, which the next start of the daemon reads."""

    status: str
    restart: list[str]


class Status(msgspec.Struct, frozen=True):
    """Everything that a person wants to see first; `state` is healthy or degraded."""

    state: str
    pid: int
    started: float
    repository: str | None
    caches: list[str]
    mirrors: list[dict[str, Any]]
    warms: list[dict[str, Any]]
    alerts: list[dict[str, str]]


class Mirrors(msgspec.Struct, frozen=True):
    """All mirrors."""

    mirrors: list[dict[str, Any]]


class Warms(msgspec.Struct, frozen=True):
    """All subscriptions."""

    warms: list[dict[str, Any]]


class AddMirror(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A folder to mirror from now on."""

    path: Text
    dataset: Name
    shared: bool = False


class WarmRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reference to make ready on this node."""

    reference: Text
    pin: bool = False
    pin_seconds: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    wait: bool = True
    subset: Annotated[tuple[Text, ...], msgspec.Meta(max_length=64)] = ()
    order: Annotated[tuple[Text, ...], msgspec.Meta(max_length=64)] = ()


class CommandRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command as on the command line: its verb, then its arguments."""

    arguments: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=1024)], ...], msgspec.Meta(max_length=32)]


class KeyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reference to read, the public key of the node's process, and what the node calls itself."""

    dataset: Text
    recipient: Text
    node: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


KeyAnswer = Answer
