"""The engine: a bundle that was checked against the schema and parsed once, and its decisions.

An error in any policy is a denial: Cedar itself would pass over a `forbid` that fails. So is an unknown action, and a
request that does not fit the schema. The only module that imports cedarpy. Raises `UsageError` for a bundle that can
not be loaded, `NotAuthorized` where cedarpy is missing: what can not be decided is denied.
"""

import json
import threading
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from datasync.errors import NotAuthorized, UsageError
from datasync.policy.bundle import CEDAR, Bundle
from datasync.policy.compile import compile_bundle
from datasync.policy.entities import entities, other_dataset, principal_uid, resource_uid
from datasync.policy.model import ACTIONS, GROUPS, KINDS, Decision, Evidence, Principal, Request, normal, time_text
from datasync.policy.shipped import SCHEMA, shipped
from datasync.policy.statements import check_names, check_shape, parse_statements

OTHER_DATASETS = 256  # kept ready, of those that the bundle does not name
LOWEST, HIGHEST = -(2**63), 2**63 - 1  # what Cedar's Long holds


def _cedar() -> Any:
    try:
        import cedarpy
    except ImportError:
        raise NotAuthorized(
            "policy: the package cedarpy, which decides, is not installed: pip install 'gpu-datasync[policy]'"
        ) from None
    return cedarpy


class PolicyEngine:
    """Decisions of one bundle. Immutable, so threads share it and a reload is one assignment."""

    def __init__(self, bundle: Bundle, digest: str = "") -> None:
        self._cedar = _cedar()
        self.bundle = bundle
        self.digest = digest
        for name, text in bundle.files.items():
            if name.endswith(CEDAR):
                check_shape(name, text)
        self.text = compile_bundle(bundle)
        self._schema = self._cedar.Schema.from_str(shipped(SCHEMA))
        self.statements = parse_statements(self._cedar, self.text)
        self._validate()
        self._policies = self._by_action()
        check_names(self.statements, bundle)
        try:
            self._entities = self._cedar.Entities.from_json_str(entities(bundle), self._schema)
        except ValueError as error:
            raise UsageError(f"policy: {error}") from None
        self._others = lru_cache(OTHER_DATASETS)(self._with_other)
        self._lock = threading.Lock()

    def with_statements(self, statements: dict[str, Any]) -> "PolicyEngine":
        """Return an engine with other *statements* (Cedar's JSON, by id), not validated, and the same entities."""
        other = object.__new__(PolicyEngine)
        other.__dict__.update(self.__dict__)
        other.statements = statements
        other._policies = other._by_action()
        return other

    def _by_action(self) -> dict[str, Any]:
        """Return the statements that can be about each action: Cedar tries each one, so fewer is faster."""
        found = {}
        for action in ACTIONS:
            whole = {"templates": {}, "templateLinks": [], "staticPolicies": self.about(action)}
            try:
                found[action] = self._cedar.PolicySet.from_json_str(json.dumps(whole))
            except (ValueError, RecursionError):
                raise UsageError(
                    "policy: a statement chains or nests too many conditions: write several statements, or a list "
                    "and `contains`"
                ) from None
        return found

    def about(self, action: str) -> dict[str, Any]:
        """Return the statements that can be about *action*."""
        return {name: item for name, item in self.statements.items() if _can_be_about(item, action)}

    def _validate(self) -> None:
        """Refuse what does not fit the schema: a misspelt attribute, an unknown action, a wrong type."""
        found = self._cedar.validate_policies(self.text, self._schema)
        if not found.validation_passed:
            ids = found.id_annotations_by_policy_id
            told = [f"{ids.get(item.policy_id, item.policy_id)}: {item.error}" for item in found.errors]
            raise UsageError("policy: " + "; ".join(told)[:4_000])

    def decide(self, request: Request) -> Decision:
        """Return the decision on *request*."""
        return self.decide_all([request])[0]

    def decide_all(self, requests: Sequence[Request]) -> list[Decision]:
        """Return the decisions on *requests*, in order; cheaper than one by one where they are many."""
        requests = [normal(request) for request in requests]
        answers: list[Decision | None] = [self._refused(request) for request in requests]
        alike: dict[tuple[str | None, str], list[int]] = {}
        for position, request in enumerate(requests):
            if answers[position] is None:
                known = request.dataset is None or request.dataset in self.bundle.policy.datasets
                alike.setdefault((None if known else request.dataset, request.action), []).append(position)
        for (dataset, action), positions in alike.items():
            found = self._ask([requests[position] for position in positions], dataset, action)
            for position, decision in zip(positions, found, strict=True):
                answers[position] = decision
        return [answer if answer is not None else self._error("nothing decided") for answer in answers]

    def _refused(self, request: Request) -> Decision | None:
        if request.action not in ACTIONS:
            return self._error(f"unknown action {request.action!r}")
        if request.principal.kind not in KINDS or request.principal.kind == "group":
            return self._error(f"unknown kind of principal {request.principal.kind!r}")
        return None

    def _ask(self, requests: list[Request], dataset: str | None, action: str) -> list[Decision]:
        try:
            known = self._entities if dataset is None else self._other(dataset)
            asked = [_cedar_request(request) for request in requests]
            answers = self._cedar.is_authorized_batch(asked, self._policies[action], known, self._schema)
            if len(answers) != len(requests):
                raise ValueError(f"expected {len(requests)} answers, found {len(answers)}")
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            return [self._error(f"could not be decided: {error}")] * len(requests)
        return [self._read(answer) for answer in answers]

    def _read(self, answer: Any) -> Decision:
        errors = tuple(answer.diagnostics.errors)
        reasons = tuple(sorted(answer.diagnostics.reasons))
        return Decision(answer.allowed and not errors, reasons, errors, self.digest)

    def _other(self, dataset: str) -> Any:
        with self._lock:
            return self._others(dataset)

    def _with_other(self, dataset: str) -> Any:
        return self._entities.with_added_json_str(other_dataset(dataset), self._schema)

    def _error(self, text: str) -> Decision:
        return Decision(False, (), (text,), self.digest)

    def reason(self, policy: str) -> str:
        """Return what the statement *policy* says about why it is there."""
        return str(self.statements.get(policy, {}).get("annotations", {}).get("reason", ""))


