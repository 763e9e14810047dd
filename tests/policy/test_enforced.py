"""A policy in force decides what commands do, denials are recorded, and nothing that fails lets anybody through."""

import calendar
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from datasync.config import Flags, load_config
from datasync.errors import NotAuthorized
from datasync.policy.model import Evidence, Request, parse_principal
from datasync.service.policy_force import decision_time
from datasync.service.site_policy import SitePolicy
from tests.policy.site import READS, Site, node_signer, signer, with_grant, with_setting
from tests.support.people import Person

DAY = 24 * 3600 * 1000


def test_with_no_policy_the_keys_decide(site: Site) -> None:
    site.rita.must("pull", "scans", site.target())
    event = site.events(site.rita, "pull")[-1]
    assert "policy" not in event
    assert "decided_by" not in event


def test_a_published_policy_denies_what_the_keys_would_allow(site: Site) -> None:
    digest = site.publish()["policy"]
    for line in (
        ("pull", "scans", site.target()),
        ("warm", "scans"),
        ("plan", "scans"),
        ("plan", "scans", "--target", site.target()),
        ("ls", "scans"),
        ("log", "scans"),
        ("du", "scans"),
    ):
        site.rita.refused(6, *line, words="no policy permits it")
    site.rita.refused(6, "verify", "scans", words="may not ReadMetadata")
    assert site.rita.must("ls")["entries"] == 0
    event = site.events(site.rita, "pull")[-1]
    assert (event["outcome"], event["policy"]) == ("denied", digest)
    site.olga.must("pull", "scans", site.target())
    event = site.events(site.olga, "pull")[-1]
    assert (event["outcome"], event["policy"], event["decided_by"]) == ("success", digest, ["scans:olga-owns"])


def test_a_grant_lets_rita_read_and_no_more(site: Site) -> None:
    site.publish(READS)
    site.rita.must("pull", "scans", site.target())
    assert site.rita.must("ls")["entries"] == 1
    site.rita.refused(6, "tag", "scans", "mine")
    site.olga.must("tag", "scans", "mine")


def test_a_newer_policy_is_in_force_at_once_and_an_older_one_never_again(site: Site) -> None:
    site.publish(READS)
    site.rita.must("pull", "scans", site.target())
    assert site.publish()["number"] == 2
    site.rita.refused(6, "pull", "scans", site.target())
    newest = next(item.name for item in site.store.list("") if "/policy/" in item.name)
    site.store.delete(newest)
    site.rita.refused(7, "pull", "scans", site.target(), words="rolled back")


def test_a_frozen_dataset_takes_no_snapshot_from_its_owner(site: Site) -> None:
    site.publish(attributes="frozen = true")
    site.olga.must("status")
    (site.tree / "more").write_bytes(b"more")
    site.olga.refused(6, "push", site.tree, "--dataset", "scans", words="the dataset is frozen")
    assert site.events(site.olga, "push")[-1]["decided_by"] == ["scans:guard-frozen"]


def test_residency_is_decided_by_the_nodes_key(site: Site, person: Callable[..., Person]) -> None:
    nodes = f'[nodes.fra]\nidentities = ["{node_signer(site.rita)}"]\nregion = "{{region}}"\n'
    restricted = 'allowed_regions = ["eu-central"]'
    site.publish(nodes.format(region="eu-central") + READS, restricted)
    site.rita.must("pull", "scans", site.target())
    site.publish(nodes.format(region="us-east") + READS, restricted)
    site.rita.refused(6, "pull", "scans", site.target(), words="in region eu-central")
    site.publish(READS, restricted)
    site.rita.refused(6, "pull", "scans", site.target(), words="not in a region")


def test_a_time_boxed_grant_ends_and_a_clock_that_is_set_back_does_not_renew_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = int(time.time())
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started + 3600))
    site.publish(READS.replace('role = "reader"', f'role = "reader"\nuntil = {ends}'))
    site.rita.must("pull", "scans", site.target())
    moment = calendar.timegm(time.strptime(ends, "%Y-%m-%dT%H:%M:%SZ"))
    _set_clock(monkeypatch, moment - 0.001)
    site.rita.must("pull", "scans", site.target())
    _set_clock(monkeypatch, moment)
    site.rita.refused(6, "pull", "scans", site.target(), words=f"before {ends[:-1]}")
    _set_clock(monkeypatch, moment - 86_400)
    site.rita.refused(6, "pull", "scans", site.target(), words=f"before {ends[:-1]}")


