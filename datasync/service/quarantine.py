"""Damaged objects are moved out of the way, so no view adopts them again; they are kept as evidence until a purge."""

import time

from datasync.cache.kernel import names_in
from datasync.cache.layout import OBJECTS, QUARANTINE, Cache
from datasync.errors import NotFound


def quarantine(cache: Cache, object_id: bytes) -> bool:
    """Move the object *object_id* to the cache's quarantine; False when there is none: only the view had it."""
    tree = cache.tree
    if tree.lstat(QUARANTINE) is None:
        tree.make_directory(QUARANTINE, 0o700)
    text = object_id.hex().encode()
    try:
        tree.rename(OBJECTS + b"/" + text[:2] + b"/" + text, QUARANTINE + b"/" + text + b"-%d" % int(time.time()))
    except NotFound:
        return False
    return True


def quarantined(cache: Cache) -> int:
    """Return how many objects lie in quarantine."""
    if cache.tree.lstat(QUARANTINE) is None:
        return 0
    with cache.tree.subtree(QUARANTINE) as tree:
        return len(names_in(tree.root_fd))
