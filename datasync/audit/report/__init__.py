"""Reports that compliance people ask for, from the events alone, in English and Chinese, as JSON and printable HTML.

A report says what the log shows, and says so: what was not recorded, or by another log, is not in it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from datasync.audit.report.access import access
from datasync.audit.report.erasure import erasure
from datasync.audit.report.integrity import integrity
from datasync.audit.report.keys import keys
from datasync.audit.report.model import Asked, Report
from datasync.audit.report.person import person
from datasync.audit.report.processing import processing
from datasync.audit.report.retention import retention
from datasync.audit.report.transfers import transfers
from datasync.audit.rows import Row


@dataclass(frozen=True, slots=True)
class Kind:
    """One report: what it answers, how it is made, and which of the options it needs."""

    text: str
    build: Callable[[Iterable[Row], Asked], Report]
    needs: tuple[str, ...] = ()


REPORTS = {
    "access": Kind("who could read a dataset on a day, and who did", access, ("dataset", "day")),
    "person": Kind("access review of one person", person, ("person",)),
    "keys": Kind("grants, revocations and rotations", keys),
    "processing": Kind("record of processing activities (GDPR, article 30)", processing),
    "erasure": Kind("erasure certificates (GDPR, article 17)", erasure),
    "transfers": Kind("cross-border transfers by year", transfers),
    "integrity": Kind("the log's integrity, with its checkpoints", integrity),
    "retention": Kind("how long the log is kept", retention),
}
