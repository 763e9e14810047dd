"""Write an export and its manifest: every log is verified first, the manifest says what of which log is in the file.

The manifest is signed by this machine's log key and carries, for each log, the checkpoint and the subtrees left and
right of the exported events: with the leaf hashes of a JSON-lines export they give the signed root again. Memory stays
bounded: logs are read twice, three times when `since` or `until` leaves a part out. Raises `IntegrityError`.
"""

import base64
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from datasync.audit.checkpoint import verifier_key
from datasync.audit.event import Event
from datasync.audit.export import Out, writer
from datasync.audit.merkle import Frontier, subtrees
from datasync.audit.primitives import Primitives, Signer
from datasync.audit.query import Wanted, select
from datasync.audit.rows import Row, row_of
from datasync.audit.seal import People
from datasync.audit.segments import LogFiles
from datasync.audit.verify import Verified, check_beginnings, verify_log

KIND = "datasync audit export"
DOMAIN = b"datasync/v1/audit-export\0"


@dataclass(slots=True)
class Part:
    """What of one log is exported: events *start* … *end* - 1, and the subtrees around them."""

    files: LogFiles
    done: Verified
    start: int
    end: int
    before: list[bytes] = field(default_factory=list)
    after: list[bytes] = field(default_factory=list)


class _Hashed:
    def __init__(self, p: Primitives, out: Out) -> None:
        self._out, self._hash, self.bytes = out, p.sha256_stream(), 0

    def write(self, data: bytes, /) -> int:
        self._hash.update(data)
        self.bytes += len(data)
        self._out.write(data)
        return len(data)

    @property
    def hex(self) -> str:
        return self._hash.digest().hex()


def export(
    p: Primitives, logs: Sequence[LogFiles], people: People, name: str, out: Out, *, since: str = "", until: str = ""
) -> dict[str, Any]:
    """Write what the logs have from *since* to *until* as format *name*; return the manifest, not yet signed."""
    write = writer(name)
    parts = [_part(p, files, since, until) for files in logs]
    check_beginnings([part.done for part in parts])
    hashed, counts = _Hashed(p, out), dict.fromkeys((part.done.log for part in parts), 0)
    write(_rows(parts, people, counts), hashed)
    return {
        "kind": KIND,
        "format": name,
        "since": since,
        "until": until,
        "events": sum(counts.values()),
        "bytes": hashed.bytes,
        "sha256": hashed.hex,
        "logs": [_told(p, part, counts[part.done.log]) for part in parts],
    }


def _rows(parts: list[Part], people: People, counts: dict[str, int]) -> Iterator[Row]:
    streams = [select(part.files, Wanted(seqs=(part.start, part.end))) for part in parts]
    for event in heapq.merge(*streams, key=lambda event: (event.time, event.log, event.seq)):
        counts[event.log] += 1
        yield row_of(event, people)


def _part(p: Primitives, files: LogFiles, since: str, until: str) -> Part:
    bounds = [-1, -1]

    def each(seq: int, event: Event, leaf: bytes) -> None:
        if bounds[0] < 0 and event.time >= since:
            bounds[0] = seq
        if bounds[1] < 0 and until and event.time >= until:
            bounds[1] = seq

    done = verify_log(p, files, each=each)
    end = done.size if bounds[1] < 0 else bounds[1]
    start = end if bounds[0] < 0 else min(bounds[0], end)
    part = Part(files, done, start, end)
    if (start, end) == (done.begins, done.size):
        part.before = [bytes.fromhex(item) for item in files.base.frontier]
    else:
        _surround(p, part)
    return part


def _surround(p: Primitives, part: Part) -> None:
    """Fill in the roots of the subtrees left and right of the part."""
    left = part.files.frontier(p)
    places = subtrees(part.end, part.done.size)
    right = [Frontier(p.sha256) for _ in places]
    ends = [start + (1 << level) for start, level in places]

    def each(seq: int, _: Event, leaf: bytes) -> None:
        if seq < part.start:
            left.append(leaf)
        elif part.end <= seq < part.done.size:
            right[next(at for at, end in enumerate(ends) if seq < end)].append(leaf)

    verify_log(p, part.files, each=each)
    part.before = left.hashes
    part.after = [item.root() for item in right]


def _told(p: Primitives, part: Part, count: int) -> dict[str, Any]:
    return {
        "log": part.done.log,
        "key": verifier_key(p, part.files.public),
        "first": part.start,
        "end": part.end,
        "events": count,
        "size": part.done.size,
        "checkpoint": part.done.note,
        "before": [base64.b64encode(item).decode() for item in part.before],
        "after": [base64.b64encode(item).decode() for item in part.after],
        "gaps": [{"seq": seq, "reason": reason} for seq, reason in part.done.gaps],
    }


def sign_manifest(p: Primitives, manifest: dict[str, Any], signer: Signer) -> bytes:
    """Return the manifest as the bytes of a JSON document with its signature."""
    body = msgspec.json.encode(manifest, order="sorted")
    signature = base64.b64encode(signer.sign(DOMAIN + body)).decode()
    signed = {"manifest": manifest, "signature": signature, "key": verifier_key(p, signer.public)}
    return msgspec.json.format(msgspec.json.encode(signed, order="sorted"), indent=1) + b"\n"
