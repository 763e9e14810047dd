"""datasync: secure dataset staging for rented GPU nodes.

The typed API is lazy, so importing the package costs nothing (docs/architecture.md):

    import datasync
    repository = datasync.open("s3://bucket/prefix")
    repository.push("./data", dataset="data")
    path = repository.warm("data")
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from datasync.service.api import Push, Repository, Snapshot, open

__all__ = ["Push", "Repository", "Snapshot", "__version__", "open"]


def __getattr__(name: str) -> Any:
    if name in ("Push", "Repository", "Snapshot", "open"):
        from datasync.service import api

        return getattr(api, name)
    if name == "torch":
        return importlib.import_module("datasync.integrations.torch")
    raise AttributeError(f"module 'datasync' has no attribute {name!r}")