def _set_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr("datasync.service.policy_force.time.time", lambda: seconds)


def test_the_time_of_a_decision_never_goes_back(site: Site) -> None:
    config = load_config(Flags(), site.rita.machine.environment())
    assert decision_time(config, 0, lambda: 1000.0) >= 1_000_000
    first = decision_time(config, 0, lambda: 4e9)
    assert first == 4_000_000_000_000
    assert decision_time(config, 0, lambda: 4e9 - 86_400) == first
    assert decision_time(config, first + 5, lambda: 1.0) == first + 5
    (config.evidence.parent / "decided").write_text("tomorrow")
    with pytest.raises(NotAuthorized, match="remove it"):
        decision_time(config, 0)


# publishing


def test_only_an_owner_publishes_and_a_policy_locks_no_owner_out(site: Site, person: Callable[..., Person]) -> None:
    directory = site.write(READS)
    site.rita.refused(6, "policy", "apply", "scans", directory, words="does not own")
    text = (directory / "policy.toml").read_text()
    (directory / "policy.toml").write_text(text.replace('role = "owner"', 'role = "reader"'))
    site.olga.refused(2, "policy", "apply", "scans", directory, words="nobody could replace it")
    (directory / "policy.toml").write_text(text.replace(signer(site.olga), signer(person("else"))))
    site.olga.refused(2, "policy", "apply", "scans", directory, words="nobody could replace it")
    for condition in ("mfa = true", "attested = true", "until = 2099-01-01", 'networks = ["10.0.0.0/8"]'):
        lasting = text.replace('role = "owner"', f'role = "owner"\n{condition}')
        (directory / "policy.toml").write_text(lasting)
        site.olga.refused(2, "policy", "apply", "scans", directory, words="nobody could replace it")


def test_a_policy_that_does_not_load_or_fails_its_tables_is_not_published(site: Site) -> None:
    directory = site.write(
        READS, misspelt='@id("x") permit (principal, action, resource) when { context.regoin == "" };'
    )
    site.olga.refused(2, "policy", "apply", "scans", directory, words="regoin")
    (directory / "misspelt.cedar").unlink()
    table = directory / "a.table.toml"
    table.write_text('at = 2026-01-01\nrows = [["rita", "Tag", "scans", "allow", "rita-reads"]]')
    site.olga.refused(2, "policy", "apply", "scans", directory, words="row 1: rita Tag scans")
    table.write_text('at = 2026-01-01\nrows = [["rita", "Tag", "scans", "deny", ""]]')
    site.olga.must("policy", "apply", "scans", directory)
    shown = site.rita.must("policy", "show", "scans")
    assert shown["you"] == "rita"
    assert shown["files"]["a.table.toml"] == table.read_text()


def test_two_owners_have_to_sign_where_the_trust_root_asks_for_two(
    site: Site, person: Callable[..., Person], tmp_path: Path
) -> None:
    omar: Person = person("omar")
    site.olga.grant("scans", omar, "owner")
    proposal = tmp_path / "threshold.json"
    site.olga.must("key", "owners", "scans", "--threshold", "2", "--output", proposal)
    if proposal.exists():
        omar.must("key", "cosign", "scans", proposal)
    directory, signed = site.write(READS), tmp_path / "policy.json"
    done = site.olga.must("policy", "apply", "scans", directory, "--output", signed)
    assert done["missing"] == 1
    assert site.rita.run("ls", "scans").code == 0  # not in force yet
    changed = tmp_path / "changed.json"
    changed.write_text(signed.read_text().replace(done_dataset(signed), "0" * 64))
    omar.refused(7, "policy", "cosign", "scans", changed)
    assert omar.must("policy", "cosign", "scans", signed)["missing"] == 0
    site.rita.must("policy", "show", "scans")
    omar.refused(6, "ls", "scans", words="no policy permits it")


def done_dataset(path: Path) -> str:
    """Return the dataset id in a proposal."""
    return str(json.loads(path.read_text())["dataset"])


