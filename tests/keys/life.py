"""Grant, push by two writers at once, read, revoke, rotate, read old, fail to read new, re-seal, shred, certify."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.machine import Ran, contents
from tests.support.people import Person

DATASET = "scans"


def _tree(root: Path, words: str) -> Path:
    root.mkdir(parents=True)
    for number in range(12):
        (root / f"file{number}").write_bytes(f"{words} {number} ".encode() * 3000)
    return root


def play(folder: Path, make: Callable[[str], Person]) -> None:
    """Play the life with people that *make* makes."""
    olga, will, rita, node, lab = (make(name) for name in ("olga", "will", "rita", "node", "lab"))
    olga.must("init")
    first = _tree(folder / "first", "olga")
    olga.must("push", first, "--dataset", DATASET)
    olga.grant(DATASET, will, "writer")
    for reader in (rita, node):
        olga.grant(DATASET, reader, "reader")
    olga.grant(DATASET, lab, "push-only")
    _two_writers_at_once(folder, olga, will)
    deposited = _tree(folder / "lab", "instrument")
    lab.must("push", deposited, "--dataset", DATASET)
    lab.refused(12, "pull", DATASET, folder / "nothing", words="reads nothing")
    newest = rita.must("pull", DATASET, folder / "rita")
    assert contents(folder / "rita") == contents(deposited)
    assert node.must("warm", DATASET, "--cache", folder / "cache")["snapshot"] == newest["snapshot"]
    _revoke(folder, olga, will, rita, newest["seq"])
    _reseal(folder, olga, node, first)
    _shred(folder, olga, node)


def _two_writers_at_once(folder: Path, olga: Person, will: Person) -> None:
    work = [(olga, _tree(folder / "more", "more")), (will, _tree(folder / "will", "will"))]

    def push(item: tuple[Person, Path]) -> Ran:
        who, tree = item
        line = ("push", tree, "--dataset", DATASET, "--source-change", "--json")
        return who.machine.spawn(*line) if who.store is None else who.run(*line)

    with ThreadPoolExecutor(2 if olga.store is None else 1) as pool:  # a store in memory is this process's own
        done = list(pool.map(push, work))
    assert [ran.code for ran in done] == [0, 0], done
    assert sorted(ran.result["seq"] for ran in done) == [2, 3]


def _revoke(folder: Path, olga: Person, will: Person, rita: Person, seq: int) -> None:
    assert {item["name"] for item in olga.must("key", "list", DATASET)["holders"]} >= {"will", "rita", "node", "lab"}
    before = olga.must("status")["datasets"][0]["seq"]
    olga.must("key", "revoke", DATASET, "will")
    olga.must("key", "revoke", DATASET, "rita")
    olga.must("push", _tree(folder / "secret", "after"), "--dataset", DATASET, "--source-change")
    will.refused(12, "push", folder / "will", "--dataset", DATASET, words="no slot")
    rita.refused(12, "pull", DATASET, folder / "rita2", words="no slot")
    rita.refused(12, "pull", f"{DATASET}@{seq}", folder / "rita3", words="no slot")
    assert olga.must("status")["datasets"][0]["seq"] == before + 1
    assert {item["name"] for item in olga.must("key", "list", DATASET)["holders"]}.isdisjoint({"will", "rita"})


def _reseal(folder: Path, olga: Person, node: Person, first: Path) -> None:
    olga.must("key", "rotate", DATASET)
    node.must("pull", f"{DATASET}@1", folder / "old")
    assert contents(folder / "old") == contents(first)
    done = olga.must("key", "rotate", DATASET, "--full")
    assert done["resealed"] >= 2
    for who in (olga, node):
        who.must("verify", DATASET, "--read-data")
        target = folder / f"again-{who.name}"
        who.must("pull", f"{DATASET}@1", target)
        assert contents(target) == contents(first)
    pushed = olga.must("push", first, "--dataset", DATASET, "--source-change")
    assert pushed["created"]
    node.must("pull", DATASET, folder / "newest")
    assert contents(folder / "newest") == contents(first)


def _shred(folder: Path, olga: Person, node: Person) -> None:
    certificate = folder / "certificate.json"
    olga.must("key", "shred", DATASET, "--yes", "--reason", "the contract ended", "--output", certificate)
    assert olga.must("key", "certificate", certificate)["dataset"] == DATASET
    for who in (olga, node):
        assert who.run("pull", DATASET, folder / "gone").code in (4, 7, 12)
        assert not (folder / "gone").exists()
    changed = json.loads(certificate.read_text()) | {"dataset": "another"}
    certificate.write_text(json.dumps(changed))
    olga.refused(7, "key", "certificate", certificate, words="does not hold")
