"""Reports from this machine's logs, or from what all machines shipped."""

from datetime import UTC, date, datetime
from typing import Any

from datasync.audit.query import Wanted
from datasync.audit.report import REPORTS
from datasync.audit.report.model import Asked, Kept, Report
from datasync.audit.report.render import as_html, as_json
from datasync.audit.report.words import LANGUAGES
from datasync.audit.rows import rows
from datasync.audit.seal import People
from datasync.audit.segments import LogFiles
from datasync.audit.verify import check_beginnings, verify_log
from datasync.config import Config
from datasync.errors import UsageError
from datasync.service import audit_keep
from datasync.service.audit_log import PRIMITIVES
from datasync.service.authorize import authorize
from datasync.service.record import recorded


def make(config: Config, name: str, asked: dict[str, str], logs: list[LogFiles], people: People) -> Report:
    """Return the report *name*. Every log is verified first. Recorded."""
    kind = REPORTS.get(name)
    if kind is None:
        raise UsageError(f"audit report {name!r}: expected one of {', '.join(REPORTS)}")
    missing = [option for option in kind.needs if not asked.get(option)]
    if missing:
        given = [f"--{option}" for option in kind.needs if option not in missing]
        raise UsageError(
            f"audit report {name}: expected --{' and --'.join(kind.needs)}, found {' '.join(given) or 'none of them'}: "
            f"pass --{' and --'.join(missing)}"
        )
    _check(asked)
    with recorded(config, "audit.report", report=name, dataset=asked.get("dataset", "")) as event:
        authorize(config, "ExportAudit", event=event)
        verified = tuple(verify_log(PRIMITIVES, item) for item in logs)
        check_beginnings(verified)
        kept = None
        if name == "retention":
            state = audit_keep.state(config)
            kept = Kept(
                state.retention,
                state.hold,
                tuple((item.log, len(item.old.segments), item.old.first_kept) for item in state.logs),
            )
        event.note(logs=len(logs))
        question = Asked(**asked, verified=verified, kept=kept)
        return kind.build(rows(logs, Wanted(), people), question)


def _check(asked: dict[str, str]) -> None:
    try:
        if asked.get("day"):
            date.fromisoformat(asked["day"])
        if asked.get("year"):
            date(int(asked["year"]), 1, 1)
    except ValueError:
        raise UsageError("audit report: expected --day like 2026-11-30, and --year like 2026") from None


def render(report: Report, language: str) -> tuple[dict[str, Any], str]:
    """Return the report as JSON and as a page, in *language*."""
    if language not in LANGUAGES:
        raise UsageError(f"audit report --lang {language!r}: expected one of {', '.join(LANGUAGES)}")
    generated = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
    return as_json(report, language, generated), as_html(report, language, generated)
