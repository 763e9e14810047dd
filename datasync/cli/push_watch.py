"""datasync push --watch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from datasync.cli.output import Output, shown, size
from datasync.config import Flags, load_config
from datasync.errors import NotFound, UsageError
from datasync.service.daemon_settings import Mirror


@dataclass(frozen=True, slots=True)
class Watched:
    """What is watched, and the options of push that go with it."""

    path: Path
    dataset: str | None
    tag: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    xattrs: bool
    source_change: bool


def watch_directory(wanted: Watched, output: Output, flags: Flags, *, alone: bool) -> NoReturn:
    """Push whenever the directory has changed, until a signal comes."""
    if not alone:
        raise UsageError("--watch goes with --dataset, --tag, --include, --exclude, --xattrs and --source-change alone")
    if not wanted.path.is_dir():
        raise NotFound(f"{wanted.path}: no such directory; correct the path, or mount the disk it lies on")
    try:
        from datasync.daemon.foreground import watch
    except ImportError as error:
        raise UsageError(f"--watch needs the package {error.name}: pip install 'gpu-datasync[watch]'") from None
    root = wanted.path.resolve()
    mirror = Mirror(
        path=str(root),
        dataset=wanted.dataset or root.name,
        tag=wanted.tag,
        include=wanted.include,
        exclude=wanted.exclude,
        xattrs=wanted.xattrs,
        shared=wanted.source_change,
    )
    output.note(f"{mirror.dataset}: watching {root}; Ctrl-C ends it")

    def tell(event: dict[str, Any]) -> None:
        _tell(event, output)

    watch(load_config(flags), mirror, tell)
    raise AssertionError("watching ends by a signal")


def _tell(event: dict[str, Any], output: Output) -> None:
    fields = {key: value for key, value in event.items() if key not in ("type", "number")}
    name = event["dataset"]
    if event["type"] == "push":
        output.progress(f"{event['entries']:,} entries, sent {size(event['sent_bytes'])}", **fields)
        return
    output.event(event["type"], **fields)
    if event["type"] == "pushed":
        output.note(f"{name}@{event['seq']}: " + ("pushed" if event["created"] else "nothing changed"))
    elif not output.as_json:
        output.warn(f"{name}: {event['type']}: {shown(event['reason'])}")
