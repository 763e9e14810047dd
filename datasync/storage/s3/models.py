"""The SDK's descriptions of services, loaded faster: megabytes of JSON by msgspec, and no search for other services.

Half of what a client costs to make otherwise goes into reading these files and into listing some 400 services to learn
that the wanted one exists. Where files are looked for stays the SDK's own rule (`AWS_DATA_PATH`, `~/.aws/models`).
"""

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from botocore.loaders import JSONFileLoader, Loader

SERVICES = ("s3", "sts", "sso", "sso-oidc", "signin")  # what stores and chains of credentials ask for
_FORMS: dict[str, Callable[[bytes], bytes]] = {".json": bytes, ".json.gz": gzip.decompress}


class _Files(JSONFileLoader):
    """A file loader as `botocore.loaders.Loader` takes it; paths come without their ending."""

    def exists(self, file_path: str) -> bool:
        return any(os.path.isfile(file_path + ending) for ending in _FORMS)

    def load_file(self, file_path: str) -> Any:
        for ending, unpack in _FORMS.items():
            path = Path(file_path + ending)
            if path.is_file():
                return msgspec.json.decode(unpack(path.read_bytes()))
        return None


class Models(Loader):
    """Finds the services that are used here, and believes that they exist."""

    def __init__(self, data_path: str | None) -> None:
        more = [os.path.expanduser(os.path.expandvars(path)) for path in (data_path or "").split(os.pathsep) if path]
        super().__init__(extra_search_paths=more, file_loader=_Files())

    def list_available_services(self, type_name: str) -> list[str]:
        """Return the names in `SERVICES`; one without files fails when it is loaded."""
        return list(SERVICES)
