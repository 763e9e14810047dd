"""Many requests in one: bodies of type multipart/mixed whose parts are HTTP messages, as GCS and Azure take them.

Framing: RFC 2046, section 5.1; each part is `application/http` (RFC 9112, section 10.2) and tells by its Content-ID
which request it answers. Raises `StorageUnavailable` for an answer that does not parse: who can not tell what was done
asks again.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesHeaderParser

from datasync.errors import StorageUnavailable
from datasync.storage.http import Answer

BOUNDARY = "datasync-batch"  # names are percent-encoded in requests, so none holds such a line
CONTENT_TYPE = f"multipart/mixed; boundary={BOUNDARY}"

_STATUS = re.compile(rb"HTTP/1\.\d (\d{3})\b[^\r\n]*\r?\n")
_NUMBER = re.compile(r"<?(?:response-)?(\d{1,9})>?")


@dataclass(frozen=True, slots=True)
class Part:
    """One request without a body."""

    method: str
    target: str
    headers: Mapping[str, str]


def write_batch(parts: Sequence[Part]) -> bytes:
    """Return the body that holds *parts*, numbered from 0."""
    return b"".join(_framed(number, part) for number, part in enumerate(parts)) + f"--{BOUNDARY}--\r\n".encode()


def read_batch(answer: Answer, count: int, what: str) -> list[Answer]:
    """Return the answers to *count* parts in order; one answer without a number stands for all of them."""
    parts = [BytesHeaderParser().parsebytes(part) for part in _split(answer)]
    found: dict[int, Answer] = {}
    for part in parts:
        number = _NUMBER.fullmatch(str(part.get("Content-ID", "")).strip())
        if (read := _answer(_body(part))) is not None:
            if number is None and len(parts) == 1:
                return [read] * count
            found[int(number[1]) if number else -1] = read
    if set(found) != set(range(count)):
        raise StorageUnavailable(f"{what}: asked {count} things at once, the answer tells of {len(found)}; try again")
    return [found[number] for number in range(count)]


def _framed(number: int, part: Part) -> bytes:
    lines = [
        f"--{BOUNDARY}",
        "Content-Type: application/http",
        "Content-Transfer-Encoding: binary",
        f"Content-ID: {number}",
        "",
        f"{part.method} {part.target} HTTP/1.1",
        *(f"{name}: {value}" for name, value in part.headers.items()),
        "",
        "",  # the message's own end; the line break before the next boundary belongs to that (RFC 2046)
        "",
    ]
    return "\r\n".join(lines).encode()


def _split(answer: Answer) -> list[bytes]:
    """Return the parts of the body; none when it has no end, or no boundary is told."""
    told = Message()
    told["Content-Type"] = answer.headers.get("content-type", "")
    boundary = told.get_boundary()
    if not boundary:
        return []
    _, *parts = (b"\r\n" + answer.body).split(b"\r\n--" + boundary.encode())
    if not parts or not parts[-1].startswith(b"--"):
        return []
    return [part.partition(b"\n")[2] for part in parts[:-1]]


def _answer(message: bytes) -> Answer | None:
    start = _STATUS.match(message)
    if start is None:
        return None
    rest = BytesHeaderParser().parsebytes(message[start.end() :])
    return Answer(int(start[1]), {name.lower(): str(value) for name, value in rest.items()}, _body(rest))


def _body(message: Message) -> bytes:
    found = message.get_payload(decode=True)
    return found if isinstance(found, bytes) else b""
