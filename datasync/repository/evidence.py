"""What this machine has seen of a dataset: high-water marks against rollback and forks (docs/format.md, section 13).

One small JSON file per dataset under the data directory, replaced atomically under a lock, so processes never take each
other back. Deleting it loses evidence, not data. The rules are pure: `advance_*` return the newer state or raise
`RollbackError`.
"""

import fcntl
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from datasync.errors import IntegrityError, RollbackError

Mark = tuple[int, str]  # number and hash in hex


@dataclass(frozen=True, slots=True)
class Known:
    """The newest trust root, keyset, head and snapshot accepted here, and the newest verified signed time in ms."""

    trust: Mark = (0, "")
    keyset: Mark = (0, "")
    head: int = 0
    snapshot: Mark = (0, "")
    time: int = 0
    pinned: bool = False
    name: str = ""


def advance(what: str, known: Mark, found: Mark) -> Mark:
    """Return *found* unless it is older than *known*, or another object of the same number."""
    if found[0] < known[0]:
        raise RollbackError(
            f"{what}: this machine has seen number {known[0]}, the store offers {found[0]} as the newest: "
            "it was rolled back"
        )
    if found[0] == known[0] and known[1] and found[1] != known[1]:
        raise RollbackError(
            f"{what} {found[0]}: this machine has seen {known[1][:16]}…, the store offers {found[1][:16]}…: "
            "history was forked"
        )
    return found


def merge(mine: Known, other: Known) -> Known:
    """Return the later of two states of the same dataset, part by part; refuse two objects of one number."""
    return Known(
        _later("trust root", mine.trust, other.trust),
        _later("keyset", mine.keyset, other.keyset),
        max(mine.head, other.head),
        _later("snapshot", mine.snapshot, other.snapshot),
        max(mine.time, other.time),
        mine.pinned or other.pinned,
        mine.name or other.name,
    )


def _later(what: str, mine: Mark, other: Mark) -> Mark:
    return advance(what, min(mine, other), max(mine, other))


class Evidence:
    """The state of one dataset on this machine; `known` is changed by `note` and kept by `save`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known = self._load()

    def _load(self) -> Known:
        try:
            fields = json.loads(self._path.read_text())
            marks = {key: (int(fields[key][0]), str(fields[key][1])) for key in ("trust", "keyset", "snapshot")}
            return Known(
                **marks,
                head=int(fields["head"]),
                time=int(fields["time"]),
                pinned=bool(fields["pinned"]),
                name=str(fields["name"]),
            )
        except FileNotFoundError:
            return Known()
        except (ValueError, KeyError, TypeError, IndexError):
            raise IntegrityError(
                f"{self._path}: what this machine knows of a dataset does not parse: "
                "restore the file, or delete it to trust the store's newest state"
            ) from None

    def note_trust(self, number: int, digest: bytes) -> None:
        """Accept this trust root as the newest, or raise `RollbackError`."""
        self.known = replace(self.known, trust=advance("trust root", self.known.trust, (number, digest.hex())))

    def note_keyset(self, number: int, digest: bytes) -> None:
        """Accept this keyset as the newest, or raise `RollbackError`."""
        self.known = replace(self.known, keyset=advance("keyset", self.known.keyset, (number, digest.hex())))

    def note_snapshot(self, seq: int, digest: bytes) -> None:
        """Accept this snapshot as the newest, or raise `RollbackError`."""
        self.known = replace(self.known, snapshot=advance("snapshot", self.known.snapshot, (seq, digest.hex())))

    def note_head(self, number: int) -> None:
        """Accept this head as the newest, or raise `RollbackError`."""
        self.known = replace(self.known, head=advance("head", (self.known.head, ""), (number, ""))[0])

    def note_time(self, time: int) -> None:
        """Remember a verified signed time in ms."""
        self.known = replace(self.known, time=max(self.known.time, time))

    def pin(self, name: str) -> None:
        """Remember that the dataset is trusted on this machine, and its name."""
        self.known = replace(self.known, pinned=True, name=name)

    def save(self) -> None:
        """Keep the state, merged with what other processes have kept meanwhile."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self._path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            merged = merge(self.known, self._load())
            temporary = self._path.with_suffix(".new")
            temporary.write_text(json.dumps(asdict(merged)))
            os.replace(temporary, self._path)
            self.known = merged
