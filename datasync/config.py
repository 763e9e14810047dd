"""Settings: flag > environment > ./datasync.toml > $XDG_CONFIG_HOME/datasync/config.toml > /etc/datasync/config.toml,
into one frozen Config.

The only place that reads settings and environment. Clouds' credentials stay in the clouds' own variables. Raises
`UsageError` that names the file and the key.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasync.cache.space import parse_size
from datasync.errors import UsageError

SYSTEM_FILE = Path("/etc/datasync/config.toml")
LOCAL_FILE = Path("datasync.toml")
CHUNKERS = ("cdc", "fixed")
SECTIONS = {"push": ("chunker",), "cache": ("dirs", "max", "reserve")}
TOP = ("repository", "identity", "trust")


@dataclass(frozen=True, slots=True)
class Config:
    """All settings; paths are absolute or relative to the working directory."""

    repository: str | None
    identity: Path
    trust: tuple[str, ...]
    passphrase: str | None = field(repr=False)
    chunker: str
    caches: tuple[Path, ...]
    cache_max: str
    cache_reserve: str
    state: Path
    evidence: Path
    files: tuple[Path, ...]
    """The configuration files that were read, the strongest first."""


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line says."""

    repository: str | None = None
    config: Path | None = None
    caches: tuple[Path, ...] = ()
    trust: tuple[str, ...] = ()


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
    return Config(
        repository=pick(flags.repository, "DATASYNC_REPOSITORY", "repository"),
        identity=Path(pick(None, "DATASYNC_IDENTITY", "identity") or config_home / "identity").expanduser(),
        trust=tuple(trust.replace(",", " ").split() if isinstance(trust, str) else trust),
        passphrase=env.get("DATASYNC_PASSPHRASE") or None,
        chunker=chunker,
        caches=tuple(Path(item).expanduser() for item in caches or (default_cache,)),
        cache_max=_size(pick(None, "DATASYNC_CACHE_MAX", "cache", "max") or "100%", "cache.max"),
        cache_reserve=_size(pick(None, "DATASYNC_CACHE_RESERVE", "cache", "reserve") or "0", "cache.reserve"),
        state=state,
        evidence=data / "datasets",
        files=files,
    )


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
            unknown = [] if key in TOP else [key]
        if unknown:
            known = [*TOP, *(f"{name}.{item}" for name, items in SECTIONS.items() for item in items)]
            raise UsageError(f"{path}: unknown setting {unknown[0]}: this version knows {', '.join(known)}")
    _check_types(path, value)
    return value


def _check_types(path: Path, value: dict[str, Any]) -> None:
    expected = {
        ("repository",): str,
        ("identity",): str,
        ("trust",): list,
        ("push", "chunker"): str,
        ("cache", "dirs"): list,
        ("cache", "max"): str,
        ("cache", "reserve"): str,
    }
    for keys, kind in expected.items():
        found = _dig(value, keys)
        if found is not None and (
            not isinstance(found, kind) or (kind is list and not all(isinstance(x, str) for x in found))
        ):
            wanted = "a list of texts" if kind is list else "a text"
            raise UsageError(f"{path}: {'.'.join(keys)}: expected {wanted}, found {found!r}")


def _dig(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    return value
