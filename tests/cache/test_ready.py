"""READY.json: strict, written last, never there without the view that it speaks of."""

import dataclasses
import errno
import json
import os
import random
import stat
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasync.cache.layout import Cache, View
from datasync.cache.objects import Objects
from datasync.cache.ready import (
    Ready,
    discard_view,
    encode_ready,
    parse_ready,
    publish_view,
    read_ready,
    stage_view,
    write_ready,
)
from datasync.errors import IntegrityError, NewerFormat, NoSpace
from datasync.model.ids import DatasetId, SnapshotId

SNAPSHOT = SnapshotId(bytes(range(32)))
READY = Ready(
    dataset="数 据",
    dataset_id=DatasetId(b"\x01" * 32),
    repository=b"\x02" * 16,
    seq=3,
    snapshot=SNAPSHOT,
    root=b"\x03" * 32,
    entries=3,
    files=2,
    bytes=10,
    completed=datetime(2026, 11, 30, 8, 20, 45, tzinfo=UTC),
    tool="datasync 0.1.0",
    subset=(),
    node="dss1node",
    signature=b"\x04" * 64,
)


@pytest.fixture
def view(cache: Cache) -> View:
    return cache.view(READY.dataset, READY.seq, SNAPSHOT)


def changed(**changes: object) -> bytes:
    value = json.loads(encode_ready(READY)) | changes
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def test_a_receipt_has_this_text() -> None:
    assert encode_ready(READY).startswith(b'{"version":1,"dataset":"\\u6570 \\u636e","dataset_id":"0101')
    assert encode_ready(READY).endswith(b'"subset":[],"node":"dss1node","signature":"%s"}\n' % (b"04" * 64))
    assert parse_ready(encode_ready(READY), "x") == READY


@given(
    st.text(max_size=20),
    st.integers(0, 2**63),
    st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1)),
    st.text(max_size=9),
)
def test_what_is_encoded_is_parsed(dataset: str, number: int, completed: datetime, tool: str) -> None:
    ready = dataclasses.replace(
        READY, dataset=dataset, bytes=number, completed=completed.replace(microsecond=0, tzinfo=UTC), tool=tool
    )
    assert parse_ready(encode_ready(ready), "x") == ready


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "JSON object"),
        (b"{", "JSON object"),
        (b"[]", "JSON object"),
        (b"[" * 50_000, "JSON object"),
        (b"\xff", "JSON object"),
        (b" " * 70_000, "65536"),
        (b"{}", "dataset"),
        (changed(seq="3"), "seq"),
        (changed(seq=True), "seq"),
        (changed(seq=-1), "seq"),
        (changed(seq=3.0), "seq"),
        (changed(snapshot="00"), "snapshot"),
        (changed(snapshot="zz" * 32), "hexadecimal"),
        (changed(root=None), "root"),
        (changed(completed="yesterday"), "time data"),
        (changed(completed="2026-1-30T08:20:45Z"), "one encoding"),
        (changed(snapshot="AB" * 32), "one encoding"),
        (changed(extra=1), "one encoding"),
        (changed(version=0), "one encoding"),
        (encode_ready(READY)[:-1], "one encoding"),
        (encode_ready(READY) + b"\n", "one encoding"),
        (encode_ready(READY).replace(b'"seq":3', b'"seq":2,"seq":3'), "one encoding"),
    ],
)
def test_a_receipt_that_is_wrong_is_refused_by_name(data: bytes, words: str) -> None:
    with pytest.raises(IntegrityError, match=words) as raised:
        parse_ready(data, "the/receipt")
    assert "the/receipt" in str(raised.value)


def test_a_later_version_asks_for_a_newer_datasync() -> None:
    with pytest.raises(NewerFormat, match="version 2"):
        parse_ready(changed(version=2), "x")


def test_a_receipt_of_another_dataset_or_snapshot_is_refused() -> None:
    READY.check(READY.dataset_id, SNAPSHOT)
    with pytest.raises(IntegrityError, match="two datasets of one name"):
        READY.check(DatasetId(bytes(32)), SNAPSHOT)
    with pytest.raises(IntegrityError, match="expected snapshot"):
        READY.check(READY.dataset_id, SnapshotId(bytes(32)))


