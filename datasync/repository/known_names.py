"""Which dataset a name means on this machine: a cache beside the other local state; a damaged one is made anew."""

import json
from pathlib import Path

from datasync.model.ids import ID_BYTES
from datasync.repository.local import replace_file


class KnownNames:
    """Names of datasets that were opened here, each with its id."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> dict[str, bytes]:
        """Return every known name."""
        try:
            found = {str(name): bytes.fromhex(dataset) for name, dataset in json.loads(self.path.read_text()).items()}
        except (FileNotFoundError, ValueError, AttributeError, TypeError):
            return {}
        return {name: dataset for name, dataset in found.items() if len(dataset) == ID_BYTES}

    def keep(self, name: str, dataset: bytes) -> None:
        """Remember that *name* means *dataset*."""
        self._write(self.all() | {name: dataset})

    def forget(self, name: str) -> None:
        """Forget what *name* means."""
        self._write({key: value for key, value in self.all().items() if key != name})

    def _write(self, found: dict[str, bytes]) -> None:
        replace_file(self.path, json.dumps({name: dataset.hex() for name, dataset in found.items()}).encode())
