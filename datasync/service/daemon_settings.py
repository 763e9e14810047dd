"""The daemon's tables of the configuration, as frozen values: [[mirror]], [[warm]], [scrub], [daemon], [alerts],
[control], [[issuer]], [[access]] (docs/daemon.md).

Pure: takes what `datasync.config` has read. Raises `UsageError` that names the table and the key.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from datasync.cache.sizes import parse_size
from datasync.config import Config
from datasync.errors import UsageError
from datasync.format.names import check_name
from datasync.service.references import parse_reference

_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WINDOW = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
ACTIONS = ("warm", "status")
OWN_ISSUERS = ("token", "mtls", "os-user")
"""What this daemon calls itself where it vouches for a token of its own, a certificate, and a user of this machine."""
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
Struct = TypeVar("Struct", bound=msgspec.Struct)


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table in which an unknown key is an error."""


class Mirror(_Strict, frozen=True):
    """A folder that the daemon pushes by itself; times as text, like `5s`."""

    path: str
    dataset: str
    debounce: str = "5s"
    stable: str = "2s"
    rescan: str = "15m"
    scan: str = "30s"
    window: str = ""
    max_loss: str = "50%"
    shared: bool = False
    tag: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    xattrs: bool = False


class Warm(_Strict, frozen=True):
    """A reference that the daemon keeps ready on this node."""

    dataset: str
    priority: int = 0
    every: str = "30s"
    window: str = ""
    subset: tuple[str, ...] = ()


class Scrub(_Strict, frozen=True):
    """How the daemon checks the node's cache in the background: how often, how fast, when; `every` empty for never."""

    every: str = "7d"
    rate: str = "32MiB"
    window: str = ""


class Server(_Strict, frozen=True):
    """How the daemon is reached."""

    listen: str = "unix"
    socket: str = ""
    group: str = ""
    certificate: str = ""
    key: str = ""
    client_ca: str = ""
    hosts: tuple[str, ...] = ()


class Alerts(_Strict, frozen=True):
    """Whom the daemon tells what went wrong."""

    webhook: str = ""
    exec: tuple[str, ...] = ()
    behind: str = "1h"
    disk_free: str = "5%"
    ending: str = "7d"


class Control(_Strict, frozen=True):
    """The control side that this node gets its keys from."""

    url: str = ""
    token_file: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    node: str = ""


class Proof(_Strict, frozen=True):
    """A claim, by the names that lead to it, and the values of it that prove something."""

    claim: tuple[str, ...]
    values: tuple[str | bool, ...]


class Issuer(_Strict, frozen=True):
    """Who signs JWTs that are believed: fixed algorithms, exact names, keys from one place; and which of its claims
    policies may rely on. `mfa`: any of these proves a second factor; `attested`: all of these prove the machine;
    `region`, `purpose`: where a token says them. What is not named here is not known.
    """

    issuer: str
    audience: str
    jwks: str
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    ca: str = ""
    mfa: tuple[Proof, ...] = ()
    attested: tuple[Proof, ...] = ()
    region: tuple[str, ...] = ()
    purpose: tuple[str, ...] = ()


class Access(_Strict, frozen=True):
    """What a subject of an issuer (`mtls` for client certificates) may do."""

    issuer: str
    subject: str
    datasets: tuple[str, ...]
    actions: tuple[str, ...] = ("warm",)
    ttl: str = "12h"


@dataclass(frozen=True, slots=True)
class Settings:
    """All of the daemon's settings."""

    mirrors: tuple[Mirror, ...]
    warms: tuple[Warm, ...]
    scrub: Scrub
    server: Server
    alerts: Alerts
    control: Control
    issuers: tuple[Issuer, ...]
    access: tuple[Access, ...]


