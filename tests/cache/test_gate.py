"""The gate of a view: what is set is what is read, in one step from any other, and never wider in between."""

import errno
import itertools
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from datasync.cache import gate as gates
from datasync.cache.acl import ATTRIBUTE, AccessList, encode_acl
from datasync.cache.gate import CLOSED, Gate, gate_of, set_gate, try_gate
from datasync.cache.layout import Cache, View
from datasync.cache.objects import Objects
from datasync.cache.ready import publish_view, stage_view
from datasync.errors import DatasyncError, IntegrityError, NoSpace, NotFound, UsageError
from tests.cache.test_ready import READY, SNAPSHOT

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="giving a group away needs root")
USERS, GROUPS = frozenset({4001, 4002}), frozenset({5001, 5002})
ONE_GROUP = Gate(groups=frozenset({5001}))
GATES = (
    CLOSED,
    ONE_GROUP,
    Gate(groups=frozenset({5002})),
    Gate(USERS),
    Gate(USERS, GROUPS),
    Gate(groups=GROUPS),
    Gate(groups=frozenset({5001}), shut=frozenset({4003})),
)


@pytest.fixture
def ready(cache: Cache) -> View:
    view = cache.view(READY.dataset, READY.seq, SNAPSHOT)
    with Objects.open(cache) as store, stage_view(cache, view) as tree:
        os.close(tree.create(b"file"))
        publish_view(cache, view, READY, store.flush)
    return view


@pytest.fixture(autouse=True)
def _lists(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    try:
        os.setxattr(tmp_path, ATTRIBUTE, encode_acl(AccessList(7, 0, 0)))
    except OSError as error:
        pytest.skip(f"this file system keeps no access lists: {error.strerror}")


def permissions(path: Path) -> tuple[int, int]:
    status = path.stat()
    return stat.S_IMODE(status.st_mode), status.st_gid


def test_a_view_is_published_closed_whatever_the_parents_default_list_says(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    default = encode_acl(AccessList(7, 7, 7, ((4001, 7),), ((5001, 7),), 7))
    os.setxattr(tmp_path / "cache", "system.posix_acl_default", default)
    with Cache.open(tmp_path / "cache") as cache:
        view = cache.view(READY.dataset, READY.seq, SNAPSHOT)
        with Objects.open(cache) as store, stage_view(cache, view) as tree:
            assert stat.S_IMODE(os.fstat(tree.root_fd).st_mode) == 0o700
            publish_view(cache, view, READY, store.flush)
        assert stat.S_IMODE(view.path.stat().st_mode) == 0o700
        assert stat.S_IMODE((cache.path / "objects").stat().st_mode) == 0o700
        set_gate(cache, view, Gate(frozenset({4002})))
        assert gate_of(cache, view) == Gate(frozenset({4002}))  # the parents' users are gone from the list


@root_only
@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(GATES, 2)))
def test_every_gate_follows_every_other(cache: Cache, ready: View, before: Gate, after: Gate) -> None:
    set_gate(cache, ready, before)
    assert gate_of(cache, ready) == before
    set_gate(cache, ready, after)
    assert gate_of(cache, ready) == after
    assert set(os.listdir(cache.path)) == {"objects", "views"}  # nothing is left of the trial


@root_only
def test_one_group_needs_no_list_and_the_receipt_has_the_same_gate(cache: Cache, ready: View) -> None:
    set_gate(cache, ready, ONE_GROUP)
    assert permissions(ready.path) == (0o750, 5001)
    assert permissions(ready.ready_path) == (0o640, 5001)
    assert os.listxattr(ready.path) == []
    set_gate(cache, ready, CLOSED)
    assert [permissions(path)[0] for path in (ready.path, ready.ready_path)] == [0o700, 0o600]


