"""Exports: valid against their formats, unharmed by hostile text, signed and proved, in any part of the log."""

import base64
import csv
import io
import json
import re
import subprocess
import sys
import unicodedata
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import jsonschema
import pyarrow.parquet as pq
import pytest
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from datasync.audit.export import FORMATS, writer
from datasync.audit.export.check import check_export
from datasync.audit.export.ocsf import _ACTIONS, VERSION
from datasync.audit.export.run import export, sign_manifest
from datasync.audit.log import draft
from datasync.audit.prove import prove_event, prove_growth
from datasync.audit.query import Wanted, select
from datasync.audit.rows import COLUMNS, rows
from datasync.audit.seal import Person
from datasync.audit.segments import Piece
from datasync.crypto.notes import NoteKey
from datasync.errors import IntegrityError, UsageError
from datasync.service.audit_log import PRIMITIVES
from tests.audit.book import DAY, Book

HOSTILE = (
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2+3",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    " =1",
    "a\nCEF:0|x|y|z|forged|forged|10|",
    "a|b\\|c=d\\=e",
    "\x1b[31mred\x1b[0m",
    '"quoted", and, more',
    "<script>alert(1)</script>",
    "名字\u202e\u2028\u0085",
    "\x00nul",
)
PROOF = Path(__file__).resolve().parents[2] / "docs" / "verify_proof.py"


@pytest.fixture
def hostile(book: Book) -> Book:
    """A log whose names and reasons are hostile."""
    for text in HOSTILE:
        who = Person(f"{text}@h", issuer=text, address="192.0.2.7", host=text)
        fields = {"dataset": text, "reason": text, "purpose": text, "request": text, "detail": {"name": text}}
        book.log.append(draft("push", "failure", who, Person(text), **fields), sync=False)
    book.log.flush()
    return book


def write(book: Book, form: str, **span: str) -> tuple[bytes, bytes]:
    """Return an export and its manifest."""
    out = io.BytesIO()
    manifest = export(PRIMITIVES, [book.files], book.people, form, out, **span)
    return out.getvalue(), sign_manifest(PRIMITIVES, manifest, book.key)


def check(data: bytes, manifest: bytes) -> int:
    return check_export(PRIMITIVES, manifest, io.BytesIO(data)).events


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_has_every_event_and_its_manifest_holds(form: str, hostile: Book) -> None:
    data, manifest = write(hostile, form)
    assert check(data, manifest) == len(HOSTILE)
    with pytest.raises(IntegrityError):
        check(data.replace(b"192.0.2.7", b"192.0.2.8", 1) if b"192.0.2.7" in data else data[:-1], manifest)
    with pytest.raises(IntegrityError):
        check(data, manifest.replace(b'"events": 14', b'"events": 13', 1))


@cache
def _schema(name: str) -> jsonschema.Draft202012Validator:
    schema = OcsfJsonSchemaEmbedded(get_ocsf_schema(version=VERSION)).get_class_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


CLASSES = {
    6006: "file_hosting",
    6003: "api_activity",
    3004: "entity_management",
    3005: "user_access",
    3002: "authentication",
    1001: "file_activity",
    2004: "detection_finding",
}


def _check_ocsf(line: bytes) -> int:
    event = json.loads(line)
    assert event["metadata"]["version"] == VERSION == "1.7.0"
    _schema(CLASSES[event["class_uid"]]).validate(event)
    assert event["type_uid"] == event["class_uid"] * 100 + event["activity_id"]
    return int(event["class_uid"])


def test_every_kind_of_event_is_valid_ocsf(book: Book) -> None:
    actions = [*_ACTIONS, "verify", "tag.set", "audit.export", "daemon.start", "something.new"]
    for action in actions:
        for outcome in ("intent", "success", "partial", "failure", "denied"):
            who = Person("alice@example.org", issuer="https://idp", behalf="bob", address="192.0.2.1", host="node")
            full = {"dataset": "d", "dataset_id": "00" * 32, "snapshot": "11" * 32, "snapshot_seq": 3, "bytes": 5}
            book.log.append(draft(action, outcome, who, Person("carol"), reason="r", error="E", **full), sync=False)
            book.log.append(draft(action, outcome), sync=False)
    book.log.flush()
    data, _ = write(book, "ocsf")
    lines = data.splitlines()
    assert len(lines) == 2 * 5 * len(actions)
    assert {_check_ocsf(line) for line in lines} == set(CLASSES)


def test_hostile_text_is_valid_ocsf(hostile: Book) -> None:
    data, _ = write(hostile, "ocsf")
    names = [json.loads(line)["file"]["name"] for line in data.splitlines()]
    assert [_check_ocsf(line) for line in data.splitlines()] == [6006] * len(HOSTILE)
    assert names == list(HOSTILE)