def test_a_policy_outlives_the_owner_who_made_it(site: Site, person: Callable[..., Person]) -> None:
    omar: Person = person("omar")
    site.olga.grant("scans", omar, "owner")
    directory = site.write(READS + f'[users.omar]\nidentities = ["{signer(omar)}"]\n' + OMAR)
    omar.must("policy", "apply", "scans", directory)
    site.olga.must("key", "revoke", "scans", "omar")
    site.rita.must("pull", "scans", site.target())
    site.rita.refused(6, "tag", "scans", "mine")


OMAR = '[[grant]]\nid = "omar-owns"\nto = ["omar"]\nrole = "owner"\n'


def test_the_two_person_rule_asks_for_a_second_owners_signature(
    site: Site, person: Callable[..., Person], tmp_path: Path
) -> None:
    omar: Person = person("omar")
    site.olga.grant("scans", omar, "owner")
    site.publish(READS, "two_person = true")
    certificate = tmp_path / "certificate.json"
    shred = ("key", "shred", "scans", "--yes", "--output", certificate)
    site.olga.refused(6, *shred, words="a second person has to approve")
    approval = tmp_path / "approval"
    line = ("policy", "grant", "scans", signer(site.olga), "--action", "Shred", "--until", "1h", "--output", approval)
    site.olga.must(*line)
    with_grant(site.olga, approval).refused(6, *shred, words="a second person")  # one's own word is no second one
    site.publish(READS + f'[users.omar]\nidentities = ["{signer(omar)}"]\n' + OMAR, "two_person = true")
    omar.must(*line)
    with_grant(site.olga, approval).must(*shred)
    assert certificate.exists()


def test_who_may_not_manage_keys_changes_none_though_they_own_the_dataset(
    site: Site, person: Callable[..., Person]
) -> None:
    omar: Person = person("omar")
    site.olga.grant("scans", omar, "owner")
    site.publish(READS)
    omar.refused(6, "key", "revoke", "scans", "rita", words="may not ManageKeys")
    omar.refused(6, "key", "rotate", "scans", words="may not ManageKeys")
    denied = site.events(omar, "policy.decide")
    assert {item["outcome"] for item in denied} == {"denied"}
    assert all(item["policy"] for item in denied)


# a site's own directory


def test_a_sites_policy_decides_too_and_both_have_to_allow(site: Site) -> None:
    directory = site.write(READS, name="site")
    rita = with_setting(site.rita, DATASYNC_POLICY_DIR=str(directory))
    rita.must("pull", "scans", site.target())
    rita.refused(6, "audit", "query", words="may not ReadAudit")
    rita.refused(6, "cache", "purge", "--yes", words="may not Purge")
    site.publish()
    rita.refused(6, "pull", "scans", site.target(), words="of scans")
    site.publish(READS)
    rita.must("pull", "scans", site.target())
    (directory / "policy.toml").write_text("[[grant]")
    rita.must("pull", "scans", site.target())  # the one that parsed last stays in force
    assert "not valid TOML" in site.events(site.rita, "pull")[-1]["detail"]["policy_warning"]


def test_a_broken_reload_keeps_the_old_policy_and_a_mended_one_takes_its_place(site: Site) -> None:
    directory = site.write(READS, name="site")
    policy, asked = SitePolicy(directory), Request(parse_principal("rita"), "Warm", "scans", Evidence(1))
    before = policy.current()
    assert before.engine.decide(asked).allow
    text = (directory / "policy.toml").read_text()
    _replace(directory, text + '[[deny]]\nid = "stop"\nactoins = ["Warm"]\n')
    kept = policy.current()
    assert kept.engine is before.engine
    assert "actoins" in kept.warning
    _replace(directory, text + '[[deny]]\nid = "stop"\nactions = ["Warm"]\n')
    after = policy.current()
    assert not after.engine.decide(asked).allow
    assert not after.warning
    _replace(directory, text)
    assert policy.current().engine.digest == before.engine.digest


def test_a_sites_policy_that_never_loaded_allows_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotAuthorized, match="nothing is allowed"):
        SitePolicy(tmp_path / "none").current()


def _replace(directory: Path, text: str) -> None:
    aside = directory / "aside"
    aside.write_text(text)
    os.replace(aside, directory / "policy.toml")
