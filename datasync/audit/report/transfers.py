"""Cross-border transfers (数据出境) by year: data moved between a node's region and a repository's when they differ."""

from collections.abc import Iterable

from datasync.audit.report.model import SUCCESS, Asked, Report, Section, Words
from datasync.audit.rows import Row

MOVES = {"push": True, "pull": False, "warm": False}  # True: from the node to the repository


def transfers(rows: Iterable[Row], asked: Asked) -> Report:
    """Return the report, of `year` and `dataset` alone when they are given."""
    crossed: dict[tuple[str, str, str, str], list[int]] = {}
    unknown: dict[tuple[str, str], int] = {}
    for row in rows:
        event = row.event
        year = event.time[:4]
        if event.action not in MOVES or event.outcome not in SUCCESS or asked.year not in ("", year):
            continue
        if asked.dataset not in ("", event.dataset):
            continue
        if not event.region or not event.node_region:
            unknown[year, event.dataset] = unknown.get((year, event.dataset), 0) + 1
        elif event.region != event.node_region:
            place = (event.node_region, event.region) if MOVES[event.action] else (event.region, event.node_region)
            entry = crossed.setdefault((year, event.dataset, *place), [0, 0])
            entry[0] += 1
            entry[1] += event.sent_bytes if MOVES[event.action] else event.bytes
    return Report(
        Words("Cross-border transfers"),
        ((Words("Year"), asked.year or Words("all")), (Words("Dataset"), asked.dataset or Words("all"))),
        (
            Section(
                Words("Between regions"),
                Words("Transfers whose two regions are known and differ. Bytes as the events count them."),
                (Words("Year"), Words("Dataset"), Words("From"), Words("To"), Words("Times"), Words("Bytes")),
                tuple((*key, *entry) for key, entry in sorted(crossed.items())),
            ),
            Section(
                Words("With a region unknown"),
                Words("Set audit.region on each machine, and name the region in the repository's URL."),
                (Words("Year"), Words("Dataset"), Words("Times")),
                tuple((*key, count) for key, count in sorted(unknown.items())),
            ),
        ),
    )