def test_csv_opens_as_one_line_an_event_with_no_cell_that_runs(hostile: Book) -> None:
    data, _ = write(hostile, "csv")
    table = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
    assert len(table) == len(HOSTILE)
    assert list(table[0]) == list(COLUMNS)
    for row in table:
        for cell in row.values():
            assert cell.lstrip()[:1] not in tuple("=+-@|%")
            assert not any(unicodedata.category(sign) in ("Cc", "Zl", "Zp") for sign in cell)
    assert len(data.splitlines()) == len(HOSTILE) + 1
    assert table[0]["dataset"] == "'" + HOSTILE[0]


def parse_cef(line: str) -> tuple[list[str], dict[str, str]]:
    """Parse a line as a SIEM does: the header at unescaped bars, the extension at unescaped equals signs."""
    *header, extension = re.split(r"(?<!\\)(?:\\\\)*\|", line, maxsplit=7)
    keys = list(re.finditer(r"(?:^|(?<= ))([A-Za-z0-9]+)=", extension))
    found = {}
    for at, key in enumerate(keys):
        end = keys[at + 1].start() - 1 if at + 1 < len(keys) else len(extension)
        raw = extension[key.end() : end]
        found[key[1]] = re.sub(r"\\(.)", lambda m: {"n": "\n", "r": "\r"}.get(m[1], m[1]), raw)
    return header, found


def test_cef_parses_to_what_was_recorded_and_forges_no_event(hostile: Book) -> None:
    data, _ = write(hostile, "cef")
    lines = data.decode().split("\n")[:-1]
    assert len(lines) == len(HOSTILE)
    for line, text in zip(lines, HOSTILE, strict=True):
        header, fields = parse_cef(line)
        assert header[:5] == ["CEF:0", "datasync", "datasync", "0", "push"]
        assert header[6] == "6"
        shown = re.sub(r"[^\n\x20-\x7e名字]", lambda m: m[0].encode("unicode_escape").decode(), text)
        assert fields["cs1"] == shown.replace("\r\n", "\n").replace("\\r", "\n" if "\r" in text else "\\r")
        assert fields["src"] == "192.0.2.7"
        assert "\x1b" not in line


def test_parquet_has_types_and_utc_times(hostile: Book) -> None:
    data, _ = write(hostile, "parquet")
    table = pq.read_table(io.BytesIO(data))
    assert table.num_rows == len(HOSTILE)
    assert str(table.schema.field("time").type) == "timestamp[us, tz=UTC]"
    assert str(table.schema.field("bytes").type) == "int64"
    assert table.column("dataset").to_pylist() == list(HOSTILE)


def test_cloudtrail_has_the_fields_that_its_readers_ask_for(hostile: Book) -> None:
    data, _ = write(hostile, "cloudtrail")
    records = json.loads(data)["Records"]
    assert len(records) == len(HOSTILE)
    for record in records:
        assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", record["eventID"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", record["eventTime"])
        assert record["eventName"] == "push"
        assert record["errorMessage"] == record["requestParameters"]["dataset"]
    assert len({record["eventID"] for record in records}) == len(HOSTILE)


def test_html_shows_hostile_text_as_text(hostile: Book) -> None:
    page = write(hostile, "html")[0].decode()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"(src|href)\s*=", page), "it loads nothing"


def test_json_lines_are_the_signed_events_and_their_persons(book: Book) -> None:
    book.write(3)
    data, _ = write(book, "jsonl")
    value = json.loads(data.splitlines()[1])
    assert value.pop("opened")["who"]["subject"] == "alice@host"
    again = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    assert again in book.segments()[0].read_bytes().splitlines()


@pytest.mark.parametrize(("since", "until"), [(0, 0), (7, 0), (0, 23), (7, 23), (29, 30), (30, 31)])
def test_any_part_of_the_log_is_proved_against_the_whole(since: int, until: int, book: Book) -> None:
    book.write(15, group=4)
    book.clock.now += 40 * DAY
    book.write(15, group=2)
    times = [event.time for event in book.events()] + ["2999-01-01T00:00:00.000000Z"] * 2
    span = {"since": times[since] if since else "", "until": times[until] if until else ""}
    data, manifest = write(book, "jsonl", **span)
    assert check(data, manifest) == (until or 30) - since if since < 30 else check(data, manifest) == 0
    lines = data.splitlines(keepends=True)
    if len(lines) > 1:
        for changed in (lines[1:], lines[:-1], [lines[1], lines[0], *lines[2:]]):
            with pytest.raises(IntegrityError):
                check(b"".join(changed), manifest)


