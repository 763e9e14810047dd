"""The entities that decisions are about, as Cedar's JSON: principals and their groups, datasets and their tags."""

import json
from collections.abc import Iterable
from typing import Any

from datasync.policy.bundle import Bundle, DatasetPart
from datasync.policy.model import KINDS, REPOSITORY, Principal

Uid = dict[str, str]


def uid(type_: str, name: str) -> Uid:
    """Return an entity's id."""
    return {"type": type_, "id": name}


def principal_uid(principal: Principal) -> Uid:
    """Return the id of who asks."""
    return uid(KINDS[principal.kind], principal.name)


def resource_uid(dataset: str | None) -> Uid:
    """Return the id of a dataset, or of the repository."""
    return uid("Repository", REPOSITORY) if dataset is None else uid("Dataset", dataset)


def declared(bundle: Bundle) -> set[tuple[str, str]]:
    """Return (type, id) of everything that *bundle* names."""
    found = json.loads(entities(bundle))
    return {(item["uid"]["type"], item["uid"]["id"]) for item in found}


def entities(bundle: Bundle) -> str:
    """Return everything that *bundle* names."""
    policy, found = bundle.policy, [_entity(uid("Repository", REPOSITORY))]
    groups = {name: part.groups for name, part in policy.groups.items()}
    for principal in bundle.principals():
        who = bundle.of(principal)
        member_of = who.groups if who is not None else ()
        found.append(_entity(principal_uid(principal), [uid("Group", name) for name in member_of]))
        groups |= {name: () for name in member_of if name not in groups}
    for name in [name for members in list(groups.values()) for name in members]:
        groups.setdefault(name, ())
    found += [_entity(uid("Group", name), [uid("Group", item) for item in of]) for name, of in groups.items()]
    tags = {tag for part in policy.datasets.values() for tag in part.tags}
    found += [_entity(uid("Tag", tag)) for tag in sorted(tags)]
    found += [_dataset(name, part) for name, part in policy.datasets.items()]
    return json.dumps(found)


def other_dataset(name: str) -> str:
    """Return a dataset that the bundle does not name: no tag, nothing known of it."""
    return json.dumps([_dataset(name, DatasetPart())])


def _dataset(name: str, part: DatasetPart) -> dict[str, Any]:
    given = {
        "classification": part.classification,
        "owner": {"__entity": uid("User", part.owner)} if part.owner else None,
        "region": part.region,
        "allowedRegions": None if part.allowed_regions is None else list(part.allowed_regions),
        "purposes": None if part.purposes is None else list(part.purposes),
        "retentionDays": part.retention_days,
    }
    attributes = {key: value for key, value in given.items() if value is not None}
    attributes |= {"frozen": part.frozen, "twoPerson": part.two_person}
    parents = [uid("Repository", REPOSITORY), *(uid("Tag", tag) for tag in part.tags)]
    return _entity(uid("Dataset", name), parents, attributes)


def _entity(name: Uid, parents: Iterable[Uid] = (), attributes: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"uid": name, "attrs": attributes or {}, "parents": list(parents)}
