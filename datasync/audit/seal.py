"""Persons in the log: sealed inside the leaf under a key per person and month, found by a tag, erased by deleting it.

The leaf holds a random tag and a box. The key, the tag and the person's name lie in one small file per person and month
in `people/<month>/`, its name a keyed hash of the person. Deleting the files of a person leaves every leaf, so every
proof, as it was, and neither the name nor the link to the tag. Raises `IntegrityError` for a box that was changed.
"""

import base64
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from datasync.audit.event import Sealed
from datasync.audit.primitives import Primitives
from datasync.errors import IntegrityError

LABEL = "audit-person"
TAG_BYTES = 16
KEY_BYTES = 32
FILE_BYTES = 4096  # a person's file is smaller
_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}")


class Person(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who acted, or whom it concerns; `subject` names the person."""

    subject: str
    issuer: str = ""
    method: str = ""
    behalf: str = ""
    address: str = ""
    host: str = ""
    key: str = ""


class MonthKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one person's fields of one month are sealed under."""

    subject: str
    month: str
    tag: str
    key: str

    def __repr__(self) -> str:
        return f"MonthKey({self.month}, {self.tag})"


class People:
    """The keys of persons in one directory; *index_key* hides names in file names."""

    def __init__(self, directory: Path, p: Primitives, index_key: bytes) -> None:
        self._directory = directory
        self._p = p
        self._index_key = index_key
        self._keys: dict[tuple[str, str], MonthKey] = {}
        self._by_tag: dict[str, dict[str, MonthKey]] = {}
        self._adopted: dict[str, dict[str, MonthKey]] = {}
        self._as_of: dict[str, int] = {}
        self._sealed: dict[tuple[Person, str], Sealed] = {}

    def seal(self, person: Person, month: str) -> Sealed:
        """Return *person* sealed for an event of *month*; the month's key is made, and durable, at first use."""
        self._refresh(month)
        known = self._sealed.get((person, month))
        if known is None:
            key = self._key(person.subject, month)
            plain = msgspec.json.encode(person)
            box = self._p.seal(bytes.fromhex(key.key), LABEL, key.tag.encode(), plain)
            known = Sealed(key.tag, base64.b64encode(box).decode())
            if len(self._sealed) > 10_000:  # a daemon meets many addresses
                self._sealed.clear()
            self._sealed[person, month] = known
        return known

    def open(self, sealed: Sealed, month: str) -> Person | None:
        """Return the person, None when the key was erased or is not here."""
        key = self._month(month).get(sealed.tag) or self._adopted.get(month, {}).get(sealed.tag)
        if key is None:
            return None
        try:
            box = base64.b64decode(sealed.box, validate=True)
            plain = self._p.open(bytes.fromhex(key.key), LABEL, sealed.tag.encode(), box)
            return msgspec.json.decode(plain, type=Person)
        except (ValueError, msgspec.DecodeError):
            raise IntegrityError(f"person {sealed.tag}: the sealed fields do not parse") from None

    def tags(self, subject: str) -> dict[str, str]:
        """Return month -> tag for a person."""
        found = {month: self._read(self._path(subject, month)) for month in self.months()}
        return {month: key.tag for month, key in found.items() if key is not None}

    def months(self) -> list[str]:
        """Return the months that have keys."""
        if not self._directory.is_dir():
            return []
        return sorted(name for name in os.listdir(self._directory) if _MONTH.fullmatch(name))

    def all_keys(self) -> Iterator[MonthKey]:
        """Yield every key."""
        for month in sorted({*self.months(), *self._adopted}):
            yield from (self._adopted.get(month, {}) | self._month(month)).values()

    def copy(self) -> "People":
        """Return the same keys, to which others can be added without changing these."""
        return People(self._directory, self._p, self._index_key)

    def adopt(self, key: MonthKey) -> None:
        """Take in a key from elsewhere (an auditor's copy)."""
        if not _MONTH.fullmatch(key.month):
            raise IntegrityError(f"person {key.tag}: expected a month, found {key.month!r}")
        self._adopted.setdefault(key.month, {})[key.tag] = key

    def forget_before(self, month: str) -> int:
        """Delete every key of the months before *month*, of which no event is left; return how many."""
        count = 0
        for old in self.months():
            if old < month:
                for name in os.listdir(self._directory / old):
                    count += name[0] != "."
                    _shred(self._directory / old / name)
                (self._directory / old).rmdir()
        return count

    def erase(self, subject: str) -> dict[str, str]:
        """Delete every key of a person; return month -> tag of what can not be opened any more."""
        found = self.tags(subject)
        for month in found:
            path = self._path(subject, month)
            for copy in [
                *path.parent.glob(f".{path.name}.*"),
                path,
            ]:  # a kill while it was made may have left the first
                _shred(copy)
            _fsync_directory(path.parent)
        self._keys.clear()
        self._by_tag.clear()
        self._sealed.clear()
        return found

    def _path(self, subject: str, month: str) -> Path:
        name = self._p.keyed_hash(self._index_key, f"{month}\0{subject}".encode()).hex()[:32]
        return self._directory / month / f"{name}.json"

    def _key(self, subject: str, month: str) -> MonthKey:
        known = self._keys.get((subject, month))
        if known is None:
            path = self._path(subject, month)
            known = self._read(path) or self._make(path, subject, month)
            self._keys[subject, month] = known
        return known

    def _make(self, path: Path, subject: str, month: str) -> MonthKey:
        made = MonthKey(subject, month, self._p.random(TAG_BYTES).hex(), self._p.random(KEY_BYTES).hex())
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        aside = path.with_name(f".{path.name}.{os.getpid()}.{self._p.random(4).hex()}")
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(msgspec.json.encode(made))
                file.flush()
                os.fsync(fd)
            try:
                os.link(aside, path)  # the first of several processes wins, all use its key
            except FileExistsError:
                known = self._read(path)
                if known is not None:
                    return known
                os.replace(aside, path)  # a kill while it was erased left it empty
            _fsync_directory(path.parent)
        finally:
            aside.unlink(missing_ok=True)
        return made

    def _read(self, path: Path) -> MonthKey | None:
        try:
            with open(path, "rb") as file:
                data = file.read(FILE_BYTES)
            return msgspec.json.decode(data, type=MonthKey) if data.strip(b"\0") else None  # half erased is erased
        except FileNotFoundError:
            return None
        except msgspec.DecodeError:
            raise IntegrityError(f"{path}: expected the key of a person's month, found something else") from None

    def _refresh(self, month: str) -> None:
        """Forget a month whose files changed: another process made a key, or erased a person."""
        try:
            as_of = os.stat(f"{self._directory}/{month}").st_mtime_ns
        except FileNotFoundError:
            as_of = -1
        if self._as_of.get(month) != as_of:
            self._as_of[month] = as_of
            self._by_tag.pop(month, None)
            self._keys = {at: key for at, key in self._keys.items() if at[1] != month}
            self._sealed = {at: sealed for at, sealed in self._sealed.items() if at[1] != month}

    def _month(self, month: str) -> dict[str, MonthKey]:
        self._refresh(month)
        known = self._by_tag.get(month)
        if known is None:
            folder = self._directory / month
            names = sorted(os.listdir(folder)) if folder.is_dir() else []
            read = [self._read(folder / name) for name in names if name.endswith(".json") and name[0] != "."]
            known = {key.tag: key for key in read if key is not None}
            self._by_tag[month] = known
        return known


def _shred(path: Path) -> None:
    """Overwrite and remove a file: the blocks too, where the file system writes in place."""
    with open(path, "r+b") as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        os.fsync(file.fileno())
    path.unlink()


def _fsync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def month_of(time: str) -> str:
    """Return the month of an event's time."""
    return time[:7]


def shown(person: Person | None, sealed: Sealed | None) -> dict[str, str]:
    """Return a person's fields for people to read; a sealed one that does not open is named by its tag."""
    if person is not None:
        return json.loads(msgspec.json.encode(person))  # type: ignore[no-any-return]
    return {"sealed": sealed.tag} if sealed is not None else {}
