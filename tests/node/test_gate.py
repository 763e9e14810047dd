"""Who may read a view on the node: real processes of other users try, before and after the policy changes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from datasync.cache.gate import Gate, set_gate
from datasync.cache.layout import Cache, View
from datasync.config import Flags, load_config
from datasync.errors import NoSpace
from datasync.service import gates, vouch, warm
from datasync.service.borrow import Lender
from datasync.service.readers import decide
from datasync.service.session import Session
from datasync.service.warmer import Keeper
from tests.node.conftest import Disk
from tests.node.datasets import fill, start_counted
from tests.support.machine import Machine, Ran
from tests.support.trees import KIB

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="acting as other users needs root")

ALICE, BOB, MALLORY, VISION, OTHERS = 4001, 4002, 4003, 5001, 5002
ACCOUNTS = {
    "alice@lab": f"uid:{ALICE}",
    "bob": f"{BOB}",
    "mallory": f"uid:{MALLORY}",
    "group:vision": f"gid:{VISION}",
}
PEOPLE = """
[users.olga]
identities = ["{olga}"]
[users."alice@lab"]
[users.bob]
groups = ["vision"]
[users.carol]
groups = ["vision"]
[users.mallory]
[datasets.data]
{attributes}
[[grant]]
id = "olga-owns"
to = ["olga"]
role = "owner"
"""
ALICE_READS = """
[[grant]]
id = "alice-reads"
to = ["alice@lab"]
on = ["data"]
role = "reader"
"""
VISION_READS = """
[[grant]]
id = "vision-reads"
to = ["group:vision"]
on = ["data"]
role = "reader"
"""


def run_as(user: int, groups: tuple[int, ...], *command: str | Path) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*map(str, command)],
        user=user,
        group=user,
        extra_groups=groups,
        cwd="/",
        capture_output=True,
        check=False,
    )


class Node:
    """A machine with one pushed dataset, whose files everybody may read, and its policy directory."""

    def __init__(self, machine: Machine, scratch: Path) -> None:
        scratch.chmod(0o711)
        self.machine, self.scratch, self.source = machine, scratch, fill(scratch / "data", 12, 4 * KIB)
        for path in self.source.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        machine.must("push", self.source)

    @property
    def cache(self) -> Path:
        return self.scratch / "cache"

    def settings(self, group: str = "", accounts: dict[str, str] | None = None) -> None:
        path = self.machine.home / ".config/datasync/config.toml"
        lines = ["[cache]", f'group = "{group}"' if group else "", "[cache.accounts]"]
        lines += [f'"{name}" = "{text}"' for name, text in (ACCOUNTS if accounts is None else accounts).items()]
        path.write_text("\n".join(lines))

    def policy(self, more: str, attributes: str = "") -> Path:
        place = self.scratch / "site"
        place.mkdir(exist_ok=True)
        olga = self.machine.must("key", "show", "--json").result["signer"]
        text = PEOPLE.format(olga=olga, attributes=attributes) + more
        (place / "policy.toml").write_text(text)
        return place

    def at_site(self) -> None:
        """Put the policy directory in force here."""
        self.machine = replace(
            self.machine, extra={**self.machine.extra, "DATASYNC_POLICY_DIR": str(self.scratch / "site")}
        )

    def warm(self, *more: str) -> Path:
        return Path(self.machine.must("warm", "data", "--json", *more).result["path"])

    def events(self) -> list[dict[str, Any]]:
        found = map(
            json.loads, self.machine.must("audit", "query", "--action", "cache.gate", "--json").out.splitlines()
        )
        return [item for item in found if item["type"] == "event"]


@pytest.fixture
def node(machine: Machine, scratch: Path) -> Node:
    return Node(machine, scratch)


def can_read(view: Path, user: int, *groups: int) -> bool:
    """Tell whether a process of that user lists the view, and opens a file and the receipt by their full paths."""
    paths = {
        "list": ("ls", view),
        "open": ("cat", view / "class-0/00000"),
        "pass": ("test", "-e", view / "class-0"),
        "receipt": ("cat", f"{view}.READY.json"),
    }
    done = {name: run_as(user, groups, *command).returncode == 0 for name, command in paths.items()}
    assert len(set(done.values())) == 1, done  # all or nothing
    return done["open"]


# no policy


def test_without_a_word_the_owner_alone_reads(node: Node) -> None:
    view = node.warm()
    assert not can_read(view, ALICE, VISION)
    assert not can_read(view, ALICE, 0)  # the owner's own group
    assert node.events() == []


@pytest.mark.parametrize("how", ["flag", "setting", "variable"])
def test_a_group_is_let_in_and_no_other(node: Node, how: str) -> None:
    if how == "setting":
        node.settings(group=str(VISION), accounts={})
    if how == "variable":
        node.machine = replace(node.machine, extra={**node.machine.extra, "DATASYNC_CACHE_GROUP": f"gid:{VISION}"})
    view = node.warm(*(["--group", str(VISION)] if how == "flag" else []))
    assert view.stat().st_mode & 0o777 == 0o750
    assert can_read(view, BOB, VISION)
    assert not can_read(view, BOB, OTHERS)
    node.machine.must("ready", "data")
    node.machine.must("ready", "data", "--deep")
    assert can_read(view, BOB, VISION)  # looking takes nothing away
    if how == "flag":
        node.warm()
        assert not can_read(view, BOB, VISION)  # the last warm says who reads


def test_a_group_that_is_not_there_is_refused_before_anything_is_fetched(node: Node) -> None:
    ran = node.machine.run("warm", "data", "--group", "no-such-group")
    assert ran.code == 2
    assert "no-such-group" in ran.message
    assert list(node.cache.glob("views/*/*")) == []


def test_accounts_without_a_policy_give_nobody_anything(node: Node) -> None:
    node.settings()
    assert not can_read(node.warm(), ALICE, VISION)


# with a policy


def test_the_policy_lets_in_who_may_read_and_nobody_else(node: Node) -> None:
    node.settings(group=str(OTHERS))
    node.policy(ALICE_READS + VISION_READS)
    node.at_site()
    ran = node.machine.run("warm", "data", "--json", "--group", str(OTHERS))
    assert "says who reads" in ran.message  # the group does not count any more
    assert node.machine.must("warm", "data", "--quiet").err == ""
    view = Path(ran.result["path"])
    assert can_read(view, ALICE)
    assert can_read(view, BOB)
    assert can_read(view, 4999, VISION)  # whoever is in the local group
    assert not can_read(view, MALLORY)
    assert not can_read(view, MALLORY, VISION)  # mapped, not allowed: by no group either
    assert not can_read(view, 4999, OTHERS)
    assert not can_read(view, 4999, 0)


def test_a_group_is_let_in_only_when_all_of_it_may(node: Node) -> None:
    node.settings()
    node.policy(VISION_READS + '[[deny]]\nid = "not-carol"\nto = ["carol"]\non = ["data"]\nactions = ["ReadData"]\n')
    node.at_site()
    view = node.warm()
    assert can_read(view, BOB)
    assert not can_read(view, 4999, VISION)


def test_a_group_whose_group_may_read_is_let_in_and_an_empty_one_is_not(node: Node) -> None:
    node.settings(accounts={"group:lab": f"gid:{VISION}", "group:empty": f"gid:{OTHERS}"})
    lab = '[groups.vision]\ngroups = ["lab"]\n[groups.lab]\n[groups.empty]\n'
    everybody = '[[grant]]\nid = "all"\nto = ["*"]\non = ["data"]\nrole = "reader"\n'
    node.policy(lab + everybody)
    node.at_site()
    view = node.warm()
    assert can_read(view, 4999, VISION)
    assert not can_read(view, 4999, OTHERS)


def test_purpose_and_second_factor_of_others_are_not_known_here(node: Node) -> None:
    node.settings()
    node.policy(ALICE_READS.replace('role = "reader"', 'role = "reader"\nmfa = true') + VISION_READS)
    node.at_site()
    view = node.warm()
    assert not can_read(view, ALICE)
    assert can_read(view, BOB)


def _by_warm(node: Node) -> Ran:
    return node.machine.must("warm", "data")


def _by_ready(node: Node) -> Ran:
    return node.machine.must("ready", "data@1")


def _by_run(node: Node) -> Ran:
    return node.machine.must("run", "--data", "data", "--", "true")


@pytest.mark.parametrize("look", [_by_warm, _by_ready, _by_run])
def test_who_is_removed_is_shut_out_at_the_next_look(node: Node, look: Callable[[Node], Ran]) -> None:
    node.settings()
    node.policy(ALICE_READS + VISION_READS)
    node.at_site()
    view = node.warm()
    assert can_read(view, ALICE)
    node.policy(VISION_READS)
    look(node)
    assert not can_read(view, ALICE)
    assert not can_read(view, ALICE, VISION)
    assert can_read(view, BOB)
    node.policy("")
    look(node)
    assert not can_read(view, BOB, VISION)
    assert view.stat().st_mode & 0o777 == 0o700


def test_ready_takes_away_and_never_gives(node: Node) -> None:
    node.settings()
    node.policy("")
    node.at_site()
    view = node.warm()
    node.policy(ALICE_READS)
    node.machine.must("ready", "data")
    assert not can_read(view, ALICE)
    node.machine.must("ready", "data", "--deep")  # asks the repository, so it decides in full
    assert can_read(view, ALICE)
    node.settings(accounts={})
    node.machine.must("ready", "data")
    assert not can_read(view, ALICE)


def test_the_datasets_own_policy_counts_for_all_its_views(node: Node) -> None:
    node.settings()
    node.machine.must("policy", "apply", "data", node.policy(ALICE_READS))
    first = node.warm()
    node.machine.must("push", fill(node.scratch / "more/data", 3, KIB).parent / "data", "--source-change")
    second = node.warm()
    assert first != second
    assert can_read(first, ALICE)
    assert can_read(second, ALICE)
    node.machine.must("policy", "apply", "data", node.policy(VISION_READS))
    node.warm()
    assert not can_read(first, ALICE)
    assert not can_read(second, ALICE)
    assert can_read(first, BOB)


def test_where_both_policies_are_both_have_to_allow(node: Node) -> None:
    node.settings()
    node.machine.must("policy", "apply", "data", node.policy(ALICE_READS + VISION_READS))
    node.policy(ALICE_READS)
    node.at_site()
    view = node.warm()
    assert can_read(view, ALICE)
    assert not can_read(view, BOB, VISION)


def test_a_warm_that_is_denied_shuts_others_out_all_the_same(node: Node) -> None:
    node.settings()
    node.policy(ALICE_READS)
    node.at_site()
    view = node.warm()
    site = node.policy("")
    (site / "policy.toml").write_text((site / "policy.toml").read_text().replace('role = "owner"', 'role = "auditor"'))
    assert node.machine.run("warm", "data").code == 6
    assert not can_read(view, ALICE)


def test_a_policy_that_does_not_load_lets_nobody_in(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.settings()
    node.policy(ALICE_READS)
    node.at_site()
    view = node.warm()
    monkeypatch.setattr("datasync.service.site_policy._SITES", {})  # as in a new process
    (node.scratch / "site/policy.toml").write_text("no policy")
    assert node.machine.run("warm", "data").code == 6
    assert not can_read(view, ALICE)


def test_the_daemons_look_renews_the_gate(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.settings()
    node.policy(ALICE_READS)
    node.at_site()
    view = node.warm()
    node.policy(VISION_READS)
    for name, value in node.machine.environment().items():
        monkeypatch.setenv(name, value)
    config = load_config(Flags())
    keeper = Keeper(config, "data", (), Lender(config), lambda _: None)
    try:
        assert keeper.step(lambda _: None).fetched_bytes is None
    finally:
        keeper.close()
    assert not can_read(view, ALICE)
    assert can_read(view, BOB)


def test_an_account_that_is_gone_is_named_and_left_out(node: Node) -> None:
    node.settings(accounts={**ACCOUNTS, "carol": "no-such-user"})
    node.policy(ALICE_READS + VISION_READS)
    node.at_site()
    ran = node.machine.must("warm", "data", "--json")
    assert [line for line in ran.err.splitlines() if "no-such-user" in line] == ran.err.splitlines()
    assert len(ran.err.splitlines()) == 1
    assert can_read(Path(ran.result["path"]), ALICE)


@pytest.mark.parametrize("text", ["", "gid:", "sid:7", "uid:4294967295"])
def test_an_account_of_another_form_is_refused(node: Node, text: str) -> None:
    node.settings(accounts={"alice@lab": text})
    node.policy(ALICE_READS)
    node.at_site()
    ran = node.machine.run("warm", "data")
    assert ran.code == 2
    assert "cache.accounts: alice@lab" in ran.message


# what readers can do, and where


def test_a_hostile_member_can_not_write_rename_or_go_round(node: Node) -> None:
    """The files, their objects and whatever else the cache has."""
    view = node.warm("--group", str(VISION))
    digest = next(path for path in (node.cache / "objects").rglob("*") if len(path.name) == 64)
    tries: list[tuple[str | Path, ...]] = [
        ("sh", "-c", f"echo x > {view}/class-0/00000"),
        ("sh", "-c", f"echo x > {view}/new"),
        ("mv", view / "class-0/00000", view / "class-0/other"),
        ("mv", view, f"{view}-mine"),
        ("rm", "-f", view / "class-0/00000"),
        ("rm", "-f", f"{view}.READY.json"),
        ("chmod", "0777", view),
        ("chgrp", str(OTHERS), view),
        ("ln", "-s", "/etc", view / "link"),
        ("touch", view / "class-0/00000"),
        ("ls", node.cache / "objects"),
        ("cat", digest),
        ("ls", node.cache / "views"),
        ("ln", digest, f"/tmp/{digest.name}"),
    ]
    for command in tries:
        assert run_as(MALLORY, (VISION,), *command).returncode != 0, command
    node.machine.must("ready", "data", "--deep")
    assert can_read(view, MALLORY, VISION)


def test_a_private_copy_is_the_jobs_alone(node: Node) -> None:
    node.settings(group=str(VISION), accounts={})
    code = "import os, sys; print(os.environ['DATASYNC_DATASET_DATA'], flush=True); sys.stdin.read()"
    (node.cache / "copies").mkdir(parents=True, mode=0o755)
    node.cache.chmod(0o755)
    job = node.machine.start(
        "run", "--data", "data", "--link", "copy", "--", sys.executable, "-c", code, stdin=subprocess.PIPE
    )
    try:
        assert job.stdout is not None
        copy = Path(job.stdout.readline().strip())
        assert (copy / "class-0/00000").stat().st_size == 4 * KIB
        for path in (copy, copy / "class-0/00000", copy.parent):
            assert run_as(BOB, (VISION,), "test", "-r", path).returncode != 0
            assert run_as(BOB, (VISION,), "cat", path).returncode != 0
        assert can_read(node.warm(), BOB, VISION)  # the view itself is open
    finally:
        job.communicate("")
    assert job.returncode == 0


def test_nothing_is_open_before_the_view_is_whole(node: Node, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while it fetches, and stopped between the view's name and its gate."""
    log = scratch / "log"
    child = start_counted(node.machine, log, 1.0, "warm", "data", "--group", str(VISION))
    deadline = time.monotonic() + 60
    while not log.exists() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    child.kill()
    child.communicate()
    staging = next(node.cache.glob("views/data/.staging-*"))
    assert run_as(BOB, (VISION,), "ls", staging).returncode != 0

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(warm, "renew", stop)
    assert node.machine.run("warm", "data", "--group", str(VISION)).code == 130
    monkeypatch.undo()
    receipt = next(node.cache.glob("views/data/*.READY.json"))
    view = receipt.with_name(receipt.name.removesuffix(".READY.json"))
    assert not can_read(view, BOB, VISION)
    node.warm("--group", str(VISION))
    assert can_read(view, BOB, VISION)


