"""Settings: flag > environment > ./datasync.toml > $XDG_CONFIG_HOME/datasync/config.toml > /etc/datasync/config.toml,
into one frozen Config.

The only place that reads settings and environment. Clouds' credentials stay in the clouds' own variables. Raises
`UsageError` that names the file and the key.
"""

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasync.cache.sizes import parse_size
from datasync.errors import UsageError

SYSTEM_FILE = Path("/etc/datasync/config.toml")
LOCAL_FILE = Path("datasync.toml")
CHUNKERS = ("cdc", "fixed")
CACHE = ("dirs", "max", "reserve", "group", "accounts")
AUDIT = ("retention", "recipients", "region", "lock", "ship", "watch")
SECTIONS = {"push": ("chunker", "bwlimit", "storage_class"), "cache": CACHE, "audit": AUDIT}
SECTIONS["policy"] = ("dir", "grants", "role", "sts_endpoint")
TOP = ("repository", "identity", "trust", "kms")
TABLES = ("mirror", "warm", "scrub", "daemon", "alerts", "control", "issuer", "access")  # for service.daemon_settings


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """The audit log: how long it is kept (`3y`), who reads shipped logs (besides this identity), where this machine is,
    whether shipped objects are locked by the store, whether purge and the daemon ship, whether the daemon verifies what
    all machines shipped.
    """

    retention: str = "3y"
    recipients: tuple[str, ...] = ()
    region: str = ""
    lock: bool = False
    ship: bool = False
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Config:
    """All settings; paths are absolute or relative to the working directory."""

    repository: str | None
    identity: Path
    trust: tuple[str, ...]
    kms: tuple[str, ...]
    """Keys of key services that may be asked, as URIs; no other one is."""
    passphrase: str | None = field(repr=False)
    identity_passphrase: str | None = field(repr=False)
    chunker: str
    caches: tuple[Path, ...]
    cache_max: str
    cache_reserve: str
    state: Path
    evidence: Path
    files: tuple[Path, ...]
    """The configuration files that were read, the strongest first."""
    bwlimit: str = "off"
    audit: AuditSettings = AuditSettings()
    storage_class: str | None = None
    tables: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The daemon's tables as they are written, each from the strongest file that has it."""
    daemon: str | None = None
    """The daemon to ask: a socket's path or the URL of a control side; `off` asks none."""
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    runtime: Path | None = None
    caches_chosen: bool = False
    """False when `caches` is the default because nothing names one."""
    policy_dir: Path | None = None
    """The site's own policy, which decides besides the datasets'."""
    grants: tuple[Path, ...] = ()
    """Files of offline grants for this machine."""
    credential_role: str | None = None
    """The role that scoped storage credentials are sessions of."""
    sts_endpoint: str | None = None
    cache_group: str | None = None
    """The local group that may read views while no policy is in force."""
    accounts: Mapping[str, str] = field(default_factory=dict)
    """The local user or group of each principal of the policies (docs/policy.md), who may read as these say."""


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line says."""

    repository: str | None = None
    config: Path | None = None
    caches: tuple[Path, ...] = ()
    trust: tuple[str, ...] = ()
    storage_class: str | None = None
    daemon: str | None = None


def load_config(flags: Flags, environment: Mapping[str, str] | None = None) -> Config:
    """Return the settings in force."""
    env = os.environ if environment is None else environment
    home = _home(env)
    config_home = Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "datasync"
    files, values = _read_files(flags, config_home / "config.toml")

    def pick(flag: Any, variable: str, *keys: str) -> Any:
        if flag:
            return flag
        if env.get(variable):
            return env[variable]
        for value in values:
            found = _dig(value, keys)
            if found is not None:
                return found
        return None

    data = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share") / "datasync"
    state = Path(env.get("XDG_STATE_HOME") or home / ".local" / "state") / "datasync"
    dirs = pick(flags.caches, "DATASYNC_CACHE", "cache", "dirs")
    caches = dirs.split(":") if isinstance(dirs, str) else dirs  # as PATH has them
    default_cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache") / "datasync"
    chunker = pick(None, "DATASYNC_PUSH_CHUNKER", "push", "chunker") or "cdc"
    if chunker not in CHUNKERS:
        raise UsageError(f"push.chunker: expected one of {', '.join(CHUNKERS)}, found {chunker!r}")
    trust = pick(flags.trust, "DATASYNC_TRUST", "trust") or ()
    kms = pick(None, "DATASYNC_KMS", "kms") or ()
    return Config(
        repository=pick(flags.repository, "DATASYNC_REPOSITORY", "repository"),
        identity=Path(pick(None, "DATASYNC_IDENTITY", "identity") or config_home / "identity").expanduser(),
        trust=tuple(trust.replace(",", " ").split() if isinstance(trust, str) else trust),
        kms=tuple(kms.split() if isinstance(kms, str) else kms),
        passphrase=env.get("DATASYNC_PASSPHRASE") or None,
        identity_passphrase=env.get("DATASYNC_IDENTITY_PASSPHRASE") or None,
        chunker=chunker,
        caches=tuple(Path(item).expanduser() for item in caches or (default_cache,)),
        cache_max=_size(pick(None, "DATASYNC_CACHE_MAX", "cache", "max") or "100%", "cache.max"),
        cache_reserve=_size(pick(None, "DATASYNC_CACHE_RESERVE", "cache", "reserve") or "0", "cache.reserve"),
        state=state,
        evidence=data / "datasets",
        files=files,
        audit=_audit(pick),
        bwlimit=pick(None, "DATASYNC_PUSH_BWLIMIT", "push", "bwlimit") or "off",
        storage_class=pick(flags.storage_class, "DATASYNC_PUSH_STORAGE_CLASS", "push", "storage_class"),
        policy_dir=_path(pick(None, "DATASYNC_POLICY_DIR", "policy", "dir")),
        grants=_paths(pick(None, "DATASYNC_POLICY_GRANTS", "policy", "grants")),
        credential_role=pick(None, "DATASYNC_POLICY_ROLE", "policy", "role"),
        cache_group=pick(None, "DATASYNC_CACHE_GROUP", "cache", "group"),
        accounts=pick(None, "", "cache", "accounts") or {},
        sts_endpoint=pick(None, "DATASYNC_POLICY_STS_ENDPOINT", "policy", "sts_endpoint"),
        tables={name: value[name] for name in TABLES for value in reversed(values) if name in value},
        daemon=flags.daemon or env.get("DATASYNC_DAEMON") or None,
        token=env.get("DATASYNC_TOKEN") or None,
        token_file=Path(env["DATASYNC_TOKEN_FILE"]) if env.get("DATASYNC_TOKEN_FILE") else None,
        caches_chosen=bool(caches),
        runtime=Path(env["XDG_RUNTIME_DIR"]) / "datasync" if env.get("XDG_RUNTIME_DIR") else None,
    )


def _audit(pick: Callable[..., Any]) -> AuditSettings:
    found = {name: pick(None, f"DATASYNC_AUDIT_{name.upper()}", "audit", name) for name in AUDIT}
    recipients = found["recipients"] or ()
    return AuditSettings(
        retention=found["retention"] or "3y",
        recipients=tuple(recipients.split() if isinstance(recipients, str) else recipients),
        region=found["region"] or "",
        lock=_flag(found["lock"], "audit.lock"),
        ship=_flag(found["ship"], "audit.ship"),
        watch=_flag(found["watch"], "audit.watch"),
    )


def _flag(value: Any, what: str) -> bool:
    if value in (None, "", "0", "false", False):
        return False
    if value in ("1", "true", True):
        return True
    raise UsageError(f"{what}: expected true or false, found {value!r}")


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser() if text else None


def _paths(found: Any) -> tuple[Path, ...]:
    items = found.split(":") if isinstance(found, str) else found or ()  # as PATH has them
    return tuple(Path(item).expanduser() for item in items)


def _size(text: str, what: str) -> str:
    parse_size(text, what)
    return text


def _home(env: Mapping[str, str]) -> Path:
    try:
        return Path(env["HOME"]) if env.get("HOME") else Path.home()
    except RuntimeError:
        raise UsageError("HOME: expected a home directory for identity and state, found none: set HOME") from None


def _read_files(flags: Flags, user_file: Path) -> tuple[tuple[Path, ...], list[dict[str, Any]]]:
    if flags.config is not None and not flags.config.is_file():
        raise UsageError(f"{flags.config}: expected a configuration file, found none")
    candidates = [flags.config] if flags.config is not None else [LOCAL_FILE, user_file, SYSTEM_FILE]
    found = [(path, _read_file(path)) for path in candidates if path.is_file()]
    return tuple(path for path, _ in found), [value for _, value in found]


def _read_file(path: Path) -> dict[str, Any]:
    try:
        value = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    for key, section in value.items():
        if key in SECTIONS and isinstance(section, dict):
            unknown = [f"{key}.{name}" for name in section if name not in SECTIONS[key]]
        else:
            unknown = [] if key in TOP or key in TABLES else [key]
        if unknown:
            known = [*TOP, *(f"{name}.{item}" for name, items in SECTIONS.items() for item in items)]
            raise UsageError(f"{path}: unknown setting {unknown[0]}: this version knows {', '.join(known)}")
    _check_types(path, value)
    return value


def _check_types(path: Path, value: dict[str, Any]) -> None:
    expected: dict[tuple[str, ...], type[Any]] = {
        ("repository",): str,
        ("identity",): str,
        ("trust",): list,
        ("kms",): list,
        ("push", "chunker"): str,
        ("push", "bwlimit"): str,
        ("push", "storage_class"): str,
        ("cache", "dirs"): list,
        ("cache", "max"): str,
        ("cache", "reserve"): str,
        ("cache", "group"): str,
        ("cache", "accounts"): dict,
        ("policy", "dir"): str,
        ("policy", "grants"): list,
        ("policy", "role"): str,
        ("policy", "sts_endpoint"): str,
        ("audit", "retention"): str,
        ("audit", "recipients"): list,
        ("audit", "region"): str,
        ("audit", "lock"): bool,
        ("audit", "ship"): bool,
        ("audit", "watch"): bool,
    }
    for keys, kind in expected.items():
        found = _dig(value, keys)
        inside = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
        if found is not None and not (isinstance(found, kind) and all(isinstance(x, str) for x in inside)):
            wanted = {list: "a list of texts", dict: "a table of texts", bool: "true or false"}.get(kind, "a text")
            raise UsageError(f"{path}: {'.'.join(keys)}: expected {wanted}, found {found!r}")


def _dig(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    return value