def _can_be_about(statement: dict[str, Any], action: str) -> bool:
    """Tell whether the scope of *statement* leaves *action* in; what is not understood stays in."""
    scope = statement["action"]
    named = scope.get("entities") or ([scope["entity"]] if "entity" in scope else None)
    return named is None or bool({item.get("id") for item in named} & {action, GROUPS.get(action)})


def _cedar_request(request: Request) -> dict[str, Any]:
    return {
        "principal": principal_uid(request.principal),
        "action": {"type": "Action", "id": request.action},
        "resource": resource_uid(request.dataset),
        "context": _context(request.evidence),
    }


@lru_cache(1024)
def _context(evidence: Evidence) -> str:
    found: dict[str, Any] = {
        "now": {"__extn": {"fn": "datetime", "arg": time_text(evidence.now)}},
        "mfa": evidence.mfa,
        "attested": evidence.attested,
        "approvals": _long(evidence.approvals),
    }
    if evidence.region is not None:
        found["region"] = evidence.region
    if evidence.purpose is not None:
        found["purpose"] = evidence.purpose
    if evidence.source is not None:
        found["source"] = {"__extn": {"fn": "ip", "arg": evidence.source}}
    if evidence.node is not None:
        found["node"] = {"__entity": principal_uid(Principal("node", evidence.node))}
    if evidence.age_days is not None:
        found["ageDays"] = _long(evidence.age_days)
    return json.dumps(found)


def _long(value: int) -> int:
    return min(max(value, LOWEST), HIGHEST)


def digest_text(files: Iterable[tuple[str, str]]) -> bytes:
    """Return what a bundle's digest is taken of: each file's name and text with their lengths, and the schema."""
    parts = [*sorted(files), (SCHEMA, shipped(SCHEMA))]
    encoded = [item.encode() for part in parts for item in part]
    return b"".join(len(item).to_bytes(8, "little") + item for item in encoded)
