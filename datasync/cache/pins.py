"""Pins: a pinned view is not evicted, for ever or until a time.

`<folder>/.pin-<seq>-<id>`: JSON `{"until": ms or 0}`. Pins are set under the view's lock, so an eviction and a new pin
never cross; the file of one that ended goes with the view.
"""

import json
import os
import time

from datasync.cache.faults import fault
from datasync.cache.layout import Cache, View
from datasync.cache.locks import ViewLock
from datasync.errors import NotFound

PIN_BYTES = 4096


def _name(view: View) -> bytes:
    return view.folder + b"/.pin-" + view.stem


def pin(cache: Cache, view: View, until: int) -> None:
    """Pin a ready view until *until* (ms), 0 for ever; `NotFound` when it was evicted meanwhile."""
    aside = _name(view) + b".new"
    with ViewLock(cache, view):
        if cache.tree.lstat(view.ready) is None:
            raise NotFound(f"view {view.path}: it was evicted: warm it again")
        cache.tree.remove(aside)
        fd = cache.tree.create(aside, 0o644)
        try:
            os.write(fd, json.dumps({"until": until}).encode())
            os.fsync(fd)
        except OSError as error:
            raise fault(error, f"pin view {view.path}") from error
        finally:
            os.close(fd)
        cache.tree.rename(aside, _name(view))


def unpin(cache: Cache, view: View) -> None:
    """Let the view be evicted again."""
    cache.tree.remove(_name(view))


def pinned_until(cache: Cache, view: View) -> int | None:
    """Return until when (ms; 0 for ever) the view is pinned, None when it is not, or not any more."""
    try:
        fd = cache.tree.open_file(_name(view))
    except NotFound:
        return None
    try:
        until = int(json.loads(os.read(fd, PIN_BYTES))["until"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        until = 1  # no pin of ours
    finally:
        os.close(fd)
    return None if until and until <= time.time() * 1000 else until
