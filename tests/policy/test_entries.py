"""Every door into the service asks the policy, or is listed here with the reason why it asks nothing."""

import ast

import pytest

from datasync.daemon.routes import ADMIN, OPEN, ROUTES, STATUS, WARM
from datasync.policy.model import ACTIONS
from datasync.service.credentials import CREATES, READS
from tests.policy.entries import BY_ARGUMENT, ROOT, asked_by, entries

ASKED = {
    "access.cosign": {"ManageKeys", "Shred"},
    "access.grant": {"ManageKeys"},
    "access.list_holdings": {"ReadMetadata"},
    "access.revoke": {"ManageKeys"},
    "access.rotate": {"ManageKeys"},
    "access.rotate_full": {"ManageKeys"},
    "access.set_owners": {"ManageKeys"},
    "access.shred_dataset": {"Shred"},
    "anchor.anchor": {"ReadAudit"},
    "audit.follow": {"ReadAudit"},
    "audit.prove": {"ReadAudit"},
    "audit.prove_since": {"ReadAudit"},
    "audit.query": {"ReadAudit"},
    "audit.show": {"ReadAudit"},
    "audit.tail": {"ReadAudit"},
    "audit.verify": {"ReadAudit"},
    "audit_export.export_to": {"ExportAudit"},
    "audit_keep.apply": {"ManagePolicy", "ReadAudit"},
    "audit_keep.erase": {"Shred"},
    "audit_keep.hold": {"ManagePolicy"},
    "audit_keep.state": {"ReadAudit"},
    "audit_remote.erase": {"ReadAudit", "Shred"},
    "audit_remote.fetched": {"ReadAudit"},
    "audit_remote.verify": {"ReadAudit"},
    "audit_report.make": {"ExportAudit", "ReadAudit"},
    "daemon_rights.manage": {"ManageDaemon"},
    "forget.carry_out": {"Forget"},
    "forget.plan": {"ReadMetadata"},
    "heartbeat.note_daemon": {"ManageDaemon"},
    "hook.warm_by_daemon": {"Warm"},
    "local_views.check_evict": {"Purge"},
    "local_views.evict": {"Purge"},
    "local_views.remove_pin": {"Warm"},
    "local_views.set_pin": {"Warm"},
    "look.status": {"ListDatasets"},
    "mirror.mirror_once": {"PushSnapshot", "Tag"},
    "offline_grants.issue": {"ManageKeys"},
    "plan.plan_alone": {"Warm"},
    "plan.plan_pull": {"ReadData"},
    "policy_admin.apply": {"ManagePolicy"},
    "policy_admin.cosign": {"ManagePolicy"},
    "prune.prune": {"Prune"},
    "purge.purge": {"Purge"},
    "purge.survey": {"Purge"},
    "push.push_directory": {"PushSnapshot", "Tag"},
    "recovery.export": {"ManageKeys"},
    "references.open_dataset": {"ReadMetadata"},
    "release.release": {"Warm"},
    "scrub.scrub": {"Warm"},
    "tag.check_tag": {"Tag"},
    "tag.set_tag": {"Tag"},
    "tokens.create": {"ManageKeys"},
    "tokens.revoke": {"ManageKeys"},
    "tokens.shown": {"ManageDaemon"},
    "verify.verify": {"ReadData", "ReadMetadata"},
    "warm.newest_complete": {"Warm"},
    "warm.pull": {"ReadData"},
    "warm.warm": {"Warm"},
    "warmer.Keeper": {"Warm"},
}
"""What these ask for, exactly. A door that is not here asks for something, or is among the reasons below."""

OWN = "this machine's own keys and settings, which its user could read and write anyway"
OPENED = "takes what open_reference or open_dataset has asked for"
LOOKS = "looks at this machine, and at nothing of a dataset that its directories' modes do not show"
PURE = "no act: text to values, or values to text"
REASONS = {
    "access.accept": OWN,
    "access.parse_holder": PURE,
    "anchor.check": PURE,
    "audit.chosen": "names logs for export_to and make, which ask",
    "audit.read_checkpoint": PURE,
    "audit_export.check": PURE,
    "audit_log.people_of": "names persons for export_to and make, which ask",
    "audit_remote.send": "a denial would hide evidence; what goes is sealed to the auditors",
    "audit_report.render": PURE,
    "borrow": "asks a control side, which asks its policies",
    "caches": LOOKS,
    "client": "speaks to a daemon, which asks",
    "daemon_settings": PURE,
    "doctor": LOOKS,
    "endings": LOOKS,
    "erasure.verify_certificate": PURE,
    "gate_access": LOOKS,
    "gates": "decides by the policies itself, for others; takes rights away, or gives what they allow",
    "identities": OWN,
    "issuers": "says who asks",
    "local_views": LOOKS,
    "look": OPENED,
    "mirror_client": "speaks to a daemon, which asks",
    "node": LOOKS,
    "plan.ask_plans": "speaks to a daemon, which asks",
    "policy_admin": "files in a directory of the caller's, or whom a policy knows this identity as",
    "policy_questions": "files in a directory of the caller's, and this machine's own grants",
    "quarantine": LOOKS,
    "record": "records what others do",
    "recovery": OWN,
    "references.parse_reference": PURE,
    "scrub": LOOKS,
    "scrubber": LOOKS,
    "session.Session": "opens a repository by this machine's keys; init makes an empty one",
    "sockets": PURE,
    "tokens.TokenBook": "says who asks",
    "verbs": PURE,
    "warm": PURE,
}
"""Why a door, or all of a module that ask nothing, ask nothing."""


def test_every_door_asks_or_has_a_reason_not_to() -> None:
    found = entries()
    assert len(found) > 90
    silent = {name: users for name, users in found.items() if not asked_by(name) and not _reason(name)}
    assert not silent, "these ask no policy: let them, or say in REASONS why they need not"


def _reason(name: str) -> str:
    return REASONS.get(name) or REASONS.get(name.partition(".")[0], "")


@pytest.mark.parametrize("name", sorted(ASKED))
def test_a_door_asks_for_these_actions(name: str) -> None:
    assert name in entries()
    assert asked_by(name) == ASKED[name]


def test_every_action_is_asked_for_somewhere_and_nothing_else_is() -> None:
    asked = {action for name in entries() for action in asked_by(name)} - {BY_ARGUMENT}
    assert asked >= set(ACTIONS)


def test_what_is_asked_by_argument_is_of_a_fixed_list() -> None:
    assert {name for name in entries() if asked_by(name) == {BY_ARGUMENT}} == {
        "credentials.release",
        "references.open_reference",
    }
    assert {*READS, *CREATES} <= set(ACTIONS)


# the daemon


def test_every_route_that_changes_a_daemon_asks_who_may_manage_it() -> None:
    tree = ast.parse((ROOT / "daemon" / "handlers.py").read_text())
    bodies = {node.name: ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
    for route in ROUTES:
        if route.right == ADMIN:
            expected = "warming.warm" if route.name == "warm" else "self._manage(request"
            text = bodies[route.name] if route.name != "warm" else ast.unparse(tree)
            assert expected in text, route.name
        else:
            assert route.right in (OPEN, STATUS, WARM), route.name
            assert route.method == "GET" or route.name == "release_key", route.name
