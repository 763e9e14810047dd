"""Have others vouch for a checkpoint: witnesses that the log only grew, a time stamping authority when it was there.

Both see the log's id, its size and a hash, and no event. A cosignature is checked before it is handed out, a stamp's
nonce is; `check` checks both offline. Raises `StorageUnavailable` when somebody does not answer, `IntegrityError` for
an answer that does not hold, `UsageError`.
"""

import base64
import http.client
import json
import ssl
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from datasync.audit.checkpoint import parse_note
from datasync.audit.merkle import Leaves, consistency_proof
from datasync.audit.segments import LogFiles
from datasync.audit.verify import verify_log
from datasync.audit.witness import Witness, check_cosignature, cosigned, parse_witness, request_body
from datasync.config import Config
from datasync.errors import IntegrityError, NotAuthorized, RollbackError, StorageUnavailable, UsageError
from datasync.service.audit import anchor as own_checkpoint
from datasync.service.audit_log import PRIMITIVES, live_log
from datasync.service.authorize import authorize
from datasync.service.record import recorded

ANSWER_SECONDS = 30.0
ANSWER_BYTES = 256 * 1024  # a stamp carries its authority's certificates
TRIES = 3  # a witness that others feed, too, may move on between its answer and ours
SIZE_TYPE = "text/x.tlog.size"


@dataclass(frozen=True, slots=True)
class Answer:
    """What somebody answered."""

    status: int
    kind: str
    body: bytes


def anchor(config: Config, witnesses: tuple[str, ...], authority: str | None) -> dict[str, Any]:
    """Return this log's newest checkpoint, cosigned by *witnesses* (`URL#KEY`) and stamped by *authority*."""
    known = [_witness(text) for text in witnesses]
    made = own_checkpoint(config)
    if not known and authority is None:
        return made
    fields: dict[str, Any] = {"witnesses": " ".join(witness.name for _, witness in known)}
    fields |= {"authority": urlsplit(authority).hostname} if authority else {}
    with recorded(config, "audit.vouch", size=made["size"], **fields) as event:
        authorize(config, "ReadAudit", event=event)
        for url, witness in known:
            made["checkpoint"] = _cosign(live_log(config), made["checkpoint"], url, witness)
        if authority is not None:
            made["timestamp"] = {"authority": authority, "stamp": _stamp(made["checkpoint"], authority)}
    return made


def _witness(text: str) -> tuple[str, Witness]:
    url, mark, key = text.partition("#")
    if not mark:
        raise UsageError(f"witness {text!r}: expected URL#KEY, the key as the witness publishes it")
    return url.rstrip("/"), parse_witness(PRIMITIVES, key)


def _cosign(files: LogFiles, note: str, url: str, witness: Witness) -> str:
    size, old = parse_note(note)[0].size, 0
    leaves = Leaves(PRIMITIVES.sha256, files.frontier(PRIMITIVES))

    def each(seq: int, _: object, leaf: bytes) -> None:
        if seq < size:
            leaves.append(leaf)

    verify_log(PRIMITIVES, files, each=each)
    for _ in range(TRIES):
        proof = consistency_proof(leaves, old) if 0 < old < size else []
        answer = post(f"{url}/add-checkpoint", request_body(old, proof, note), "text/plain; charset=utf-8")
        if answer.status == 200:
            return cosigned(PRIMITIVES, note, answer.body.decode("utf-8", "replace"), witness)
        if answer.status != 409:
            raise _refusal(answer, url)
        old = _known_size(answer, url, size)
    raise StorageUnavailable(f"{url}: the witness moved on {TRIES} times: try again")


def _known_size(answer: Answer, url: str, size: int) -> int:
    text = answer.body.decode("ascii", "replace").strip()
    if answer.kind != SIZE_TYPE or not text.isdecimal() or len(text) > 19:
        raise IntegrityError(f"{url}: expected the size that the witness knows, found {answer.kind!r}")
    if int(text) > size:
        raise RollbackError(
            f"{url}: the witness has signed this log at {text} events, it has {size} here: its tail was cut, or "
            "another machine has its key"
        )
    return int(text)


