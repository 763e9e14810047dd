"""What TOML becomes in Cedar decides as a plain reading of the TOML does, for any policy and any question."""

from collections.abc import Sequence
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from datasync.policy.bundle import Bundle, PolicyFile, Rule, parse_bundle
from datasync.policy.decide import PolicyEngine
from datasync.policy.model import ACTIONS, Evidence, Principal, Request

USERS, GROUPS, NODES = ("ana", "bo", 'o"\\'), ("g0", "g1", "g2"), ("n0", "n1")
DATASETS, TAGS, REGIONS = ("d0", "d1"), ("t0", "t1"), ("eu", "us")
NETWORKS, ADDRESSES = ("10.0.0.0/8", "fd00::/8"), ("10.1.1.1", "fd00::1", "192.168.0.1")
ROLES = ("reader", "writer", "owner", "auditor", "operator", "node")
TIMES = tuple(datetime(2026, month, 1, tzinfo=UTC) for month in (1, 2, 3))


def some(values: Sequence[Any], least: int = 0) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), min_size=least, max_size=2, unique=True)


TO = ("*", *USERS, *(f"node:{name}" for name in NODES), *(f"group:{name}" for name in GROUPS))
ON = ("*", *DATASETS, *(f"tag:{name}" for name in TAGS))
CONDITIONS = {
    "from": st.sampled_from(TIMES),
    "until": st.sampled_from(TIMES),
    "regions": some(REGIONS, 1),
    "purposes": some(("p0", "p1"), 1),
    "nodes": some(NODES, 1),
    "networks": some(NETWORKS, 1),
    "mfa": st.booleans(),
    "attested": st.booleans(),
}
WHAT = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(ROLES)}),
    st.fixed_dictionaries({"actions": some(ACTIONS, 1)}),
)
RULE = st.builds(
    lambda what, scope, more: what | scope | more,
    WHAT,
    st.fixed_dictionaries({"to": some(TO, 1), "on": some(ON, 1)}),
    st.fixed_dictionaries({}, optional=CONDITIONS),
)
DATASET = st.fixed_dictionaries(
    {"tags": some(TAGS)},
    optional={
        "allowed_regions": some(REGIONS),
        "purposes": some(("p0", "p1")),
        "frozen": st.booleans(),
        "two_person": st.booleans(),
        "retention_days": st.integers(0, 3),
    },
)
EVIDENCE = st.builds(
    Evidence,
    now=st.sampled_from([int(item.timestamp() * 1000) + more for item in TIMES for more in (-1, 0, 1)]),
    mfa=st.booleans(),
    attested=st.booleans(),
    approvals=st.integers(1, 3),
    region=st.sampled_from((None, *REGIONS)),
    purpose=st.sampled_from((None, "p0", "p1")),
    source=st.sampled_from((None, *ADDRESSES)),
    node=st.sampled_from((None, *NODES)),
    age_days=st.sampled_from((None, 0, 1, 2, 3)),
)
REQUEST = st.builds(
    Request,
    st.sampled_from([*(Principal("user", name) for name in (*USERS, "eve")), *(Principal("node", n) for n in NODES)]),
    st.sampled_from(ACTIONS),
    st.sampled_from((None, *DATASETS, "other")),
    EVIDENCE,
)


@st.composite
def bundles(draw: st.DrawFn) -> Bundle:
    groups: dict[str, Any] = {
        "g0": {"groups": draw(some(("g1", "g2")))},
        "g1": {"groups": draw(some(("g2",)))},
        "g2": {},
    }
    rules = draw(st.lists(RULE, max_size=4)), draw(st.lists(RULE, max_size=3))
    text = {
        "users": {name: {"groups": draw(some(GROUPS))} for name in USERS},
        "nodes": {name: {"groups": draw(some(GROUPS))} for name in NODES},
        "groups": groups,
        "datasets": {DATASETS[0]: draw(DATASET) | {"tags": list(TAGS)}, DATASETS[1]: draw(DATASET)},
        "grant": [rule | {"id": f"grant{n}"} for n, rule in enumerate(rules[0])],
        "deny": [rule | {"id": f"deny{n}"} for n, rule in enumerate(rules[1])],
    }
    return parse_bundle({"policy.toml": _toml(text)})


