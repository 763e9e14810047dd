"""Mirrors that were added by command, kept beside the evidence: one JSON file, replaced whole.

The configuration is a person's file and is never written by a program. Raises `UsageError` for a file that does not
parse, `NotFound` for a mirror that is not in it.
"""

import json
import os
from pathlib import Path
from typing import Any

from datasync.config import Config
from datasync.errors import NotFound, UsageError

NAME = "mirrors.json"


def _path(config: Config) -> Path:
    return config.evidence.parent / NAME


def added_mirrors(config: Config) -> list[dict[str, Any]]:
    """Return the tables of all mirrors that were added."""
    path = _path(config)
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return []
    except ValueError:
        raise UsageError(f"{path}: expected a JSON list of mirrors: correct or remove it") from None
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise UsageError(f"{path}: expected a JSON list of mirrors: correct or remove it")
    return found


def add(config: Config, table: dict[str, Any]) -> None:
    """Keep one more mirror, instead of an older one of the same dataset."""
    others = [item for item in added_mirrors(config) if item.get("dataset") != table["dataset"]]
    _write(config, [*others, table])


def remove(config: Config, dataset: str) -> None:
    """Forget a mirror that was added."""
    found = added_mirrors(config)
    rest = [item for item in found if item.get("dataset") != dataset]
    if len(rest) == len(found):
        raise NotFound(f"mirror {dataset!r}: it was not added by command: remove its [[mirror]] from the configuration")
    _write(config, rest)


def _write(config: Config, tables: list[dict[str, Any]]) -> None:
    path = _path(config)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with aside.open("w") as file:
        file.write(json.dumps(tables, indent=1))
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
