"""datasync: secure dataset staging for rented GPU nodes.

The typed API is lazy, so importing the package costs nothing (docs/architecture.md):

    import datasync
    repository = datasync.open("s3://bucket/prefix")
    repository.push("./data", dataset="data")
    path = repository.warm("data")
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from datasync.service.api import Dataset, open

__all__ = ["Dataset", "__version__", "open"]


def __getattr__(name: str) -> Any:
    if name in ("open", "Dataset"):
        from datasync.service import api

        return getattr(api, name)
    raise AttributeError(f"module 'datasync' has no attribute {name!r}")