def test_a_view_becomes_ready(cache: Cache, view: View) -> None:
    assert read_ready(cache, view) is None
    before = os.umask(0o077)
    try:
        with Objects.open(cache) as store, stage_view(cache, view) as tree:
            os.close(tree.create(b"file"))
            tree.set_mtime(b"", 7)
            assert read_ready(cache, view) is None
            publish_view(cache, view, READY, store.flush)
    finally:
        os.umask(before)
    assert read_ready(cache, view) == READY
    assert os.listdir(view.path) == ["file"]
    assert stat.S_IMODE(view.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(view.ready_path.stat().st_mode) == 0o600
    assert sorted(os.listdir(view.path.parent)) == [view.path.name, view.ready_path.name]
    assert view.path.stat().st_mtime_ns == 7


def test_a_receipt_without_its_view_is_none_and_a_planted_one_is_refused(cache: Cache, view: View) -> None:
    cache.make_folder(view)
    write_ready(cache, view, READY)
    assert read_ready(cache, view) is None
    cache.tree.make_directory(view.place)
    assert read_ready(cache, view) == READY
    view.ready_path.rename(cache.path / "elsewhere")
    view.ready_path.symlink_to(cache.path / "elsewhere")
    with pytest.raises(IntegrityError):
        read_ready(cache, view)


def test_staging_starts_empty_whatever_was_left(cache: Cache, view: View) -> None:
    with stage_view(cache, view) as tree:
        os.close(tree.create(b"half"))
        tree.make_directory(b"dir", 0o500)
    with stage_view(cache, view) as tree:
        os.close(tree.create(b"whole"))
    cache.tree.rename(view.staging, view.place)  # killed between the rename and the receipt
    os.close(cache.tree.create(view.staging + b".READY"))
    with stage_view(cache, view) as tree:
        assert os.listdir(tree.root_fd) == []
    assert os.listdir(view.path.parent) == [os.path.basename(os.fsdecode(view.staging))]
    discard_view(cache, view)
    assert os.listdir(view.path.parent) == []


def test_a_full_disk_while_the_receipt_is_written_leaves_no_receipt(
    cache: Cache, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("write", "fsync", "rename"):
        with stage_view(cache, view):
            pass
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            with pytest.raises(NoSpace):
                publish_view(cache, view, READY, lambda: None)
        assert read_ready(cache, view) is None
    with stage_view(cache, view):
        publish_view(cache, view, READY, lambda: None)
    assert read_ready(cache, view) == READY


FILES = 40

MAKER = f"""
import os, sys
from pathlib import Path
from datasync.cache.layout import Cache
from datasync.cache.locks import ViewLock
from datasync.cache.objects import Objects
from datasync.cache.ready import *
from datasync.cache.ready import parse_ready
ready = parse_ready(bytes.fromhex(sys.argv[2]), "argument")
with Cache.open(Path(sys.argv[1])) as cache, Objects.open(cache) as store:
    view = cache.view(ready.dataset, ready.seq, ready.snapshot)
    print("start", flush=True)
    while True:
        with ViewLock(cache, view):
            discard_view(cache, view)
            with stage_view(cache, view) as tree:
                for number in range({FILES}):
                    fd = tree.create(b"%d" % number)
                    os.write(fd, b"%d" % number * 100)
                    os.close(fd)
                    store.publish(tree, b"%d" % number, number.to_bytes(32, "big"))
                publish_view(cache, view, ready, store.flush)
"""


def complete(view: View) -> bool:
    return all((view.path / str(number)).read_bytes() == b"%d" % number * 100 for number in range(FILES))


def test_a_kill_at_any_moment_never_leaves_a_receipt_without_every_byte(tmp_path: Path) -> None:
    dice = random.Random(7)
    command = [sys.executable, "-c", MAKER, str(tmp_path / "cache"), encode_ready(READY).hex()]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with Cache.open(tmp_path / "cache") as cache:
        view = cache.view(READY.dataset, READY.seq, SNAPSHOT)
        for _ in range(12):
            with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
                assert child.stdout is not None
                assert child.stdout.readline() == b"start\n"
                time.sleep(dice.uniform(0, 0.08))
                child.kill()
                child.wait()
            ready = read_ready(cache, view)
            assert ready in (None, READY)
            if ready:
                assert complete(view)
        with stage_view(cache, view) as tree, Objects.open(cache) as store:  # and the next run finishes
            for number in range(FILES):
                if not store.adopt(number.to_bytes(32, "big"), tree, b"%d" % number):  # type: ignore[arg-type]
                    fd = tree.create(b"%d" % number)
                    os.write(fd, b"%d" % number * 100)
                    os.close(fd)
            publish_view(cache, view, READY, store.flush)
        assert read_ready(cache, view) == READY
        assert complete(view)
