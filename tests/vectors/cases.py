"""Reading the vectors: files, cases by kind as test parameters, and what a refusal must raise."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from datasync import errors
from tests.vectors.fixed import FOLDER
from tests.vectors.notation import rebuild, to_bytes

Case = dict[str, Any]
FILES = sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != "chunker")


@cache
def load(file: str) -> Case:
    found: Case = json.loads((FOLDER / f"{file}.json").read_text(encoding="ascii"))
    return found


@cache
def named(file: str, name: str) -> Case:
    found: Case = next(case for case in load(file)["cases"] if case["name"] == name)
    return found


def kind_of(file: str, case: Case) -> str:
    base = named(file, case["base"]) if "base" in case else case
    kind: str = case.get("kind") or base.get("kind") or ("structure" if "read" in base else file)
    return kind


def every(kind: str, part: str = "cases") -> pytest.MarkDecorator:
    """Parametrize a test by all cases (or refusals) of *kind* in all files."""
    found = [(file, case) for file in FILES for case in load(file)[part] if kind_of(file, case) == kind]
    names = [f"{file}: {case.get('base', '')}: {case['name']}" for file, case in found]
    return pytest.mark.parametrize(("file", "case"), found, ids=names)


def must_refuse(case: Case, act: Callable[[], object]) -> None:
    """Run *act*, which has to raise the very class of *case* (of `datasync.errors`) with its message."""
    with pytest.raises(errors.DatasyncError) as caught:
        act()
    public = next(kind for kind in type(caught.value).__mro__ if kind.__module__ == errors.__name__)
    assert public.__name__ == case["error"]
    assert case["message"] in str(caught.value)


def field(case: Case, name: str) -> bytes:
    return to_bytes(case[name])


def changed(file: str, case: Case, name: str = "bytes") -> bytes:
    """Return the bytes of a refusal."""
    return rebuild(to_bytes(named(file, case["base"])[name]), case["edits"])