def test_a_view_that_goes_is_closed_first(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would renew the gate of what a killed removal leaves."""
    view = node.warm("--group", str(VISION))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("datasync.cache.beneath.empty_directory", stop)
    assert node.machine.run("cache", "evict", "data").code == 130
    monkeypatch.undo()
    left = view.with_name(f".staging-{view.name}")
    assert left.is_dir()
    assert run_as(BOB, (VISION,), "ls", left).returncode != 0


def test_what_another_machine_let_in_is_closed_before_it_is_looked_at(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = node.warm("--group", str(VISION))
    other = node.machine.sibling(node.scratch / "other")
    seen: list[bool] = []
    check = vouch.sign_after_check

    def watched(*arguments: Any) -> bool:
        seen.append(can_read(view, BOB, VISION))
        return check(*arguments)

    monkeypatch.setattr(warm, "sign_after_check", watched)
    assert other.must("warm", "data", "--json").result["fetched_bytes"] == 0
    assert seen == [False]
    assert not can_read(view, BOB, VISION)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_no_umask_and_no_set_group_id_changes_the_gate(node: Node, umask: int) -> None:
    node.cache.mkdir()
    os.chown(node.cache, 0, OTHERS)
    node.cache.chmod(0o2755)
    before = os.umask(umask)
    try:
        closed = node.warm()
        assert closed.stat().st_mode & 0o7777 == 0o700
        assert not can_read(closed, BOB, OTHERS)
        view = node.warm("--group", str(VISION))
    finally:
        os.umask(before)
    assert view.stat().st_mode & 0o7777 == 0o750
    assert can_read(view, BOB, VISION)
    assert not can_read(view, BOB, OTHERS)


def test_a_disk_that_became_read_only_does_not_hide_that_a_reader_stays(node: Node, disk: Disk) -> None:
    place = disk("40m")
    node.machine = replace(node.machine, extra={"DATASYNC_CACHE": str(place / "cache")})
    node.warm("--group", str(VISION))
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    try:
        ran = node.machine.spawn("warm", "data")
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(place)], check=True)
    assert ran.code == 6
    assert "who may read" in ran.err
    assert not can_read(node.warm(), BOB, VISION)


def _two_views(node: Node) -> list[Path]:
    """Return two views of the dataset that alice reads; then she may no more."""
    node.settings()
    node.policy(ALICE_READS)
    node.at_site()
    first = node.warm()
    node.machine.must("push", fill(node.scratch / "more/data", 3, KIB).parent / "data", "--source-change")
    views = [first, node.warm()]
    assert all(can_read(view, ALICE) for view in views)
    node.policy("")
    return views


def test_a_damaged_receipt_closes_its_view(node: Node) -> None:
    views = _two_views(node)
    receipt = Path(f"{views[0]}.READY.json")
    receipt.write_bytes(receipt.read_bytes()[:40])
    ran = node.machine.must("warm", "data")
    assert str(receipt) in ran.err
    assert not any(can_read(view, ALICE) for view in views)


def test_a_view_that_can_not_be_closed_does_not_keep_others_open(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    views = _two_views(node)
    stuck: list[str] = []

    def once(cache: Cache, view: View, gate: Gate) -> None:
        if not stuck or stuck == [str(view.path)]:
            stuck[:] = [str(view.path)]
            raise NoSpace(f"{view.path}: full")
        set_gate(cache, view, gate)

    monkeypatch.setattr(gates, "set_gate", once)
    assert node.machine.run("warm", "data").code == 8
    assert [str(view) for view in views if can_read(view, ALICE)] == stuck


# told and recorded


def test_every_change_is_recorded_and_shown(node: Node) -> None:
    node.settings()
    node.policy(ALICE_READS + VISION_READS)
    node.at_site()
    view = node.warm()
    node.warm()
    opened = node.events()
    assert [item["outcome"] for item in opened] == ["intent", "success"]  # the intent is durable before it opens
    assert opened[-1]["detail"]["readers"] == f"uid:{ALICE} uid:{BOB} gid:{VISION}"
    assert opened[-1]["decided_by"] == ["site:alice-reads", "site:vision-reads"]
    assert len(opened[-1]["policy"]) == 64
    told = node.machine.must("cache", "access", "data", "--json").out.splitlines()
    assert json.loads(told[0])["readers"] == [
        {"account": f"uid:{ALICE}", "principals": ["alice@lab"]},
        {"account": f"uid:{BOB}", "principals": ["bob"]},
        {"account": f"gid:{VISION}", "principals": ["group:vision"]},
    ]
    listed = json.loads(node.machine.must("cache", "ls", "--json").out.splitlines()[0])
    assert listed["readers"] == [f"uid:{ALICE}", f"uid:{BOB}", f"gid:{VISION}"]
    assert f"read by uid:{ALICE}" in node.machine.must("cache", "ls").out
    node.policy("")
    node.warm()
    closed = node.events()[2:]
    assert [(item["outcome"], item["detail"]["readers"]) for item in closed] == [("success", "")]
    view.chmod(0o755)
    assert json.loads(node.machine.must("cache", "ls", "--json").out.splitlines()[0])["readers"] == ["unknown"]


def test_a_directory_in_the_readers_way_is_named(node: Node) -> None:
    node.warm("--group", str(VISION))
    node.scratch.chmod(0o700)
    try:
        ran = node.machine.must("cache", "access", "data")
    finally:
        node.scratch.chmod(0o711)
    assert str(node.scratch) in ran.message
    assert node.machine.must("cache", "access", "data").err == ""


def test_the_gate_costs_as_many_calls_for_many_files_as_for_few(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for files in (0, 200):
        if files:
            node.machine.must("push", fill(node.scratch / "many/data", files, 10).parent / "data", "--source-change")
            node.machine.must("cache", "evict", "data")
        counts.append(_calls_of_renew(node, monkeypatch))
    assert counts[0] == counts[1]
    assert 0 < counts[0] < 60


def _calls_of_renew(node: Node, monkeypatch: pytest.MonkeyPatch) -> int:
    """Warm twice, and return how many calls to the system the second renewal made, which changes nothing."""
    node.warm("--group", str(VISION))
    count, renew = 0, gates.renew

    def note(_: FrameType, event: str, called: Any) -> None:
        nonlocal count
        system = getattr(called, "__module__", "") == "posix" and called.__name__ != "fspath"
        count += event == "c_call" and system

    def counted(*arguments: Any) -> None:
        sys.setprofile(note)
        try:
            renew(*arguments)
        finally:
            sys.setprofile(None)

    with monkeypatch.context() as patch:
        patch.setattr(warm, "renew", counted)
        node.warm("--group", str(VISION))
    return count


def test_the_daemons_own_settings_say_who_reads(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    class Daemon:
        name = "the daemon"

    monkeypatch.setattr("datasync.service.hook.daemon_for", lambda _: Daemon())
    ran = node.machine.run("warm", "data", "--group", str(VISION))
    assert ran.code == 2
    assert "--daemon off" in ran.message


def test_a_view_of_nobodys_receipt_is_not_opened(node: Node) -> None:
    """Another view of the dataset that this node did not sign is closed when the gate is renewed."""
    node.settings()
    node.policy(ALICE_READS)
    node.at_site()
    first = node.warm()
    node.machine.must("push", fill(node.scratch / "more/data", 3, KIB).parent / "data", "--source-change")
    other = node.machine.sibling(node.scratch / "other")
    second = Path(other.must("warm", "data", "--json").result["path"])
    environment = other.environment()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        config = replace(load_config(Flags()), accounts=ACCOUNTS)
        session = Session(config)
        with Cache.open(node.cache) as cache:
            dataset = session.repository.open("data")
            gates.renew(session, [cache], dataset, decide(session, dataset, fresh=True))
        session.close()
    assert not can_read(first, ALICE)  # signed by the first machine's key
    assert can_read(second, ALICE)
