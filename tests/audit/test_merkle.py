"""The tree agrees with a second implementation, with RFC 6962's own numbers, and with the cases of another project."""

import base64
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasync.audit.merkle import (
    Frontier,
    Leaves,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    subtrees,
    verify_consistency,
    verify_inclusion,
    verify_range,
    verify_subtree,
)
from datasync.errors import IntegrityError
from tests.audit.second_tree import mth, path, proof

OUTSIDE = Path(__file__).resolve().parents[3] / "shared" / "vectors" / "rfc6962.json"


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def tree(count: int, base: int = 0) -> tuple[list[bytes], Leaves]:
    """Return the leaves' bytes, and what the package knows of a tree whose first *base* leaves were removed."""
    texts = [str(number).encode() for number in range(count)]
    before = Frontier(sha256)
    for text in texts[:base]:
        before.append(leaf_hash(sha256, text))
    leaves = Leaves(sha256, before)
    for text in texts[base:]:
        leaves.append(leaf_hash(sha256, text))
    return texts, leaves


def test_the_empty_tree_has_the_hash_of_nothing() -> None:
    assert Frontier(sha256).root() == sha256(b"")


@pytest.mark.parametrize("count", [*range(1, 18), 31, 32, 33, 100, 255, 256, 257])
def test_roots_and_proofs_are_those_of_a_second_implementation(count: int) -> None:
    texts, leaves = tree(count)
    frontier = Frontier(sha256)
    for number, text in enumerate(texts):
        frontier.append(leaf_hash(sha256, text))
        assert frontier.root() == mth(texts[: number + 1])
    for index in range(0, count, max(1, count // 20)):
        found = inclusion_proof(leaves, index)
        assert found == path(index, texts)
        verify_inclusion(sha256, index, count, leaves.leaf(index), found, mth(texts))
    for old in range(1, count + 1, max(1, count // 20)):
        found = consistency_proof(leaves, old)
        assert found == proof(old, texts)
        verify_consistency(sha256, old, count, found, mth(texts[:old]), mth(texts))


@given(st.integers(1, 80), st.data())
def test_a_log_without_its_oldest_leaves_proves_the_others(count: int, data: st.DataObject) -> None:
    base = data.draw(st.integers(0, count - 1))
    index = data.draw(st.integers(base, count - 1))
    texts, leaves = tree(count, base)
    assert inclusion_proof(leaves, index) == path(index, texts)


@given(st.integers(1, 80), st.data())
def test_a_range_is_proved_and_no_other_one(count: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, count - 1))
    end = data.draw(st.integers(start, count))
    texts, leaves = tree(count)
    before = [leaves.root(at, at + (1 << level)) for at, level in subtrees(0, start)]
    after = [leaves.root(at, at + (1 << level)) for at, level in subtrees(end, count)]
    hashes = [leaves.leaf(number) for number in range(start, end)]
    verify_range(sha256, start, hashes, count, before, after, mth(texts))
    if hashes:
        with pytest.raises(IntegrityError):
            verify_range(sha256, start, [*hashes[:-1], sha256(b"other")], count, before, after, mth(texts))
        with pytest.raises(IntegrityError):
            verify_range(sha256, start, hashes[:-1], count, before, after, mth(texts))


def test_the_cases_of_another_project_are_accepted_and_refused() -> None:
    if not OUTSIDE.exists():
        pytest.skip(f"{OUTSIDE} is not there: vectors of another project lie beside the checkout or nowhere")
    cases = json.loads(OUTSIDE.read_text())
    assert len(cases) == 518
    wrong = [name for name, case in cases.items() if _accepts(name, case) == case["wantErr"]]
    assert wrong == []


def _accepts(name: str, case: dict[str, object]) -> bool:
    def raw(value: object) -> bytes:
        return base64.b64decode(str(value))

    items = case["proof"]
    hashes = [raw(item) for item in items] if isinstance(items, list) else []
    number = {key: value for key, value in case.items() if isinstance(value, int)}
    kind = name.split("/")[0]
    try:
        if kind == "consistency":
            roots = raw(case["root1"]), raw(case["root2"])
            verify_consistency(sha256, number["size1"], number["size2"], hashes, *roots)
        elif kind == "subtreeconsistency":
            roots = raw(case["root1"]), raw(case["root2"])
            verify_subtree(sha256, number["start"], number["end"], number["size"], hashes, *roots)
        else:
            start = number.get("start", 0)
            place = number["leafIdx"] - start, number.get("treeSize", number.get("end", 0) - start)
            verify_inclusion(sha256, *place, raw(case["leafHash"]), hashes, raw(case["root"]))
            if start % (1 << max(0, place[1] - 1).bit_length()):
                return False  # no subtree begins there
    except IntegrityError:
        return False
    return True
