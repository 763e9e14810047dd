"""datasync demo: the main job, end to end, on a real dataset, in one temporary directory.

Every step is the command that a user would type: what is printed after `$` is what runs (with --json besides, where
figures are read from it). A step that fails ends the demo with its message and its exit code.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import click

from datasync.cli import demo_dataset
from datasync.cli.common import common
from datasync.cli.demo_place import Place, StepFailed, temporary_folder
from datasync.cli.output import Output, fail, plural, size
from datasync.config import Flags
from datasync.errors import UsageError

DATASET = "licenses"
TRAIN = Path(__file__).with_name("demo_train.py")


@click.command("demo")
@click.option("--keep", is_flag=True, help="Keep the directory, and say where it is.")
@common
def command(keep: bool, output: Output, flags: Flags) -> int:
    """Run the main job on an example dataset, in a temporary directory: no account, no server.

    init, push, push again, change files, push, warm, train a small model from the local path, verify.
    """
    if flags != Flags():
        raise UsageError("demo: it makes a repository of its own: expected no --repository, --config or --trust")
    origin = demo_dataset.locate()
    with temporary_folder(keep, output) as folder:
        try:
            _story(Place(folder, output), origin, keep=keep)
        except StepFailed as error:
            fail(f"demo: {error}", error.kind, error.code, as_json=output.as_json)
            return error.code
    return 0


def _story(place: Place, origin: demo_dataset.Origin, *, keep: bool) -> None:
    """Tell the whole story; the last event has the figures that matter."""
    source = place.folder / DATASET
    _prepare(place, origin, source)
    done = place.datasync("init", "./repository")
    place.tell("init", "a repository in a local directory, and a new identity", done.seconds, command=done.command)
    first = _push(place, "push")
    again = _push(place, "push again")
    began = time.monotonic()
    demo_dataset.change(origin, source)
    each = demo_dataset.EACH
    text = f"{each} files changed, {each} added, {each} deleted, {each} moved to another directory"
    place.tell("change", text, time.monotonic() - began, changed=each, added=each, deleted=each, moved=each)
    second = _push(place, "push the change", first)
    _warm(place)
    accuracy, majority = _train(place)
    problems = _verify(place)
    seconds = time.monotonic() - place.began
    place.output.line(f"{seconds:6.1f} s  in all")
    place.output.result(
        first_sent_bytes=first,
        again_sent_bytes=again,
        change_sent_bytes=second,
        accuracy=accuracy,
        majority=majority,
        problems=problems,
        path=str(place.folder) if keep else None,
        seconds=round(seconds, 3),
    )


def _prepare(place: Place, origin: demo_dataset.Origin, source: Path) -> None:
    name = f"{demo_dataset.PACKAGE} {origin.version}"
    text = f"{len(origin.files):,} licence texts with their categories, {size(origin.bytes)}"
    place.output.line(f"dataset: {name}, {text}, {demo_dataset.LICENCE}, by {demo_dataset.AUTHORS}")
    place.output.line(f"everything happens in {place.folder}, with its own home, identity, repository and cache")
    began = time.monotonic()
    demo_dataset.copy(origin, source)
    copied = len(origin.files) - len(origin.late)
    place.tell(
        "copy",
        f"{copied:,} of the files to ./{DATASET}; {len(origin.late)} come later",
        time.monotonic() - began,
        package=demo_dataset.PACKAGE,
        version=origin.version,
        licence=demo_dataset.LICENCE,
        files=len(origin.files),
        bytes=origin.bytes,
        copied=copied,
    )


def _push(place: Place, step: str, first: int | None = None) -> int:
    """Push the working directory; return the bytes sent. With *first*, the bytes of the first push, say which share."""
    done = place.datasync("push", f"./{DATASET}")
    result = done.result
    sent = int(result["sent_bytes"])
    if not result["created"]:
        text = f"nothing to do, {sent:,} bytes sent"
    else:
        text = f"{size(result['new_bytes'])} of new data, compressed and sealed: {sent:,} bytes sent"
    share = f", {sent / first:.1%} of the first push" if first else ""
    place.tell(step, text + share, done.seconds, command=done.command, **_figures(result))
    return sent


def _figures(result: dict[str, Any]) -> dict[str, Any]:
    kept = ("seq", "created", "entries", "bytes", "read_bytes", "new_bytes", "sent_bytes")
    return {key: result[key] for key in kept}


def _warm(place: Place) -> None:
    done = place.datasync("warm", DATASET)
    files, fetched, view = (done.result[key] for key in ("files", "fetched_bytes", "path"))
    text = f"{plural(files, 'file')} verified in ./{os.path.relpath(view, place.folder)}, {fetched:,} bytes fetched"
    place.tell("warm", text, done.seconds, command=done.command, files=files, fetched_bytes=fetched, path=view)


def _train(place: Place) -> tuple[float, float]:
    """Train from the local path; return the accuracy on held-out texts and that of always saying the commonest."""
    shutil.copyfile(TRAIN, place.folder / "train.py")
    done = place.datasync("run", "--data", DATASET, "--", sys.executable, "train.py", as_json=False)
    for line in done.lines:
        place.output.line(f"          {line}")
    metrics = json.loads((place.folder / "metrics.json").read_text())
    accuracy, majority = float(metrics["accuracy"]), float(metrics["majority"])
    text = f"a model trained from the local path: held-out accuracy {accuracy:.1%}, against {majority:.1%} without one"
    place.tell("run", text, done.seconds, command=done.command, **metrics)
    return accuracy, majority


def _verify(place: Place) -> int:
    done = place.datasync("verify", "--read-data")
    found = next(event for event in done.events if event["type"] == "verified")
    counts = f"{plural(found['snapshots'], 'snapshot')}, {plural(found['read_packs'], 'pack')}"
    text = f"{counts}, every one of {found['read_bytes']:,} bytes read and checked: no problem"
    figures = {key: found[key] for key in ("snapshots", "packs", "read_packs", "read_bytes")}
    place.tell("verify", text, done.seconds, command=done.command, problems=done.result["problems"], **figures)
    return int(done.result["problems"])
