"""What a decision is about: who, what, on which dataset, under what evidence; and the decision.

Values only. Evidence is what the caller has verified; what it does not know stays None, and a condition that asks for
it is not met.
"""

import unicodedata
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

ACTIONS = (
    "ListDatasets",
    "ReadMetadata",
    "ReadData",
    "Warm",
    "PushSnapshot",
    "Tag",
    "Forget",
    "Prune",
    "ManageKeys",
    "Shred",
    "ManagePolicy",
    "ReadAudit",
    "ExportAudit",
    "Purge",
    "ManageDaemon",
)
GROUPS = {"Shred": "ManageKeys"}
"""Actions that are part of another one, as the schema says."""
KINDS = {"user": "User", "node": "Node", "job": "Job", "group": "Group"}
REPOSITORY = "repository"
"""The id of the one Repository entity: every dataset is in it."""


@dataclass(frozen=True, slots=True, order=True)
class Principal:
    """Who asks: `kind` is user, node or job."""

    kind: str
    name: str

    def __str__(self) -> str:
        return self.name if self.kind == "user" else f"{self.kind}:{self.name}"


def parse_principal(text: str) -> Principal:
    """Return whom *text* means: `NAME` is a user, `node:NAME` and `job:NAME` are what they say."""
    kind, colon, name = text.partition(":")
    return Principal(kind, name) if colon and kind in KINDS else Principal("user", text)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was verified: time in ms, and what is known of the machine and the person."""

    now: int
    mfa: bool = False
    attested: bool = False
    approvals: int = 1
    region: str | None = None
    purpose: str | None = None
    source: str | None = None
    node: str | None = None
    age_days: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """May *principal* do *action* on *dataset* (None: on the repository)?"""

    principal: Principal
    action: str
    dataset: str | None
    evidence: Evidence


def nfc(text: str) -> str:
    """Return *text* in the one form (NFC) in which names are compared: é is é, however it was typed."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def normal(request: Request) -> Request:
    """Return *request* with all names in one form."""
    who, seen = request.principal, request.evidence
    names = (who.name, request.dataset or "", seen.region or "", seen.purpose or "", seen.node or "")
    if all(map(str.isascii, names)):
        return request
    told: dict[str, Any] = {
        name: nfc(text) for name in ("region", "purpose", "node") if (text := getattr(seen, name)) is not None
    }
    dataset = request.dataset and nfc(request.dataset)
    return Request(Principal(who.kind, nfc(who.name)), request.action, dataset, replace(seen, **told))


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer: which policies decided (none: no policy permits it), what failed, and the digest of the bundle."""

    allow: bool
    reasons: tuple[str, ...] = field(default=())
    errors: tuple[str, ...] = field(default=())
    policy_digest: str = ""


def time_text(ms: int) -> str:
    """Return a time as Cedar and people read it."""
    seconds, rest = divmod(ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03}Z"
