"""The table of clause by store that a run of the contract suite prints at its end, from what really ran."""

import re
from collections.abc import Iterable, Mapping

_NODE = re.compile(r"tests/contract/\w+\.py::test_(\w+)\[([a-z0-9]+(?:-(?:oss2|v2))?)")
_WORDS = {"passed": "yes", "failed": "FAIL", "skipped": "-"}


def clause_table(outcomes: Mapping[str, Iterable[str]], kinds: tuple[str, ...]) -> list[str]:
    """Return the lines of a Markdown table for *outcomes*: node ids by outcome; empty when no clause ran.

    A cell is the worst of a clause's cases; a store that lacks what a clause needs has no cell.
    """
    cells: dict[str, dict[str, str]] = {}
    for outcome in ("skipped", "passed", "failed"):  # a later one replaces an earlier one
        for node in outcomes.get(outcome, ()):
            found = _NODE.match(node)
            if found and found[2] in kinds:
                cells.setdefault(found[1].replace("_", " "), {})[found[2]] = _WORDS[outcome]
    if not cells:
        return []
    head = [f"| clause | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    return head + [
        f"| {name} | {' | '.join(row.get(kind, '') for kind in kinds)} |" for name, row in sorted(cells.items())
    ]