def test_a_manifest_signed_by_another_key_is_refused_when_the_key_is_known(book: Book) -> None:
    from datasync.audit.checkpoint import verifier_key
    from datasync.crypto.notes import NoteKey

    book.write(3)
    out = io.BytesIO()
    manifest = export(PRIMITIVES, [book.files], book.people, "jsonl", out)
    forged = sign_manifest(PRIMITIVES, manifest, NoteKey(b"z" * 32))
    mine = frozenset([verifier_key(PRIMITIVES, book.key.public)])
    with pytest.raises(IntegrityError, match="not expected"):
        check_export(PRIMITIVES, forged, io.BytesIO(out.getvalue()), mine)


def test_logs_are_merged_by_time(book: Book, tmp_path: Path) -> None:
    other = Book.make(tmp_path / "second", b"q" * 32)
    other.clock = book.clock
    other.log._now = book.clock
    for number in range(6):
        (book, other)[number % 2].log.append((book, other)[number % 2].event("push", number), sync=True)
    merged = list(rows([book.files, other.files], Wanted(), book.people))
    assert [row.event.log for row in merged] == [book.log.id, other.log.id] * 3
    out = io.BytesIO()
    manifest = export(PRIMITIVES, [book.files, other.files], book.people, "jsonl", out)
    assert check(out.getvalue(), sign_manifest(PRIMITIVES, manifest, book.key)) == 6


def test_an_unknown_format_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="expected one of jsonl"):
        writer("xml")


def _independent(proof: dict[str, Any], tmp_path: Path, *key: str) -> "subprocess.CompletedProcess[str]":
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(proof))
    return subprocess.run(
        [sys.executable, str(PROOF), str(path), *key], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_sixty_lines_agree_with_every_proof_and_refuse_changed_ones(book: Book, tmp_path: Path) -> None:
    assert len(PROOF.read_text().splitlines()) <= 60
    book.write(11, group=3)
    for seq in (0, 5, 10):
        done = _independent(prove_event(PRIMITIVES, book.files, seq), tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"proved: event {seq} of 11")
    good = prove_event(PRIMITIVES, book.files, 5)
    for changed in (
        good | {"event": good["event"].replace("warm", "push")},
        good | {"path": good["path"][::-1]},
        good | {"path": good["path"][:-1]},
        good | {"path": [*good["path"], base64.b64encode(bytes(32)).decode()]},
        good | {"seq": 4},
        good | {"checkpoint": good["checkpoint"].replace("\n11\n", "\n12\n")},
    ):
        assert _independent(changed, tmp_path).returncode != 0
    stranger = Book.make(tmp_path / "stranger", b"s" * 32)
    stranger.write(1)
    key = prove_event(PRIMITIVES, stranger.files, 0)["key"]
    assert _independent(good, tmp_path, key).returncode != 0


def test_growth_is_proved(book: Book) -> None:
    from datasync.audit.merkle import verify_consistency

    book.write(5)
    old = book.checkpoint()
    book.write(8, group=3)
    proof = prove_growth(PRIMITIVES, book.files, old)
    path = [base64.b64decode(item) for item in proof["path"]]
    verify_consistency(PRIMITIVES.sha256, old.size, 13, path, old.root, book.verify().root)


@pytest.mark.parametrize(
    ("field", "value"),
    [("before", ["!"]), ("after", ["?"]), ("key", "no key"), ("first", -1), ("first", 2**70), ("checkpoint", "note")],
)
def test_a_manifest_that_anybody_signed_raises_our_errors_alone(book: Book, field: str, value: object) -> None:
    book.write(5)
    out = io.BytesIO()
    manifest = export(PRIMITIVES, [book.files], book.people, "jsonl", out)
    manifest["logs"][0][field] = value
    signed = sign_manifest(PRIMITIVES, manifest, NoteKey(bytes(32)))
    with pytest.raises(IntegrityError):
        check_export(PRIMITIVES, signed, io.BytesIO(out.getvalue()))


def test_events_are_found_by_number_without_opening_other_segments(book: Book) -> None:
    book.write(3)
    book.clock.now += 40 * DAY
    book.write(3)
    book.clock.now += 40 * DAY
    book.write(3)
    opened: list[str] = []

    def watched(piece: Piece) -> Piece:
        def look() -> BinaryIO:
            opened.append(piece.name)
            return piece.open()

        return Piece(piece.name, piece.first, look)

    files = replace(book.files, pieces=tuple(map(watched, book.files.pieces)))
    assert [event.seq for event in select(files, Wanted(seqs=(4, 5)))] == [4]
    assert set(opened) == {files.pieces[1].name}
