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
        "passphrase": "set" if config.passphrase else "not set",
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
        "state": str(config.state),
        "evidence": str(config.evidence),
        "files": [str(path) for path in config.files],
    }
    for key, value in fields.items():
        output.line(f"{key} = {value}")
    output.result(**fields)
