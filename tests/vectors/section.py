"""One file of vectors while it is made: valid cases, refusals made of them, and edits of encoded structures.

`cases` are in the order made; a refusal is a valid case with an edit, the error class and a part of its message.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from tests.vectors.codecs import CODECS, Args
from tests.vectors.notation import difference, to_json, to_text

pack_list = msgspec.msgpack.encode


class Section:
    """Collects the cases of one file."""

    def __init__(self, section: str, **shared: Any) -> None:
        self.head = {"about": f"docs/format.md, section {section}", "version": 1, **shared}
        self.cases: list[dict[str, Any]] = []
        self.refusals: list[dict[str, Any]] = []
        self._bases: dict[str, bytes] = {}

    def structure(self, name: str, read: str, data: bytes, args: Args | None = None) -> bytes:
        """Add the encoding *data* with the value that it stands for."""
        value = CODECS[read].read(data, args or {})
        case = {"name": name, "read": read, "args": args or {}, "bytes": to_text(data), "value": to_json(value)}
        self.cases.append(case)
        self._bases[name] = data
        return data

    def add(self, name: str, **fields: Any) -> None:
        """Add a case of its own kind."""
        self.cases.append({"name": name, **{key: to_json(value) for key, value in fields.items()}})

    def base(self, name: str, data: bytes) -> None:
        """Let refusals start from *data*, which the case *name* holds."""
        self._bases[name] = data

    def name_of(self, data: bytes) -> str:
        """Return the name of the case that holds *data*."""
        return next(name for name, held in self._bases.items() if held == data)

    def held(self, name: str) -> bytes:
        """Return the bytes of the case *name*."""
        return self._bases[name]

    def refuse(self, base: str, why: str, bad: bytes, message: str, error: str = "FormatError") -> None:
        """Add that *bad*, an edit of the case *base*, raises *error* with *message* in its text."""
        if bad == self._bases[base]:
            raise AssertionError(f"{base}, {why}: nothing was changed")
        edits = difference(self._bases[base], bad)
        self.refusals.append({"name": why, "base": base, "edits": edits, "error": error, "message": message})

    def refuse_field(self, base: str, why: str, path: list[int], new: Any, message: str) -> None:
        """Add a refusal of the structure *base* with *new* (or its result on the old) at *path*."""
        self.refuse(base, why, replaced(self._bases[base], path, new), message)

    def refuse_encodings(self, base: str) -> None:
        """Add the refusals that every structure shares: each other encoding, each other number of fields."""
        data = self._bases[base]
        fields: list[Any] = msgspec.msgpack.decode(data)
        head = 1 if data[0] >> 4 == 9 else 3
        parts = [pack_list(field) for field in fields]
        canonical = "expected the one encoding"
        self.refuse(base, "trailing byte", data + b"\0", "does not parse")
        self.refuse(base, "last byte missing", data[:-1], "does not parse")
        self.refuse(base, "one field more", pack_list([*fields, None]), "does not parse")
        self.refuse(base, "one field less", pack_list(fields[:-1]), "does not parse")
        self.refuse(base, "array length in 32 bits", _wide_array(len(fields)) + data[head:], canonical)
        for index, field in enumerate(fields):
            wide = _wide(field)
            if wide:
                bad = data[:head] + b"".join(parts[:index]) + wide + b"".join(parts[index + 1 :])
                self.refuse(base, f"field {index} not in its shortest form", bad, canonical)

    def document(self) -> str:
        """Return the whole file."""
        lines = [f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in self.head.items()]
        for name, items in (("cases", self.cases), ("refusals", self.refusals)):
            rows = ",\n".join(json.dumps(item, sort_keys=True) for item in items)
            lines.append(f'"{name}": [\n{rows}\n]' if items else f'"{name}": []')
        return "{" + ",\n".join(lines) + "}\n"


def _wide_array(count: int) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big")


def _wide(field: Any) -> bytes:
    """Return a longer encoding of a number, bytes or text; nothing for other values."""
    if isinstance(field, int) and 0 <= field < 2**32:
        return b"\xcf" + field.to_bytes(8, "big")
    if isinstance(field, bytes):
        return b"\xc6" + len(field).to_bytes(4, "big") + field
    if isinstance(field, str):
        return b"\xdb" + len(field.encode()).to_bytes(4, "big") + field.encode()
    return b""


def replaced(data: bytes, path: list[int], new: Any) -> bytes:
    """Return the encoded structure *data* with *new*, or what *new* makes of the old value, at *path*."""
    fields = msgspec.msgpack.decode(data)
    *above, last = path
    place = fields
    for index in above:
        place = place[index]
    change: Callable[[Any], Any] = new if callable(new) else lambda old: new
    place[last] = change(place[last])
    return pack_list(fields)
