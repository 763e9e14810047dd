"""Have a daemon push one of its mirrors now, and follow that push to its end.

The run that is followed begins after the question, so what was in the folder then is in the snapshot. Raises as the
push does: `UsageError` for what is held back, `NotFound` for a folder that is no mirror, `PartialFailure` when entries
were skipped, `StorageUnavailable` when the daemon ends before.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from datasync.errors import NotFound, PartialFailure, StorageUnavailable
from datasync.service.client import Api, error_of, quoted

Tell = Callable[[dict[str, Any]], None]


def mirror_of(api: Api, path: Path, dataset: str | None) -> str:
    """Return the dataset that the daemon mirrors the folder *path* into."""
    mirrors = api.call("GET", "/v1/mirrors")["mirrors"]
    wanted = str(path.resolve())
    for item in mirrors:
        if str(Path(item["path"]).resolve()) == wanted and dataset in (None, item["dataset"]):
            return str(item["dataset"])
    into = f" into {dataset!r}" if dataset is not None else ""
    raise NotFound(
        f"{path}: the daemon does not mirror it{into}: `datasync daemon mirror add` makes it, or leave --daemon out"
    )


def push_mirror(api: Api, dataset: str, tell: Tell) -> dict[str, Any]:
    """Push the mirror of *dataset*; *tell* gets the progress; return the mirror's state afterwards."""
    before = _state(api, dataset)
    run = None
    for event in api.stream("GET", "/v1/events"):
        if event["type"] == "listening":  # only now: nothing of the run is missed
            run = api.call("POST", f"/v1/mirrors/{quoted(dataset)}/push")["run"]
        elif event.get("dataset") != dataset or run is None:
            continue
        elif event["type"] == "push":
            tell(event)
        elif event["type"] == "ran" and event["run"] >= run:
            if "error" in event:
                raise error_of(event, api.name)
            return _ended(api, dataset, before)
    raise StorageUnavailable(f"{api.name}: it ended before the push did: the next start goes on")


def _ended(api: Api, dataset: str, before: dict[str, Any]) -> dict[str, Any]:
    found = _state(api, dataset)
    if found["skipped"]:
        raise PartialFailure(
            f"{dataset}@{found['seq']}: {found['skipped']} entries were skipped: the daemon's log names them"
        )
    return found | {"created": found["pushes"] > before["pushes"]}


def _state(api: Api, dataset: str) -> dict[str, Any]:
    mirrors: list[dict[str, Any]] = api.call("GET", "/v1/mirrors")["mirrors"]
    for item in mirrors:
        if item["dataset"] == dataset:
            return item
    raise NotFound(f"mirror {dataset!r}: {api.name} has no such mirror")
