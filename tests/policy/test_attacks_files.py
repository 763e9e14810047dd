"""Attacks on policies in use: files that change while they are read, and clocks."""

import os
import threading
from pathlib import Path

import pytest

from datasync.config import Flags, load_config
from datasync.errors import NotAuthorized, UsageError
from datasync.policy.model import Evidence, Request, parse_principal
from datasync.policy.shipped import shipped
from datasync.service import site_policy
from datasync.service.policy_files import digest_of, engine_of, read_directory
from datasync.service.policy_force import FAR_MS, decision_time
from datasync.service.site_policy import SitePolicy
from tests.policy.site import READS, Site, signer

WARM = Request(parse_principal("rita"), "Warm", "scans", Evidence(1))
STOP = '[[deny]]\nid = "stop"\nactions = ["Warm"]\n'


# files that change


def test_a_file_that_is_exchanged_with_its_size_and_times_kept_is_seen(site: Site) -> None:
    policy = SitePolicy(site.write(READS + STOP, name="site"))
    assert not policy.current().engine.decide(WARM).allow
    path = site.folder / "site" / "policy.toml"
    before, text = path.stat(), path.read_text()
    path.write_text(text.replace('["Warm"]', '["Tags"]').replace('["Tags"]', '["Tag"] '))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert policy.current().engine.decide(WARM).allow


def test_two_files_are_never_a_mixture_of_two_versions(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The grant moves from one file to the other; between the two reads everything is exchanged."""
    directory = site.write(READS, name="site")
    extra, text = directory / "extra.cedar", (directory / "policy.toml").read_text()
    extra.write_text('@id("stop") forbid (principal, action == Action::"Warm", resource);')
    policy, reads = SitePolicy(directory), list[str]()
    real = read_directory

    def read(path: Path) -> dict[str, str]:
        found = real(path)
        if not reads:  # the first reader: what it holds is old in part
            extra.write_text("")
            (directory / "policy.toml").write_text(text.replace(READS, ""))
            found["extra.cedar"] = ""
        reads.append(found["policy.toml"])
        return found

    monkeypatch.setattr(site_policy, "read_directory", read)
    assert not policy.current().engine.decide(WARM).allow
    assert len(reads) == 2


def test_files_that_never_stand_still_keep_the_old_policy(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = site.write(READS, name="site")
    policy = SitePolicy(directory)
    before = policy.current()
    number = iter(range(1_000))
    monkeypatch.setattr(SitePolicy, "_state", lambda _: next(number))
    (directory / "policy.toml").write_text((directory / "policy.toml").read_text() + STOP)
    kept = policy.current()
    assert kept.engine is before.engine
    assert "changed" in kept.warning
    monkeypatch.undo()
    assert not policy.current().engine.decide(WARM).allow


def test_many_threads_see_the_old_policy_or_the_new_one_and_nothing_between(site: Site) -> None:
    directory = site.write(READS, name="site")
    policy, text = SitePolicy(directory), (directory / "policy.toml").read_text()
    digests = {policy.current().engine.digest}
    aside = directory / "aside"
    aside.write_text(text + STOP)
    digests.add(engine_of({"policy.toml": text + STOP}).digest)
    seen, failed = set[str](), list[BaseException]()

    def look() -> None:
        try:
            seen.update(policy.current().engine.digest for _ in range(200))
        except BaseException as error:  # noqa: BLE001 (a thread's failure is the test's)
            failed.append(error)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    os.replace(aside, directory / "policy.toml")
    for thread in threads:
        thread.join()
    assert not failed
    assert seen <= digests
    assert not policy.current().engine.decide(WARM).allow


def test_a_file_that_goes_or_is_no_file_is_a_broken_policy(site: Site) -> None:
    directory = site.write(READS, name="site", extra='@id("x") forbid (principal, action, resource);')
    policy = SitePolicy(directory)
    assert not policy.current().engine.decide(WARM).allow
    (directory / "extra.cedar").unlink()
    os.mkfifo(directory / "extra.cedar")
    kept = policy.current()
    assert "expected a file" in kept.warning
    assert not kept.engine.decide(WARM).allow
    (directory / "extra.cedar").unlink()
    (directory / "extra.cedar").symlink_to(directory / "nowhere")
    assert "can not be read" in policy.current().warning
    (directory / "extra.cedar").unlink()
    (directory / "policy.toml").unlink()
    assert "found none" in policy.current().warning
    assert not policy.current().engine.decide(WARM).allow


def test_a_directory_of_very_many_files_is_refused_before_they_are_read(tmp_path: Path) -> None:
    for number in range(70):
        (tmp_path / f"{number}.cedar").symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="at most 64 files, found 70"):
        read_directory(tmp_path)


@pytest.mark.parametrize("name", ["guards.cedar", "roles.toml"])
def test_a_file_of_a_directory_never_takes_the_place_of_what_is_built_in(site: Site, name: str) -> None:
    directory = site.write(attributes="frozen = true")
    (directory / name).write_text("")
    site.olga.refused(2, "policy", "check", directory, words="built in")
    site.olga.refused(2, "policy", "apply", "scans", directory, words="built in")
    (directory / name).write_text(shipped(name))
    site.olga.must("policy", "apply", "scans", directory)


@pytest.mark.parametrize("identity", ["dss1x", "DSS1", "olga", "", "signer "])
def test_an_identity_that_nobody_can_have_is_found_at_load(site: Site, identity: str) -> None:
    given = identity.replace("signer", signer(site.rita))
    with pytest.raises(UsageError, match="olga: expected a signer"):
        engine_of({"policy.toml": f'[users.olga]\nidentities = ["{given}"]\n'})


# clocks


@pytest.mark.parametrize("text", ["-5", "tomorrow", str(FAR_MS), "9" * 32, "\u0663\u0663", "1e9", "\xff"])
def test_a_clock_file_with_anything_else_in_it_denies(site: Site, text: str) -> None:
    config = load_config(Flags(), site.rita.machine.environment())
    (config.evidence.parent / "decided").write_text(text)
    with pytest.raises(NotAuthorized, match="remove it"):
        decision_time(config, 0)


def test_a_time_that_can_not_be_kept_denies(site: Site) -> None:
    config = load_config(Flags(), site.rita.machine.environment())
    (config.evidence.parent / "decided").unlink(missing_ok=True)
    (config.evidence.parent / "decided").mkdir()
    with pytest.raises(NotAuthorized, match="can not be kept"):
        decision_time(config, 0)


# digests


def test_no_two_policies_have_one_digest() -> None:
    bundles: list[dict[str, str]] = [
        {"policy.toml": "[users.a]", "a.cedar": "", "b.cedar": "//x"},
        {"policy.toml": "[users.a]", "a.cedar": "//x", "b.cedar": ""},
        {"policy.toml": "[users.a]", "a.cedar": "//x"},
        {"policy.toml": "[users.a]", "a.cedarb.cedar": "//x"},
        {"policy.toml": "[users.a]a.cedar", "b.cedar": "//x"},
        {"policy.toml": "[users.a]", "a.cedar": "//x\n"},
        {"policy.toml": "[users.a]", "A.cedar": "//x"},
    ]
    assert len({digest_of(files) for files in bundles}) == len(bundles)
