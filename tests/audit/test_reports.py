"""Reports say what the events say, in both languages, on one page that loads nothing."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from datasync.audit.log import draft
from datasync.audit.query import Wanted
from datasync.audit.report import REPORTS, words
from datasync.audit.report.model import Asked, Kept, Report, Words
from datasync.audit.report.render import as_html, as_json
from datasync.audit.report.words import CHINESE
from datasync.audit.retention import Hold
from datasync.audit.rows import rows
from datasync.audit.seal import Person
from datasync.service import audit_keep
from datasync.service.audit_log import audit_root
from datasync.service.record import recorded
from tests.audit.book import DAY, Book
from tests.support.cli import Machine

D1, D2 = "2025-11-24", "2025-11-26"


def tell(book: Book, action: str, who: str, whom: str = "", outcome: str = "success", **fields: object) -> None:
    person = Person(whom) if whom else None
    book.log.append(draft(action, outcome, Person(who), person, **{"dataset": "scans", **fields}), sync=True)


@pytest.fixture
def story(book: Book) -> Book:
    """An owner, a reader who comes, reads and goes, one who stays; a transfer; a shredding; an alarm."""
    regions = {"node_region": "cn-beijing", "region": "eu-west-1"}
    tell(book, "push", "olga", bytes=100, sent_bytes=80, purpose="training", detail={"new_dataset": 1}, **regions)
    tell(book, "key.grant", "olga", "rob", detail={"role": "read"})
    ended = 1_764_000_000_000 + 86_400_000 // 4
    tell(book, "key.grant", "olga", "tom", detail={"role": "reader", "until": ended})
    tell(book, "key.grant", "olga", "sue", outcome="intent")
    tell(book, "key.grant", "olga", "sue", classification="sensitive")
    tell(book, "pull", "rob", bytes=100)
    tell(book, "pull", "eve", outcome="denied", reason="no grant")
    book.clock.now += DAY
    tell(book, "key.revoke", "olga", "rob")
    book.clock.now += DAY
    tell(book, "warm", "sue", bytes=100)
    tell(book, "warm", "sue", bytes=100)
    tell(book, "key.rotate", "olga", epoch=2)
    tell(book, "alarm.rollback", "sue", outcome="failure", reason="older head")
    tell(book, "audit.retain", "olga", detail={"retention": "30d", "override_legal_floor": 1})
    tell(book, "key.shred", "olga", outcome="intent")
    tell(book, "key.shred", "olga")
    return book


def build(book: Book, name: str, **asked: Any) -> Report:
    kept = Kept("3y", Hold("2026-01-01T00:00:00Z", "case 17"), (("ab" * 16, 2, 14),))
    question = Asked(verified=(book.verify(),), kept=kept, **asked)
    return REPORTS[name].build(rows([book.files], Wanted(), book.people), question)


def table(report: Report, number: int) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in report.sections[number].rows]


def test_who_could_read_and_who_did(story: Book) -> None:
    first = build(story, "access", dataset="scans", day=D1)
    assert [row[0] for row in table(first, 0)] == ["olga", "rob", "sue", "tom"]
    assert [(row[0], row[1], row[2]) for row in table(first, 1)] == [("rob", "pull", 1)]
    later = build(story, "access", dataset="scans", day=D2)
    assert [row[0] for row in table(later, 0)] == ["olga", "sue"], "until the keys were destroyed that day"
    assert all(row[3] for row in table(later, 0)), "the end is named"
    assert [(row[0], row[2]) for row in table(later, 1)] == [("sue", 2)]
    assert table(build(story, "access", dataset="other", day=D1), 0) == []
    assert table(build(story, "access", dataset="scans", day="2025-11-20"), 0) == []


def test_the_review_of_a_person(story: Book) -> None:
    rob = build(story, "person", person="rob")
    assert table(rob, 0) == []
    assert [row[:4] for row in table(rob, 1)] == [("pull", "scans", "success", 1)]
    eve = build(story, "person", person="eve")
    assert [row[:4] for row in table(eve, 1)] == [("pull", "scans", "denied", 1)]


def test_key_history_has_every_change_and_no_intent(story: Book) -> None:
    found = table(build(story, "keys"), 0)
    assert [row[2] for row in found] == [
        *["key.grant"] * 3,
        "key.revoke",
        "key.rotate",
        "key.shred",
    ]
    assert found[4][4] == 2


def test_processing_names_purposes_classes_people_and_regions(story: Book) -> None:
    ((name, purposes, classes, people, regions, *_),) = table(build(story, "processing"), 0)
    assert (name, purposes, classes, people) == ("scans", "training", "sensitive", "rob sue tom")
    assert regions == "cn-beijing eu-west-1"


def test_erasure_has_a_certificate_with_a_proof_and_no_open_intent(story: Book) -> None:
    report = build(story, "erasure")
    ((_, action, what, _, outcome, by, proof),) = table(report, 0)
    assert (action, what, outcome, by) == ("key.shred", "scans", "success", "olga")
    assert proof == f"{story.log.id}/{story.verify().size - 1}"
    assert table(report, 1) == []
    tell(story, "key.shred", "olga", outcome="intent")
    assert len(table(build(story, "erasure"), 1)) == 1


def test_transfers_between_regions_are_counted_by_year(story: Book) -> None:
    report = build(story, "transfers")
    assert table(report, 0) == [("2025", "scans", "cn-beijing", "eu-west-1", 1, 80)]
    assert table(report, 1) == [("2025", "scans", 3)]
    assert table(build(story, "transfers", year="2024"), 0) == []


def test_integrity_has_the_checkpoint_and_the_alarms(story: Book) -> None:
    report = build(story, "integrity")
    assert table(report, 0)[0][6] == story.verify().note
    assert [row[1] for row in table(report, 2)] == ["alarm.rollback"]


def test_retention_has_the_hold_and_the_override(story: Book) -> None:
    report = build(story, "retention")
    assert ("Legal hold", "case 17 (2026-01-01T00:00:00Z)") in [(str(name), value) for name, value in report.about]
    assert "override_legal_floor=1" in str(table(report, 1)[0][2])


def _words(value: object) -> list[str]:
    if isinstance(value, Words):
        return [str(value)]
    if isinstance(value, tuple):
        return [word for item in value for word in _words(item)]
    if isinstance(value, Report):
        parts: tuple[Any, ...] = (
            value.title,
            value.about,
            *((s.heading, s.note, s.columns, s.rows) for s in value.sections),
        )
        return _words(parts)
    return []


@pytest.mark.parametrize("name", REPORTS)
def test_each_report_is_whole_in_both_languages_and_loads_nothing(name: str, story: Book) -> None:
    tell(story, "push", "<b>mallory</b>", dataset='<script>alert("x")</script>', detail={"new_dataset": 1})
    report = build(
        story, name, dataset='<script>alert("x")</script>' if name != "erasure" else "", day=D2, person="rob"
    )
    missing = [word for word in _words(report) if word not in CHINESE]
    assert missing == []
    for language in ("en", "zh"):
        page = as_html(report, language, "2026-01-01T00:00:00+00:00")
        assert "<script" not in page
        assert not re.search(r"<[^>]*\b(src|href)\s*=|url\(|@import", page)
        assert "@page" in page
        assert f'lang="{language}"' in page
        json.dumps(as_json(report, language, "2026"))
    assert any("\u4e00" <= sign <= "\u9fff" for sign in as_html(report, "zh", ""))


def test_no_translation_is_left_over_or_empty() -> None:
    folder = Path(words.__file__).parent
    source = "".join(path.read_text() for path in folder.glob("*.py") if path.stem != "words")
    assert [word for word in CHINESE if word not in source] == []
    assert all(CHINESE.values())


def test_the_command_makes_each_report(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "data").mkdir(parents=True)
    (home / "data" / "x").write_text("x")
    machine = Machine(home, str(tmp_path / "repository"))
    machine.run("init")
    machine.run("push", home / "data")
    for name in REPORTS:
        options = ("--dataset", "data", "--day", "2026-01-01", "--person", "x", "--lang", "zh")
        machine.run("audit", "report", name, *options, "--output", home / f"{name}.html")
        assert (home / f"{name}.html").read_text().startswith("<!doctype html>")
    assert machine.run("audit", "report", "integrity", "--json").result["kind"] == "datasync audit report"
    machine.run("audit", "report", "access", expect=2)
    machine.run("audit", "report", "access", "--dataset", "x", "--day", "tomorrow", expect=2)


def test_a_person_asks_for_erasure_and_an_auditor_for_proof_a_year_later(tmp_path: Path) -> None:
    """From the shredding to the report: what was erased can not be read, that it was erased can be proved."""
    home = tmp_path / "home"
    (home / "scans").mkdir(parents=True)
    (home / "scans" / "x").write_text("x")
    machine = Machine(home, str(tmp_path / "repository"))
    machine.run("init")
    machine.run("push", home / "scans")
    from datasync.config import Flags, load_config

    config = load_config(Flags(), {"HOME": str(home), "DATASYNC_REPOSITORY": str(tmp_path / "repository")})
    with recorded(config, "pull", subject="petra@example.org", dataset="scans", address="192.0.2.9"):
        pass
    anchor = home / "anchor.json"
    machine.run("audit", "anchor", "--output", anchor)  # goes to the auditor
    with recorded(config, "key.shred", security=True, dataset="scans", target="petra@example.org"):
        pass
    machine.run("audit", "ship")
    machine.run("audit", "erase", "petra@example.org", "--remote", "--yes")
    machine.run("audit", "ship")

    # a year later, on the auditor's machine, with the log and the anchored checkpoint alone
    audit = audit_root(config)
    name = next(path.name for path in audit.iterdir() if (path / "key.pub").exists())
    shutil.copytree(audit / name, tmp_path / name)
    auditor = Machine(tmp_path / "auditor", "")
    auditor.home.mkdir()
    key = json.loads(anchor.read_text())["key"]
    auditor.run("audit", "verify", "--log", tmp_path / name, "--checkpoint", anchor, "--key", key)
    report = auditor.run("audit", "report", "erasure", "--log", tmp_path / name, "--json").result
    lines = report["sections"][0]["rows"]
    assert [(row[1], row[4]) for row in lines if row[1] == "key.shred"] == [("key.shred", "success")]
    erased = [row for row in lines if row[1] == "person.erase"]
    assert len(erased) == 2, "here and in the repository"
    assert report["sections"][1]["rows"] == [], "no erasure was begun and left"
    seq = int(str(erased[-1][6]).split("/")[1])
    proof = json.loads(auditor.run("audit", "prove", str(seq), "--log", tmp_path / name).stdout)
    assert '"action":"person.erase","outcome":"success"' in proof["event"]

    everything = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert b"petra@" not in everything
    assert b"192.0.2.9" not in everything
    with pytest.raises(Exception, match="nothing to erase"):
        audit_keep.erase(config, "petra@example.org")
    found = machine.run("audit", "query", "--actor", "petra@example.org", "--json").result
    assert found["events"] == 0
    assert machine.run("audit", "verify", "--remote").code == 0