def seconds(text: str, what: str) -> float:
    """Return the seconds of *text*, like `90s`, `15m`, `12h`, `7d`."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{what}: expected a time like 5s, 15m, 12h or 7d, found {text!r}")
    return float(match[1]) * _UNITS[match[2]]


def share(text: str, what: str) -> float:
    """Return the share of *text*, like `50%`, between 0 and 1."""
    match = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]+)?)%", text.strip())
    if match is None or float(match[1]) > 100:
        raise UsageError(f"{what}: expected a share like 50%, found {text!r}")
    return float(match[1]) / 100


def rate(text: str, what: str) -> float:
    """Return the bytes a second of *text*, like `32MiB`."""
    number, share = parse_size(text, what)
    if share or not number:
        raise UsageError(f"{what}: expected bytes a second like 32MiB, found {text!r}")
    return number


def window(text: str, what: str) -> tuple[int, int] | None:
    """Return the seconds of the day between which work is done, None for always: `22:00-06:00`."""
    if not text:
        return None
    match = _WINDOW.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{what}: expected two times of the day like 22:00-06:00, found {text!r}")
    hours = [int(part) for part in match.groups()]
    return hours[0] * 3600 + hours[1] * 60, hours[2] * 3600 + hours[3] * 60


def read_settings(config: Config, extra: Sequence[Mapping[str, Any]] = ()) -> Settings:
    """Return the settings in *config*, with *extra* mirrors that were added by command."""
    tables = config.tables
    mirrors = (*_list(tables, "mirror", Mirror), *(_convert(dict(item), Mirror, "mirror") for item in extra))
    found = Settings(
        tuple({item.dataset: item for item in mirrors}.values()),
        tuple(_list(tables, "warm", Warm)),
        _convert(tables.get("scrub", {}), Scrub, "scrub"),
        _convert(tables.get("daemon", {}), Server, "daemon"),
        _convert(tables.get("alerts", {}), Alerts, "alerts"),
        _convert(tables.get("control", {}), Control, "control"),
        tuple(_list(tables, "issuer", Issuer)),
        tuple(_list(tables, "access", Access)),
    )
    _check(found, [item.dataset for item in mirrors])
    return found


def _list(tables: Mapping[str, Any], name: str, kind: type[Struct]) -> list[Struct]:
    value = tables.get(name, [])
    if not isinstance(value, list):
        raise UsageError(f"{name}: expected tables written as [[{name}]]")
    return [_convert(item, kind, name) for item in value]


def _convert(value: Any, kind: type[Struct], name: str) -> Struct:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"[{name}]: {error}") from None


def _check(found: Settings, names: list[str]) -> None:
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise UsageError(f"[[mirror]]: two mirrors push into dataset {doubled[0]!r} here: give each its own dataset")
    for mirror in found.mirrors:
        check_name(mirror.dataset, "dataset")
        if not Path(mirror.path).is_absolute():
            raise UsageError(f"[[mirror]] {mirror.dataset}: path: expected an absolute path, found {mirror.path!r}")
        for key in ("debounce", "stable", "rescan", "scan"):
            seconds(getattr(mirror, key), f"[[mirror]] {mirror.dataset}: {key}")
        window(mirror.window, f"[[mirror]] {mirror.dataset}: window")
        share(mirror.max_loss, f"[[mirror]] {mirror.dataset}: max_loss")
    for item in found.warms:
        parse_reference(item.dataset)
        seconds(item.every, f"[[warm]] {item.dataset}: every")
        window(item.window, f"[[warm]] {item.dataset}: window")
    if found.scrub.every:
        seconds(found.scrub.every, "[scrub] every")
    rate(found.scrub.rate, "[scrub] rate")
    window(found.scrub.window, "[scrub] window")
    for key in ("behind", "ending"):
        seconds(getattr(found.alerts, key), f"[alerts] {key}")
    share(found.alerts.disk_free, "[alerts] disk_free")
    _check_control(found)


def _check_control(found: Settings) -> None:
    for issuer in found.issuers:
        unknown = sorted(set(issuer.algorithms) - set(ALGORITHMS))
        if unknown or not issuer.algorithms:
            raise UsageError(f"[[issuer]] {issuer.issuer}: algorithms: expected some of {', '.join(ALGORITHMS)}")
        _check_issuer(issuer)
    names = [issuer.issuer for issuer in found.issuers]
    if len(names) != len(set(names)):
        raise UsageError("[[issuer]]: expected each issuer once, found one twice")
    for item in found.access:
        wrong = sorted(set(item.actions) - set(ACTIONS))
        if wrong:
            raise UsageError(f"[[access]] {item.subject}: action {wrong[0]!r}: expected {' or '.join(ACTIONS)}")
        seconds(item.ttl, f"[[access]] {item.subject}: ttl")
    server = found.server
    if server.listen != "unix" and not (server.listen.startswith("tcp://") and server.certificate and server.key):
        raise UsageError(
            "[daemon] listen: expected unix, or tcp://HOST:PORT with `certificate` and `key`: TCP needs TLS"
        )


def _check_issuer(issuer: Issuer) -> None:
    """Refuse a name that a policy could take for another's: it knows who asks as ISSUER#SUBJECT."""
    if not issuer.issuer or "#" in issuer.issuer or issuer.issuer in OWN_ISSUERS:
        raise UsageError(
            f"[[issuer]] {issuer.issuer!r}: expected a name without `#`, other than {', '.join(OWN_ISSUERS)}"
        )
    if not all(proof.claim and proof.values for proof in (*issuer.mfa, *issuer.attested)):
        raise UsageError(f"[[issuer]] {issuer.issuer}: mfa and attested: expected a claim and values of it")
