"""datasync config."""

import click

from datasync.cli.common import common
from datasync.cli.output import Output
from datasync.config import Flags, load_config


@click.command("config")
@common
def command(output: Output, flags: Flags) -> None:
    """Show the settings in force and the files that they came from. Secrets are never shown."""
    config = load_config(flags)
    fields: dict[str, object] = {
        "repository": config.repository,
        "identity": str(config.identity),
        "trust": list(config.trust),
        "kms": list(config.kms),
        "passphrase": "set" if config.passphrase else "not set",
        "identity_passphrase": "set" if config.identity_passphrase else "not set",
        "push.chunker": config.chunker,
        "push.bwlimit": config.bwlimit,
        "push.storage_class": config.storage_class,
        "cache.dirs": [str(path) for path in config.caches],
        "cache.max": config.cache_max,
        "cache.reserve": config.cache_reserve,
        "cache.group": config.cache_group,
        "cache.accounts": dict(config.accounts),
        "audit.retention": config.audit.retention,
        "audit.recipients": list(config.audit.recipients),
        "audit.region": config.audit.region,
        "audit.lock": config.audit.lock,
        "audit.ship": config.audit.ship,
        "audit.watch": config.audit.watch,
        "policy.dir": None if config.policy_dir is None else str(config.policy_dir),
        "policy.grants": [str(path) for path in config.grants],
        "policy.role": config.credential_role,
        "policy.sts_endpoint": config.sts_endpoint,
        "daemon": config.daemon,
        "daemon.tables": sorted(config.tables),
        "token": "set" if config.token or config.token_file else "not set",
        "state": str(config.state),
        "evidence": str(config.evidence),
        "files": [str(path) for path in config.files],
    }
    for key, value in fields.items():
        output.line(f"{key} = {_words(value)}")
    output.result(**fields)


def _words(value: object) -> str:
    """Return *value* for a person."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {item}" for key, item in value.items()) or "none"
    return str(value) if value else "not set"
