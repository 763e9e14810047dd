"""Count what a first push would read; nothing is read or written, and no dataset is made."""

import time
from collections.abc import Callable
from pathlib import Path

from datasync.format.snapshot import Totals
from datasync.push.detect import Changes
from datasync.push.ignore import IgnoreRules
from datasync.push.options import Progress, PushOptions, PushResult
from datasync.push.scan import Skipped, scan
from datasync.push.source import SourceTree


def count_only(root: Path, options: PushOptions, report: Callable[[Progress], None]) -> PushResult:
    """Walk the tree at *root* and count what a first push would read; nothing is read or written."""
    started, changes, skipped, size = time.monotonic(), Changes(), list[Skipped](), 0
    with SourceTree.open(root) as tree:
        rules = IgnoreRules(include=options.include, exclude=options.exclude)
        for found in scan(tree, rules, skipped.append, one_file_system=options.one_file_system):
            changes.found += 1
            changes.added += 1
            size += found.size
    progress = Progress(changes.found, 0, 0, 0)
    report(progress)
    totals = Totals(changes.found, 0, 0, 0, size, 0, len(skipped))
    return PushResult(None, False, totals, changes, progress, skipped, time.monotonic() - started)
