"""Pins: a pinned view is not evicted, for ever or until a time.

`<folder>/.pin-<seq>-<id>`: JSON `{"until": ms or 0}`.
"""

import json
import os
import time

from datasync.cache.layout import Cache, View
from datasync.errors import NotFound

PIN_BYTES = 4096


def _name(view: View) -> bytes:
    return view.folder + b"/.pin-" + view.stem


def pin(cache: Cache, view: View, until: int) -> None:
    """Pin the view until *until* (ms), 0 for ever."""
    aside = _name(view) + b".new"
    cache.tree.remove(aside)
    fd = cache.tree.create(aside, 0o644)
    try:
        os.write(fd, json.dumps({"until": until}).encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    cache.tree.rename(aside, _name(view))


def unpin(cache: Cache, view: View) -> None:
    """Let the view be evicted again."""
    cache.tree.remove(_name(view))


def pinned_until(cache: Cache, view: View) -> int | None:
    """Return until when (ms; 0 for ever) the view is pinned, None when it is not; a pin that ended is removed."""
    try:
        fd = cache.tree.open_file(_name(view))
    except NotFound:
        return None
    try:
        until = int(json.loads(os.read(fd, PIN_BYTES))["until"])
    except (ValueError, KeyError, TypeError):
        until = 1
    finally:
        os.close(fd)
    if until and until <= time.time() * 1000:
        unpin(cache, view)
        return None
    return until
