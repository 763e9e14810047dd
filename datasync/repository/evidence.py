"""What this machine has seen of a dataset: high-water marks against rollback and forks (docs/format.md, section 13).

One small JSON file per dataset under the data directory, replaced atomically under a lock, so processes never take each
other back. Deleting it loses evidence, not data. The rules are pure: `advance_*` return the newer state or raise
`RollbackError`.
"""

import base64
import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from datasync.crypto.hashing import hash_bytes
from datasync.errors import IntegrityError, RollbackError
from datasync.repository.local import replace_file

Mark = tuple[int, str]  # number and hash in hex
MARKS = ("trust", "keyset", "snapshot", "policy", "forgotten")


@dataclass(frozen=True, slots=True)
class Known:
    """The newest trust root, keyset, head, snapshot, policy and forgotten object accepted here, and the newest signed
    time in ms.
    """

    trust: Mark = (0, "")
    keyset: Mark = (0, "")
    head: int = 0
    snapshot: Mark = (0, "")
    policy: Mark = (0, "")
    forgotten: Mark = (0, "")
    time: int = 0
    pinned: bool = False
    name: str = ""
    proof: str = ""
    """The newest accepted snapshot's signed body, in base64: what its writer can not deny."""


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
        _later("policy", mine.policy, other.policy),
        _later("forgotten object", mine.forgotten, other.forgotten),
        max(mine.time, other.time),
        mine.pinned or other.pinned,
        mine.name or other.name,
        (mine if mine.snapshot >= other.snapshot and mine.proof else other).proof,
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
            kept = [key for key in MARKS if key in fields or key in MARKS[:3]]  # an older file has fewer
            marks = {key: (int(fields[key][0]), str(fields[key][1])) for key in kept}
            return Known(
                **marks,
                head=int(fields["head"]),
                time=int(fields["time"]),
                pinned=bool(fields["pinned"]),
                name=str(fields["name"]),
                proof=str(fields.get("proof", "")),
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
        self.known = replace(self.known, trust=self._advance("trust root", self.known.trust, (number, digest.hex())))

    def note_keyset(self, number: int, digest: bytes) -> None:
        """Accept this keyset as the newest, or raise `RollbackError`."""
        self.known = replace(self.known, keyset=self._advance("keyset", self.known.keyset, (number, digest.hex())))

    def note_snapshot(self, seq: int, digest: bytes, signed: bytes) -> None:
        """Accept this snapshot as the newest, or raise `RollbackError`; *signed* is its signed body."""
        mark = self._advance("snapshot", self.known.snapshot, (seq, digest.hex()), signed)
        self.known = replace(self.known, snapshot=mark, proof=base64.b64encode(signed).decode())

    def note_policy(self, number: int, digest: bytes) -> None:
        """Accept this policy as the newest, or raise `RollbackError`."""
        self.known = replace(self.known, policy=self._advance("policy", self.known.policy, (number, digest.hex())))

    def note_forgotten(self, number: int, digest: bytes) -> None:
        """Accept this forgotten object as the newest, or raise `RollbackError`."""
        mark = self._advance("forgotten object", self.known.forgotten, (number, digest.hex()))
        self.known = replace(self.known, forgotten=mark)

    def note_head(self, number: int, signed: bytes) -> None:
        """Accept this head as the newest, or raise `RollbackError`; *signed* is its signed body."""
        mark = self._advance("head", (self.known.head, ""), (number, ""), signed)
        self.known = replace(self.known, head=mark[0])

    def _advance(self, what: str, known: Mark, found: Mark, signed: bytes = b"") -> Mark:
        try:
            return advance(what, known, found)
        except RollbackError as error:
            raise self.refusal(str(error), {f"{what} {found[0]}": signed} if signed else {}) from None

    def refusal(self, why: str, offered: dict[str, bytes]) -> RollbackError:
        """Return the refusal *why*, once what this machine knows and what the store *offered* are kept side by side."""
        kept = {"refused": why, "time": int(time.time() * 1000), "known": asdict(self.known)}
        kept["offered"] = {name: base64.b64encode(data).decode() for name, data in offered.items()}
        text = json.dumps(kept, indent=1)
        folder = self._path.parent.parent / "refused"
        path = folder / f"{self._path.stem[:16]}-{hash_bytes(why.encode()).hex()[:16]}.json"
        try:
            if not path.exists():  # the first time is what counts
                replace_file(path, text.encode())
        except OSError as error:  # the refusal stands all the same
            return RollbackError(f"{why} (the evidence could not be kept: {error.strerror})")
        return RollbackError(f"{why}; evidence: {path}")

    def keep(self, name: str, data: bytes) -> Path:
        """Keep the *data* of an object that is about to be deleted beside the refusals; return its file."""
        digest = hash_bytes(data).hex()
        path = self._path.parent.parent / "refused" / f"{name.replace('/', '_')}-{digest[:16]}"
        replace_file(path, data)
        return path

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


class Glance(Evidence):
    """The same state for who looks at what is not accepted yet: nothing of that is kept."""

    def __init__(self, evidence: Evidence) -> None:
        self._path = evidence._path
        self.known = evidence.known

    def save(self) -> None:
        """Keep nothing."""
