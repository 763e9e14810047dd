"""Credential Access Boundaries as Google's pages describe them: parsed strictly, then asked about single requests.

A condition is one or more of the two documented terms, joined by `||`: `resource.name.startsWith('…')` and
`api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('…')`. Everything else is refused.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

OPTIONS_CHARACTERS = 4_096
BOUNDARY_CHARACTERS = 2_048
RULES = 10
ROLES = {
    "roles/storage.objectViewer": frozenset({"storage.objects.get", "storage.objects.list"}),
    "roles/storage.objectCreator": frozenset({"storage.objects.create"}),
    "roles/storage.legacyBucketReader": frozenset({"storage.buckets.get", "storage.objects.list"}),
}

_STRING = r"'((?:[^'\\]|\\.)*)'"
_NAME = re.compile(rf"resource\.name\.startsWith\({_STRING}\)")
_LISTING = re.compile(rf"api\.getAttribute\('storage\.googleapis\.com/objectListPrefix', ''\)\.startsWith\({_STRING}\)")
_BUCKET = re.compile(r"//storage\.googleapis\.com/projects/_/buckets/([a-z0-9][a-z0-9._-]+)")

Condition = Callable[[str, str], bool]
"""Tells whether a request about a resource, and for a listing its prefix, is meant."""


class Refused(Exception):
    """An error answer: a status and the vendor's word for it."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True, slots=True)
class Rule:
    """What one rule makes available, and when."""

    bucket: str
    permissions: frozenset[str]
    condition: Condition


@dataclass(frozen=True, slots=True)
class Boundary:
    """All rules; a request needs one of them."""

    rules: tuple[Rule, ...]

    def allows(self, bucket: str, permission: str, resource: str, listed: str) -> bool:
        return any(
            rule.bucket == bucket and permission in rule.permissions and rule.condition(resource, listed)
            for rule in self.rules
        )


def parse_boundary(text: str) -> Boundary:
    """Return the boundary in the options of an exchange."""
    try:
        options = json.loads(text)
        boundary = options["accessBoundary"]
        rules = boundary["accessBoundaryRules"]
    except (ValueError, KeyError, TypeError):
        raise Refused(400, "invalid_request") from None
    if len(text) > OPTIONS_CHARACTERS or len(json.dumps(boundary, separators=(",", ":"))) > BOUNDARY_CHARACTERS:
        raise Refused(400, "invalid_request")
    if (
        options.keys() != {"accessBoundary"}
        or boundary.keys() != {"accessBoundaryRules"}
        or not 0 < len(rules) <= RULES
    ):
        raise Refused(400, "invalid_request")
    return Boundary(tuple(map(_rule, rules)))


def _rule(found: dict[str, Any]) -> Rule:
    if not {"availableResource", "availablePermissions"} <= found.keys() <= {
        "availableResource", "availablePermissions", "availabilityCondition",
    }:  # fmt: skip
        raise Refused(400, "invalid_request")
    bucket = _BUCKET.fullmatch(found["availableResource"])
    roles = [str(item).removeprefix("inRole:") for item in found["availablePermissions"]]
    if bucket is None or not roles or not all(f"inRole:{role}" in found["availablePermissions"] for role in roles):
        raise Refused(400, "invalid_request")
    if not set(roles) <= ROLES.keys():
        raise Refused(400, "invalid_request")
    permissions = frozenset[str]().union(*(ROLES[role] for role in roles))
    about = found.get("availabilityCondition")
    return Rule(bucket[1], permissions, parse_condition(about["expression"]) if about else lambda *_: True)


def parse_condition(text: str) -> Condition:
    """Return what the expression *text* means."""
    terms = [_term(part.strip()) for part in text.split("||")]
    return lambda resource, listed: any(term(resource, listed) for term in terms)


def _term(text: str) -> Condition:
    if match := _NAME.fullmatch(text):
        name = match[1]
        return lambda resource, _: resource.startswith(name)
    if match := _LISTING.fullmatch(text):
        prefix = match[1]
        return lambda _, listed: bool(listed) and listed.startswith(prefix)
    raise Refused(400, "invalid_request")
