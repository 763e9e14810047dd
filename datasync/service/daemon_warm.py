"""A warm that this machine's daemon makes: asked for over its socket, followed to its end, leased here.

The lease is always the job's own. Raises as a warm does; the daemon's errors keep their class.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from datasync.cache.layout import Cache
from datasync.config import Config
from datasync.errors import IntegrityError, NotAuthorized, NotFound, StorageUnavailable
from datasync.model.ids import SnapshotId
from datasync.pull.pipeline import Progress, PullResult
from datasync.service.caches import part_name
from datasync.service.client import Api
from datasync.service.warm import Report, Warmed, WarmOptions, hold

TRIES = 3  # times that a view may be evicted between the daemon's answer and the lease


class _Ready(msgspec.Struct, frozen=True):
    """The daemon's last event."""

    dataset: str
    seq: int
    snapshot: str
    path: str
    total_files: int
    result: PullResult | None


def usable(config: Config, path: Path) -> Api | None:
    """Return the daemon that listens at *path* if it serves what this command line means, as who names it says."""
    api = Api.local(path)
    if config.daemon:
        return api
    try:
        found = api.call("GET", "/v1/status")
    except (StorageUnavailable, NotAuthorized):
        return None  # not this user's, or just ending: work without it
    same = config.repository in (None, found.get("repository"))
    return api if same and (not config.caches_chosen or _same_caches(config, found)) else None


def _same_caches(config: Config, found: dict[str, Any]) -> bool:
    return [str(path.absolute()) for path in config.caches] == [str(Path(item)) for item in found.get("caches", [])]


def ask(
    api: Api,
    reference: str,
    report: Report,
    waiting: Callable[[], None] | None,
    options: WarmOptions,
    warn: Callable[[str], None],
) -> Warmed:
    """Have *api* make the view that *reference* means ready, and hold it where *options* say so."""
    body = {
        "reference": reference,
        "pin": options.pin,
        "pin_seconds": options.pin_seconds,
        "wait": options.wait,
        "subset": options.subset,
        "order": options.order,
    }
    for _ in range(TRIES):
        ready = _follow(api, body, report, waiting, warn)
        try:
            return _held(ready, options)
        except NotFound:
            continue  # evicted before the lease was taken
    raise NotFound(f"{reference}: evicted {TRIES} times before it could be leased: the cache is too small for its jobs")


def _follow(
    api: Api,
    body: dict[str, Any],
    report: Report,
    waiting: Callable[[], None] | None,
    warn: Callable[[str], None],
) -> _Ready:
    for event in api.stream("POST", "/v1/warm", body):
        kind = event["type"]
        if kind == "ready":
            return msgspec.convert(event, _Ready)
        if kind == "progress":
            report(msgspec.convert(event, Progress))
        elif kind == "waiting" and waiting is not None:
            waiting()
        elif kind == "warning":
            warn(str(event["message"]))
    raise StorageUnavailable(f"{api.name}: it ended before the warm was done: run the same line again")


def _held(ready: _Ready, options: WarmOptions) -> Warmed:
    path, snapshot = Path(ready.path), bytes.fromhex(ready.snapshot)
    lease = None
    if options.lease:
        with Cache.open(path.parents[2]) as cache:
            view = cache.view(ready.dataset, ready.seq, SnapshotId(snapshot), part_name(options.subset))
        if view.path != path:
            raise IntegrityError(f"daemon: it answered with {path}, expected {view.path}")
        lease = hold(path.parents[2], view)
    return Warmed(ready.dataset, ready.seq, snapshot, ready.total_files, path, ready.result, lease)
