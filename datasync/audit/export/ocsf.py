"""OCSF, pinned to the released version 1.7.0 (https://schema.ocsf.io/1.7.0): one JSON object a line.

Data moves are File Hosting Activity (6006), key and trust changes Entity Management (3004), grants and revokes User
Access (3005), tokens and key release Authentication (3002), the node's cache File System Activity (1001), alarms and
damage Detection Finding (2004), everything else API Activity (6003). What has no place of its own is in `unmapped`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from datasync.audit.event import Event, time_value
from datasync.audit.export import Out
from datasync.audit.rows import Row, as_json

VERSION = "1.7.0"
_STATUS = {"success": (1, "Success"), "partial": (1, "Success"), "failure": (2, "Failure"), "denied": (2, "Failure")}
_OTHER = (99, "Other")
_CATEGORIES = {1: "System Activity", 2: "Findings", 3: "Identity & Access Management", 6: "Application Activity"}

FILE_HOSTING, API, ENTITY, ACCESS, AUTHENTICATION, FILE, FINDING = 6006, 6003, 3004, 3005, 3002, 1001, 2004
_NAMES = {
    FILE_HOSTING: "File Hosting Activity",
    API: "API Activity",
    ENTITY: "Entity Management",
    ACCESS: "User Access Management",
    AUTHENTICATION: "Authentication",
    FILE: "File System Activity",
    FINDING: "Detection Finding",
}
# action -> class, activity id and its name there
_ACTIONS = {
    "push": (FILE_HOSTING, 1, "Upload"),
    "pull": (FILE_HOSTING, 2, "Download"),
    "warm": (FILE_HOSTING, 2, "Download"),
    "look": (FILE_HOSTING, 14, "Open"),
    "forget": (FILE_HOSTING, 4, "Delete"),
    "prune": (FILE_HOSTING, 4, "Delete"),
    "key.init": (ENTITY, 1, "Create"),
    "key.list": (ENTITY, 2, "Read"),
    "key.rotate": (ENTITY, 3, "Update"),
    "key.shred": (ENTITY, 4, "Delete"),
    "key.reseal": (ENTITY, 3, "Update"),
    "key.owners": (ENTITY, 3, "Update"),
    "key.propose": (ENTITY, 3, "Update"),
    "key.cosign": (ENTITY, 3, "Update"),
    "key.settle": (ENTITY, 3, "Update"),
    "key.accept": (ENTITY, 3, "Update"),
    "key.passphrase": (ENTITY, 3, "Update"),
    "key.recover": (ENTITY, 1, "Create"),
    "key.export-recovery": (ENTITY, 2, "Read"),
    "policy.apply": (ENTITY, 3, "Update"),
    "policy.grant": (ACCESS, 1, "Assign Privileges"),
    "person.erase": (ENTITY, 4, "Delete"),
    "key.grant": (ACCESS, 1, "Assign Privileges"),
    "key.revoke": (ACCESS, 2, "Revoke Privileges"),
    "key.release": (AUTHENTICATION, 4, "Service Ticket Request"),
    "token.issue": (AUTHENTICATION, 3, "Authentication Ticket"),
    "token.renew": (AUTHENTICATION, 5, "Service Ticket Renew"),
    "token.revoke": (AUTHENTICATION, 2, "Logoff"),
    "purge": (FILE, 4, "Delete"),
    "cache.evict": (FILE, 4, "Delete"),
    "cache.purge": (FILE, 4, "Delete"),
    "cache.scrub": (FILE, 2, "Read"),
    "alarm.integrity": (FINDING, 1, "Create"),
    "alarm.rollback": (FINDING, 1, "Create"),
}
_CREATE, _READ, _UPDATE, _DELETE = (1, "Create"), (2, "Read"), (3, "Update"), (4, "Delete")
_API = {
    "verify": _READ,
    "audit.verify": _READ,
    "audit.query": _READ,
    "audit.export": _READ,
    "policy.decide": _READ,
    "tag.set": _UPDATE,
    "tag.remove": _DELETE,
    "init": _CREATE,
}


def write(rows: Iterator[Row], out: Out) -> None:
    """Write the rows."""
    for row in rows:
        out.write(msgspec.json.encode(ocsf(row)) + b"\n")


def ocsf(row: Row) -> dict[str, Any]:
    """Return the row as an OCSF event."""
    event = row.event
    kind, activity, name = _ACTIONS.get(event.action, (API, *_API.get(event.action, _OTHER)))
    status, status_name = _STATUS.get(event.outcome, (0, "Unknown"))
    severity, severity_name = _severity(event)
    base = {
        "activity_id": activity,
        "activity_name": event.action if activity == 99 else name,
        "category_uid": kind // 1000,
        "category_name": _CATEGORIES[kind // 1000],
        "class_uid": kind,
        "class_name": _NAMES[kind],
        "type_uid": kind * 100 + activity,
        "type_name": f"{_NAMES[kind]}: {name}",
        "severity_id": severity,
        "severity": severity_name,
        "time": int(time_value(event.time).timestamp() * 1000),
        "timezone_offset": 0,
        "metadata": _metadata(event),
        "status_id": status,
        "status": status_name,
        "message": f"{event.action}: {event.outcome}",
        "unmapped": as_json(row),
    }
    if event.reason:
        base["status_detail"] = event.reason
    if event.error:
        base["status_code"] = event.error
    return base | _BODIES[kind](row)


def _severity(event: Event) -> tuple[int, str]:
    if event.action.startswith("alarm."):
        return 5, "Critical"
    return (3, "Medium") if event.outcome in ("failure", "denied") else (1, "Informational")


def _metadata(event: Event) -> dict[str, Any]:
    product = {"name": "datasync", "vendor_name": "datasync"} | ({"version": event.software} if event.software else {})
    found: dict[str, Any] = {"version": VERSION, "product": product, "uid": f"{event.log}/{event.seq}"}
    found |= {"log_name": event.log, "sequence": event.seq, "event_code": event.action, "log_version": str(event.v)}
    return found | ({"correlation_uid": event.request} if event.request else {})


def _user(row: Row, *, target: bool = False) -> dict[str, Any]:
    person = row.whom if target else row.who
    name = (row.concerned if target else row.actor) or "unknown"
    found: dict[str, Any] = {"name": name, "uid": name}
    if person is not None and person.issuer:
        found["domain"] = person.issuer
    return found


def _actor(row: Row) -> dict[str, Any]:
    behalf = {"invoked_by": row.who.behalf} if row.who is not None and row.who.behalf else {}
    return {"user": _user(row), "app_name": "datasync", **behalf}


def _endpoint(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {"uid": row.event.node or "unknown"}
    if row.who is not None and row.who.host:
        found["hostname"] = row.who.host
    if row.who is not None and row.who.address:
        found["ip"] = row.who.address
    return found


def _file(event: Event) -> dict[str, Any]:
    found: dict[str, Any] = {"name": event.dataset or "unknown", "type_id": 2, "type": "Folder", "size": event.bytes}
    found |= {"uid": event.snapshot} if event.snapshot else {}
    return found | ({"version": str(event.snapshot_seq)} if event.snapshot_seq else {})


def _resource(event: Event) -> dict[str, Any]:
    found: dict[str, Any] = {"name": event.dataset or event.repository or "datasync", "type": "dataset"}
    found |= {"uid": event.dataset_id} if event.dataset_id else {}
    return found | ({"region": event.region} if event.region else {})


def _hosting(row: Row) -> dict[str, Any]:
    return {"actor": _actor(row), "file": _file(row.event), "src_endpoint": _endpoint(row)}


def _api_body(row: Row) -> dict[str, Any]:
    api = {"operation": row.event.action, "service": {"name": "datasync"}}
    found = {"actor": _actor(row), "api": api, "src_endpoint": _endpoint(row)}
    return found | {"resources": [_resource(row.event)]}


def _entity(row: Row) -> dict[str, Any]:
    event = row.event
    entity = {"name": event.dataset or row.concerned or event.action, "type": event.action.split(".")[0]}
    entity |= {"uid": event.dataset_id} if event.dataset_id else {}
    return {"actor": _actor(row), "entity": entity, "src_endpoint": _endpoint(row)}


def _access(row: Row) -> dict[str, Any]:
    privilege = str(row.event.detail.get("role", "read"))
    found = {"actor": _actor(row), "user": _user(row, target=True), "privileges": [privilege]}
    return found | {"resources": [_resource(row.event)], "src_endpoint": _endpoint(row)}


def _authentication(row: Row) -> dict[str, Any]:
    user = _user(row, target=True) if row.event.whom else _user(row)
    return {"actor": _actor(row), "user": user, "service": {"name": "datasync"}, "src_endpoint": _endpoint(row)}


def _file_system(row: Row) -> dict[str, Any]:
    host = row.who.host if row.who is not None else ""
    device = {"type_id": 0, "type": "Unknown", "uid": row.event.node or "unknown"} | (
        {"hostname": host} if host else {}
    )
    return {"actor": _actor(row), "device": device, "file": _file(row.event)}


def _finding(row: Row) -> dict[str, Any]:
    event = row.event
    info = {"uid": f"{event.log}/{event.seq}", "title": event.action, "types": [event.error or event.action]}
    info |= {"desc": event.reason} if event.reason else {}
    return {"finding_info": info, "is_alert": True, "resources": [_resource(event)]}


_BODIES: dict[int, Callable[[Row], dict[str, Any]]] = {
    FILE_HOSTING: _hosting,
    API: _api_body,
    ENTITY: _entity,
    ACCESS: _access,
    AUTHENTICATION: _authentication,
    FILE: _file_system,
    FINDING: _finding,
}