@root_only
@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(GATES, 2)))
def test_no_step_is_wider_than_before_and_after(
    cache: Cache, ready: View, monkeypatch: pytest.MonkeyPatch, before: Gate, after: Gate
) -> None:
    set_gate(cache, ready, before)
    seen: list[Gate | None] = []

    def watched(call: Callable[..., None]) -> Callable[..., None]:
        def made(*arguments: object) -> None:
            call(*arguments)
            with gates._opened(cache, ready) as fds:
                seen.extend(map(gates._read, fds))

        return made

    for name in ("setxattr", "fchown", "fchmod"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    set_gate(cache, ready, after)
    assert seen
    for step in seen:
        assert step is not None
        assert step.users <= before.users | after.users
        assert step.groups <= before.groups | after.groups


@root_only
def test_what_is_no_gate_is_not_known_and_is_closed_before_anything_else(cache: Cache, ready: View) -> None:
    for mode in (0o755, 0o770, 0o710, 0o000):
        ready.path.chmod(mode)
        assert gate_of(cache, ready) is None
        set_gate(cache, ready, CLOSED)
        assert gate_of(cache, ready) == CLOSED
    wider = AccessList(7, 0, 0, ((4001, 7),), (), 7)
    os.setxattr(ready.path, ATTRIBUTE, encode_acl(wider))
    assert gate_of(cache, ready) is None
    set_gate(cache, ready, Gate(USERS))
    assert gate_of(cache, ready) == Gate(USERS)
    ready.path.chmod(0o700)  # the mask closes the list: nobody on it gets in
    assert gate_of(cache, ready) is None
    set_gate(cache, ready, Gate(USERS))
    assert permissions(ready.path)[0] == 0o750


@root_only
def test_a_group_never_gets_what_another_had_by_hand(
    cache: Cache, ready: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready.path.chmod(0o770)
    give, before = os.fchown, []

    def watched(fd: int, user: int, group: int) -> None:
        before.append(stat.S_IMODE(os.fstat(fd).st_mode) & 0o077)
        give(fd, user, group)

    monkeypatch.setattr(os, "fchown", watched)
    set_gate(cache, ready, ONE_GROUP)
    assert before == [0, 0, 0]  # of the trial, the view and its receipt


def test_a_gate_that_is_there_costs_no_write(cache: Cache, ready: View, monkeypatch: pytest.MonkeyPatch) -> None:
    set_gate(cache, ready, Gate(USERS))

    def refuse(*_: object) -> None:
        raise AssertionError("nothing is to be written")

    for name in ("setxattr", "fchown", "fchmod"):
        monkeypatch.setattr(os, name, refuse)
    set_gate(cache, ready, Gate(USERS))


def test_a_planted_link_has_no_gate(cache: Cache, ready: View, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    ready.path.rename(tmp_path / "away")
    ready.path.symlink_to(victim)
    with pytest.raises(IntegrityError):
        set_gate(cache, ready, Gate(USERS))
    assert os.listxattr(victim) == []
    ready.path.unlink()
    with pytest.raises(NotFound):
        set_gate(cache, ready, Gate(USERS))


# what a file system or a user can not do


def no_lists(*_: object) -> NoReturn:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


@root_only
def test_without_access_lists_one_group_is_let_in_and_more_close_the_view(
    cache: Cache, ready: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "setxattr", no_lists)
    monkeypatch.setattr(os, "getxattr", no_lists)
    set_gate(cache, ready, ONE_GROUP)
    assert permissions(ready.path) == (0o750, 5001)
    for wanted in (Gate(groups=GROUPS), Gate(USERS), Gate(groups=frozenset({5001}), shut=frozenset({4001}))):
        set_gate(cache, ready, ONE_GROUP)
        with pytest.raises(UsageError, match="keeps no access lists"):
            set_gate(cache, ready, wanted)
        assert gate_of(cache, ready) == CLOSED


def test_a_file_system_that_only_seems_to_keep_lists_is_found_out(
    cache: Cache, ready: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that keeps attributes which its kernel side does not look at."""
    kept = b""

    def keep(_: int, __: str, value: bytes) -> None:
        nonlocal kept
        kept = value

    def stored(*_: object) -> bytes:
        if not kept:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        return kept

    monkeypatch.setattr(os, "setxattr", keep)
    monkeypatch.setattr(os, "getxattr", stored)
    with pytest.raises(UsageError, match="keeps no modes"):
        set_gate(cache, ready, Gate(USERS))
    assert permissions(ready.path)[0] == 0o700


def test_a_file_system_without_modes_is_refused(cache: Cache, ready: View, monkeypatch: pytest.MonkeyPatch) -> None:
    ready.path.chmod(0o755)
    monkeypatch.setattr(os, "fchmod", lambda *_: None)
    monkeypatch.setattr(os, "setxattr", no_lists)
    with pytest.raises(UsageError, match="keeps no modes"):
        set_gate(cache, ready, CLOSED)


def test_who_may_not_give_a_group_away_uses_a_list(cache: Cache, ready: View, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "fchown", refuse)
    set_gate(cache, ready, ONE_GROUP)
    assert gate_of(cache, ready) == ONE_GROUP
    assert permissions(ready.path)[1] != 5001


def test_an_unknown_number_is_told_and_closes(cache: Cache, ready: View, monkeypatch: pytest.MonkeyPatch) -> None:
    set_gate(cache, ready, Gate(USERS))

    def unknown(*_: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "setxattr", unknown)
    with pytest.raises(UsageError, match="not known to this machine"):
        set_gate(cache, ready, Gate(USERS, GROUPS))
    assert permissions(ready.path)[0] == 0o700


@pytest.mark.parametrize("error", [NoSpace("full"), OSError(errno.EIO, "input/output error")])
def test_a_disk_that_fails_leaves_nobody_in_who_may_read_no_more(
    cache: Cache, ready: View, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    set_gate(cache, ready, Gate(USERS))
    monkeypatch.setattr(gates, "try_gate", fail)
    more = Gate(USERS | {4009})
    with pytest.raises(DatasyncError):
        set_gate(cache, ready, more)
    assert gate_of(cache, ready) == Gate(USERS)  # nobody who is in may not
    with pytest.raises(DatasyncError):
        set_gate(cache, ready, Gate(frozenset({min(USERS)})))
    assert permissions(ready.path)[0] == 0o700
    assert permissions(ready.ready_path)[0] == 0o600


@root_only
def test_a_trial_on_a_small_disk_leaves_nothing(cache: Cache) -> None:
    for wanted in GATES:
        try_gate(cache, wanted)
    assert set(os.listdir(cache.path)) == {"objects", "views"}


@root_only
def test_a_real_file_system_without_access_lists(tmp_path: Path) -> None:
    """ramfs has modes and nothing else."""
    done = subprocess.run(["mount", "-t", "ramfs", "none", tmp_path], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a disk without access lists needs the right to mount one: {done.stderr.strip()}")
    try:
        with Cache.open(tmp_path / "cache") as cache:
            try_gate(cache, ONE_GROUP)
            with pytest.raises(UsageError, match="keeps no access lists"):
                try_gate(cache, Gate(USERS))
    finally:
        subprocess.run(["umount", tmp_path], check=True)