def _toml(value: Any, path: tuple[str, ...] = ()) -> str:
    lines, tables = [], []
    for key, item in value.items():
        where = ".".join(_quote(part) for part in (*path, key))
        if isinstance(item, dict):
            tables.append(f"[{where}]\n{_toml(item, (*path, key))}")
        elif isinstance(item, list) and item and isinstance(item[0], dict):
            tables += [f"[[{where}]]\n{_toml(one)}" for one in item]
        else:
            lines.append(f"{_quote(key)} = {_value(item)}\n")
    return "".join(lines + tables)


def _value(item: Any) -> str:
    if isinstance(item, list):
        return f"[{', '.join(map(_value, item))}]"
    if isinstance(item, bool | int):
        return str(item).lower()
    return item.isoformat() if isinstance(item, datetime) else _quote(str(item))


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# the plain reading


def reading(bundle: Bundle, asked: Request) -> tuple[bool, set[str]]:
    """Return whether it is allowed, and by which rules it was decided."""
    policy = bundle.policy
    denied = {rule.id for rule in policy.deny if _is_about(bundle, rule, asked) and _applies(rule, asked, deny=True)}
    denied |= _guards(policy, asked)
    allowed = {rule.id for rule in policy.grant if _is_about(bundle, rule, asked) and _applies(rule, asked, deny=False)}
    return bool(allowed) and not denied, denied or allowed


def _is_about(bundle: Bundle, rule: Rule, asked: Request) -> bool:
    who, dataset = bundle.of(asked.principal), bundle.policy.datasets.get(asked.dataset or "")
    groups, grown = set(who.groups if who is not None else ()), -1
    while len(groups) != grown:
        grown = len(groups)
        groups |= {of for name in groups if name in bundle.policy.groups for of in bundle.policy.groups[name].groups}
    names = {"*", str(asked.principal), *(f"group:{name}" for name in groups)}
    places = {"*", asked.dataset, *(f"tag:{tag}" for tag in (dataset.tags if dataset is not None else ()))}
    actions = bundle.roles[rule.role] if rule.role is not None else rule.actions
    wanted = {asked.action} | ({"ManageKeys"} if asked.action == "Shred" else set())
    return bool(names & set(rule.to)) and bool(places & set(rule.on)) and bool(wanted & set(actions))


def _applies(rule: Rule, asked: Request, *, deny: bool) -> bool:
    seen = asked.evidence
    if rule.since is not None and seen.now < rule.since.timestamp() * 1000:
        return False
    if rule.until is not None and seen.now >= rule.until.timestamp() * 1000:
        return False
    for known, listed in ((seen.region, rule.regions), (seen.purpose, rule.purposes), (seen.node, rule.nodes)):
        if listed and (known not in listed if known is not None else not deny):
            return False
    if rule.networks and (not _within(seen.source, rule.networks) if seen.source is not None else not deny):
        return False
    wanted = ((rule.mfa, seen.mfa), (rule.attested, seen.attested))
    return all(has != deny for asks, has in wanted if asks)


def _within(source: str, networks: Sequence[str]) -> bool:
    found = ip_address(source)
    return any(found.version == ip_network(item).version and found in ip_network(item) for item in networks)


def _guards(policy: PolicyFile, asked: Request) -> set[str]:
    part, action, seen = policy.datasets.get(asked.dataset or ""), asked.action, asked.evidence
    if part is None:
        return set()
    reads = action in ("ReadData", "Warm")
    held = {
        "guard-frozen": part.frozen and action in ("PushSnapshot", "Tag", "Forget", "Prune", "Shred"),
        "guard-residency": reads and part.allowed_regions is not None and seen.region not in part.allowed_regions,
        "guard-purpose": reads and part.purposes is not None and seen.purpose not in part.purposes,
        "guard-two-person": part.two_person and action in ("Prune", "Shred") and seen.approvals < 2,
        "guard-retention": action == "Forget"
        and part.retention_days is not None
        and (seen.age_days is None or seen.age_days < part.retention_days),
    }
    return {name for name, holds in held.items() if holds}


@settings(max_examples=60, deadline=None)
@given(bundles(), st.lists(REQUEST, min_size=30, max_size=60))
def test_cedar_decides_as_the_toml_reads(bundle: Bundle, asked: list[Request]) -> None:
    for request, decision in zip(asked, PolicyEngine(bundle).decide_all(asked), strict=True):
        assert not decision.errors
        assert (decision.allow, set(decision.reasons)) == reading(bundle, request), request
