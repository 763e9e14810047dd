"""How vectors write bytes, values and refusals as JSON; the generator writes with this, the tests read with it.

Bytes are hex in groups separated by spaces; `xx*n` is the byte xx n times. What starts with `base64:` is base64.
A refusal says which valid case it starts from (`base`) and what changes: `edits` are [start, end, bytes put there], in
order, by offsets in the base.
"""

import base64
import dataclasses
import difflib
import itertools
import re
from typing import Any

import msgspec

_RUN_BYTES = 16  # shorter runs are written out
_DENSE_BYTES = 256  # longer bytes without runs are base64
_FEW_BYTES, _MANY_BYTES = 64, 16_384  # between these an edit is looked at closely
_RUN = re.compile(rb"(.)\1{%d,}" % (_RUN_BYTES - 1), re.DOTALL)


def to_text(data: bytes) -> str:
    """Return *data* in the notation of the module's docstring."""
    parts, at = [], 0
    for run in _RUN.finditer(data):
        parts += [data[at : run.start()].hex(), f"{run[1].hex()}*{len(run[0])}"]
        at = run.end()
    text = " ".join(part for part in (*parts, data[at:].hex()) if part)
    dense = "base64:" + base64.b64encode(data).decode()
    return text if len(text) <= max(2 * _DENSE_BYTES, len(dense)) else dense


def to_bytes(text: str) -> bytes:
    """Return the bytes that *text* stands for."""
    if text.startswith("base64:"):
        return base64.b64decode(text.removeprefix("base64:"), validate=True)
    return b"".join(_part(part) for part in text.split())


def _part(part: str) -> bytes:
    digits, _, count = part.partition("*")
    return bytes.fromhex(digits) * int(count or 1)


def to_json(value: Any) -> Any:
    """Return *value* (structures, tuples, bytes, numbers) as what JSON can hold; structures by field name."""
    if isinstance(value, msgspec.Struct):
        return {name: to_json(getattr(value, name)) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value):
        return {item.name: to_json(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, bytes | bytearray):
        return to_text(bytes(value))
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return value


def difference(base: bytes, bad: bytes) -> list[list[Any]]:
    """Return the edits that make *bad* of *base*: [start, end, bytes put there], by offsets in *base*."""
    start = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(base, bad, strict=False)))
    pairs = zip(reversed(base[start:]), reversed(bad[start:]), strict=False)
    tail = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    old, new = base[start : len(base) - tail], bad[start : len(bad) - tail]
    if not _FEW_BYTES < min(len(old), len(new)) < _MANY_BYTES:
        return [[start, len(base) - tail, to_text(new)]]
    codes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [[start + a, start + b, to_text(new[c:d])] for code, a, b, c, d in codes if code != "equal"]


def rebuild(base: bytes, edits: list[list[Any]]) -> bytes:
    """Return the bytes that *edits* make of *base*."""
    parts, at = [], 0
    for start, end, put in edits:
        parts += [base[at:start], to_bytes(put)]
        at = end
    return b"".join([*parts, base[at:]])