def _refusal(answer: Answer, url: str) -> Exception:
    if answer.status == 404:
        return UsageError(f"{url}: the witness does not know this log: give its operator the verifier key")
    if answer.status == 403:
        return NotAuthorized(f"{url}: the witness does not take this log's key")
    if answer.status == 422:
        return IntegrityError(f"{url}: the witness signed another history of this log")
    return StorageUnavailable(f"{url}: the witness answered {answer.status}")


def _stamp(note: str, authority: str) -> str:
    from datasync.crypto.timestamps import check_answer, make_request  # an extra, needed here alone

    request = make_request(note.encode())
    answer = post(authority, request.body, "application/timestamp-query")
    if answer.status != 200:
        raise StorageUnavailable(f"{authority}: the time stamping authority answered {answer.status}")
    check_answer(answer.body, request, authority)
    return base64.b64encode(answer.body).decode()


def post(url: str, body: bytes, kind: str) -> Answer:
    """Return the answer to a POST; redirects are not followed."""
    try:
        parts = urlsplit(url)
        place = (parts.hostname or "", parts.port)
    except ValueError:
        parts, place = urlsplit(""), ("", None)
    if parts.scheme not in ("http", "https") or not place[0]:
        raise UsageError(f"{url}: expected a URL that begins with https:// or http://")
    connection: http.client.HTTPConnection = (
        http.client.HTTPSConnection(*place, timeout=ANSWER_SECONDS, context=ssl.create_default_context())
        if parts.scheme == "https"
        else http.client.HTTPConnection(*place, timeout=ANSWER_SECONDS)
    )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    with closing(connection):
        try:
            connection.request("POST", path, body, {"Content-Type": kind})
            response = connection.getresponse()
            data = response.read(ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise StorageUnavailable(f"{place[0]}: it did not answer ({type(error).__name__})") from None
    if len(data) > ANSWER_BYTES:
        raise IntegrityError(f"{place[0]}: it answered with more than {ANSWER_BYTES} bytes")
    return Answer(response.status, (response.getheader("Content-Type") or "").partition(";")[0].strip(), data)


def check(path: Path, roots: Path | None, witnesses: tuple[str, ...]) -> list[str]:
    """Return in sentences what others vouch for in the checkpoint at *path*; raise for what does not hold."""
    try:
        text = path.read_text()
        value: dict[str, Any] = json.loads(text) if text.lstrip().startswith("{") else {"checkpoint": text}
        note, stamp = str(value["checkpoint"]), value.get("timestamp")
        data = base64.b64decode(stamp["stamp"], validate=True) if stamp else b""
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: expected a checkpoint, as datasync audit anchor writes it: {error}") from None
    found = []
    for key in witnesses:
        witness = parse_witness(PRIMITIVES, key)
        when = datetime.fromtimestamp(check_cosignature(PRIMITIVES, note, witness), UTC)
        found.append(f"{path}: witness {witness.name} signed it at {when:%Y-%m-%dT%H:%M:%SZ}")
    if roots is not None:
        if not data:
            raise IntegrityError(f"{path}: expected a time stamp, found none")
        found.append(f"{path}: it was there at {_checked_time(path, data, note, roots):%Y-%m-%dT%H:%M:%SZ}")
    elif data:
        found.append(f"{path}: its time stamp was not checked: give --tsa-roots")
    return found


def _checked_time(path: Path, stamp: bytes, note: str, roots: Path) -> datetime:
    from datasync.crypto.timestamps import check_stamp  # an extra, needed here alone

    try:
        pem = roots.read_bytes()
    except OSError as error:
        raise UsageError(f"{roots}: can not be read: {error.strerror}") from None
    return check_stamp(stamp, note.encode(), pem, str(path))
