"""A push that the daemon does: `datasync push PATH --daemon SOCKET`, `datasync daemon push DATASET --wait`."""

from pathlib import Path
from typing import Any

from datasync.cli.output import Output, size
from datasync.config import Flags, load_config
from datasync.errors import UsageError
from datasync.service.client import require_local
from datasync.service.mirror_client import mirror_of, push_mirror


def push_by_daemon(path: Path, dataset: str | None, output: Output, flags: Flags, *, alone: bool) -> None:
    """Have the daemon push the folder *path*, which it mirrors."""
    if not alone:
        raise UsageError("push --daemon goes with --dataset alone: the rest is what the daemon's [[mirror]] says")
    follow(mirror_of(require_local(load_config(flags)), path, dataset), output, flags)


def follow(dataset: str, output: Output, flags: Flags) -> None:
    """Have the daemon push the mirror of *dataset*, and show how far it is until it has."""

    def tell(event: dict[str, Any]) -> None:
        fields = {key: value for key, value in event.items() if key not in ("type", "number", "dataset")}
        output.progress(f"{event['entries']:,} entries", f"sent {size(event['sent_bytes'])}", **fields)

    found = push_mirror(require_local(load_config(flags)), dataset, tell)
    output.note(f"{dataset}@{found['seq']}: " + ("pushed" if found["created"] else "nothing changed"))
    output.result(
        dataset=dataset, seq=found["seq"], snapshot=found["snapshot"], created=found["created"], path=found["path"]
    )
