"""Attacks on policies in use: grants, people with two keys, doors that forget to ask."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from datasync.config import Flags, load_config
from datasync.crypto.identity import Identity
from datasync.crypto.signatures import signer_text
from datasync.errors import NotAuthorized
from datasync.format.names import dataset_prefix
from datasync.policy.model import Principal
from datasync.repository.grants import AHEAD_MS, check_grant, issue
from datasync.service import release as releasing
from datasync.service.authorize import authorize, in_force
from datasync.service.borrow import Answer
from datasync.service.caller import Asked, Caller, Claims, Held, request_of
from datasync.service.daemon_rights import manage
from datasync.service.policy_force import decision_time
from datasync.service.principal import Principal as Asking
from datasync.service.principal import Right
from tests.policy.bundles import engine
from tests.policy.site import READS, Site, node_signer, signer, with_grant, with_setting
from tests.policy.test_claims import TOKENS, control
from tests.policy.test_grants import DATASET, GRANT, NODES, OWNER_KEY, root
from tests.support.people import Person

STOP = '[[deny]]\nid = "stop"\nactions = ["Warm"]\n'


# grants


def test_a_grant_from_the_future_does_not_hold_yet() -> None:
    line = issue(GRANT, OWNER_KEY)
    early = GRANT.issued - AHEAD_MS
    assert check_grant(line, DATASET, root(), NODES, max(0, early))[0] == GRANT
    later = replace_grant(issued=10 * AHEAD_MS, until=11 * AHEAD_MS)
    with pytest.raises(NotAuthorized, match="a clock is wrong"):
        check_grant(later, DATASET, root(), NODES, 9 * AHEAD_MS - 1)
    assert check_grant(later, DATASET, root(), NODES, 9 * AHEAD_MS)


def replace_grant(**fields: int) -> str:
    return issue(msgspec.structs.replace(GRANT, **fields), OWNER_KEY)


def test_a_grant_of_another_machine_is_nothing_here(site: Site, person: Callable[..., Person], tmp_path: Path) -> None:
    eve = person("eve")
    site.olga.grant("scans", eve, "reader")
    site.publish()
    grant = tmp_path / "grant"
    line = ("policy", "grant", "scans", node_signer(site.rita), "--action", "ReadData", "--until", "1h", "--output")
    site.olga.must(*line, grant)
    with_grant(site.rita, grant).must("pull", "scans", site.target())
    with_grant(eve, grant).refused(6, "pull", "scans", site.target(), words="no policy permits it")


def test_an_owner_whom_the_policy_gives_no_keys_to_manage_grants_nothing(
    site: Site, person: Callable[..., Person], tmp_path: Path
) -> None:
    """Omar owns by the trust root; the policy lets him write and no more, and he signs himself what he wants."""
    omar = person("omar")
    site.olga.grant("scans", omar, "owner")
    forged, key = tmp_path / "forged", ("--action", "ReadData", "--until", "1h", "--output")
    omar.must("policy", "grant", "scans", node_signer(omar), *key, forged, "--region", "eu")  # no policy yet
    listed = f'[users.omar]\nidentities = ["{signer(omar)}"]\n'
    writes = '[[grant]]\nid = "omar-tags"\nto = ["omar"]\nactions = ["Tag", "ReadMetadata"]\n'
    for named in ("", listed + writes):
        site.publish(READS + named)
        with_grant(omar, forged).refused(6, "pull", "scans", site.target(), words="no policy permits it")
    site.publish(READS + listed + writes.replace('"Tag"', '"Tag", "ReadData"'), 'allowed_regions = ["eu"]')
    with_grant(omar, forged).refused(6, "pull", "scans", site.target(), words="not in a region")
    site.publish(READS + listed + writes.replace('"Tag"', '"ManageKeys"'))
    with_grant(omar, forged).must("pull", "scans", site.target())


def test_where_two_owners_have_to_sign_ones_grant_is_an_approval_and_no_more(
    site: Site, person: Callable[..., Person], tmp_path: Path
) -> None:
    omar = person("omar")
    site.olga.grant("scans", omar, "owner")
    owns = f'[users.omar]\nidentities = ["{signer(omar)}"]\n[[grant]]\nid = "omar"\nto = ["omar"]\nrole = "owner"\n'
    site.publish(owns)
    before, grant = tmp_path / "before", ("policy", "grant", "scans", node_signer(site.rita), "--until", "1h")
    site.olga.must(*grant, "--action", "ReadData", "--output", before)
    with_grant(site.rita, before).must("pull", "scans", site.target())
    proposal = tmp_path / "threshold.json"
    site.olga.must("key", "owners", "scans", "--threshold", "2", "--output", proposal)
    if proposal.exists():
        omar.must("key", "cosign", "scans", proposal, "--yes")
    signed = tmp_path / "policy.json"
    site.olga.must("policy", "apply", "scans", site.write(owns), "--output", signed)
    omar.must("policy", "cosign", "scans", signed)
    site.olga.refused(2, *grant, "--action", "ReadData", words="2 owners have to sign")
    site.olga.must(*grant, "--action", "Prune", "--output", tmp_path / "approval")
    with_grant(site.rita, before).refused(6, "pull", "scans", site.target())


# people


TWO = """
[users.olga]
identities = ["{0}", "{1}"]
[users.omar]
identities = ["{2}"]
[nodes.box]
identities = ["{3}"]
[jobs.nightly]
identities = ["{4}"]
[datasets.scans]
two_person = true
[[grant]]
id = "own"
role = "owner"
"""
KEYS = [bytes([n]) * 32 for n in range(1, 7)]


def approvals(caller: bytes, *approvers: bytes, grants: tuple[bytes, ...] = ()) -> int:
    bundle = engine(TWO.format(*map(signer_text, KEYS))).bundle
    asked = Asked("Prune", approvers=frozenset(approvers))
    held = [Held(("Prune",), 2**50, "", "", issuer, covers=True) for issuer in grants]
    return request_of(bundle, Caller(caller, KEYS[5]), asked, "scans", 1, held).evidence.approvals


def test_two_people_are_two_people_and_not_two_keys() -> None:
    olga, olgas_other, omar, box, job, stranger = KEYS
    assert approvals(olga) == 1
    assert approvals(olga, olga) == 1
    assert approvals(olga, olgas_other) == 1  # one person's second key, her recovery kit included
    assert approvals(olga, olgas_other, grants=(olgas_other, olga)) == 1
    assert approvals(olga, box, job) == 1  # machines and jobs are nobody
    assert approvals(olga, stranger, grants=(stranger,)) == 1  # it may be anybody's second key
    assert approvals(stranger, olga) == 1
    assert approvals(box, olga, olgas_other) == 1
    assert approvals(olga, omar) == 2
    assert approvals(olga, grants=(omar,)) == 2
    assert approvals(box, olga, omar) == 2


def test_a_recovery_kit_is_no_second_person(site: Site, tmp_path: Path) -> None:
    """Her own kit makes olga an owner twice; with both she still is one."""
    kit = tmp_path / "kit"
    site.olga.must("key", "export-recovery", "--output", kit)
    again = replace(site.olga, machine=replace(site.olga.machine, home=tmp_path / "again"))
    again.machine.home.mkdir()
    again.must("key", "recover", "--kit", kit)
    site.publish(attributes="two_person = true")
    approval = tmp_path / "approval"
    again_line = ("policy", "grant", "scans", signer(site.olga), "--action", "Shred", "--until", "1h", "--output")
    recovered = signer(again)
    assert recovered != signer(site.olga)
    ran = again.run(*again_line, approval)  # the policy does not know the kit's key, so honest tools refuse even this
    if ran.code != 0:
        with mock.patch("datasync.service.offline_grants.authorize", return_value=None):
            again.must(*again_line, approval)
    shred = ("key", "shred", "scans", "--yes", "--output", tmp_path / "certificate")
    with_grant(site.olga, approval).refused(6, *shred, words="a second person has to approve")


# doors


def test_a_nodes_own_site_policy_holds_though_a_control_side_has_decided(site: Site) -> None:
    site.publish()  # the dataset's own: a lent key was decided by it elsewhere
    with control(site) as (session, dataset):
        session.decided = True
        assert in_force(session, dataset, action="Warm") == []
        assert [item.source for item in in_force(session, dataset, action="PushSnapshot")] == ["scans"]
        session.config = replace(session.config, policy_dir=site.write(STOP, name="site"))
        assert [item.source for item in in_force(session, dataset, action="Warm")] == ["site"]
        with pytest.raises(NotAuthorized, match="stop"):
            authorize(session, "Warm", dataset)


def test_a_stranger_is_not_told_what_others_may(site: Site) -> None:
    site.publish(READS + TOKENS, 'allowed_regions = ["secret-region"]')
    with control(site) as (session, dataset):
        for identities in ((), ("https://idp#other",), ("https://idp#nora",)):
            with pytest.raises(NotAuthorized) as caught:
                authorize(session, "Warm", dataset, claims=Claims(identities))
            for word in ("secret-region", "would be allowed", "rita", "olga"):
                assert word not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("::ffff:a01:203", True),
        ("10.66.0.9", False),
        ("::ffff:10.66.0.9", False),
        ("::ffff:10.66.0.9%eth0", False),
        ("fe80::1%eth0", False),
        ("10.1.2.3/8", False),
        ("10.1.2.3, 10.66.0.9", False),
        ("", False),
        (None, False),
    ],
)
def test_an_address_is_the_same_one_over_an_ipv6_socket(source: str | None, allowed: bool) -> None:
    decider = engine(
        '[users.nora]\nidentities = ["i#n"]\n[[grant]]\nid = "in"\nrole = "owner"\nnetworks = ["10.0.0.0/8"]\n'
        '[[deny]]\nid = "guests"\nactions = ["Warm"]\nnetworks = ["10.66.0.0/16"]\n'
    )
    asked = request_of(decider.bundle, Caller(None, b"", Claims(("i#n",), source=source)), Asked("Warm"), None, 1, [])
    assert asked.principal == Principal("user", "nora")
    assert decider.decide(asked).allow == allowed


def test_a_member_of_the_daemons_group_is_decided_as_themselves(site: Site) -> None:
    """The socket lets them in; what they may there the policy says, not this machine's identity."""
    more = '[users.gina]\nidentities = ["os-user#gina"]\n[[grant]]\nid = "g"\nto = ["gina"]\nrole = "operator"\n'
    directory = site.write(more, name="site")
    config = replace(load_config(Flags(), site.olga.machine.environment()), policy_dir=directory)
    gina = Asking("gina", "os-user", "uid 1000", admin=True)
    manage(config, gina)
    manage(config, gina, "scans")
    for other in (replace(gina, subject="olga"), replace(gina, own=True), replace(gina, issuer="token"), None):
        with pytest.raises(NotAuthorized, match="may not ManageDaemon"):
            manage(config, other)


def test_an_act_that_asks_twice_tells_both_decisions(site: Site) -> None:
    site.publish('[[grant]]\nid = "olga-pushes"\nto = ["olga"]\nactions = ["PushSnapshot"]\n')
    (site.tree / "more").write_bytes(b"more")
    site.olga.must("push", site.tree, "--dataset", "scans", "--tag", "prod")
    told = site.events(site.olga, "push")[-1]
    assert told["decided_by"] == ["scans:olga-owns", "scans:olga-pushes"]
    assert len(told["policy"]) == 64


def test_a_reset_policy_of_the_store_is_seen_by_who_remembers(site: Site) -> None:
    site.publish(READS)
    site.publish()
    site.rita.refused(6, "pull", "scans", site.target())
    for name in [item.name for item in site.store.list("") if "/policy/" in item.name]:
        site.store.delete(name)
    site.rita.refused(7, "pull", "scans", site.target(), words="has seen policy 2, the store has none")


def test_a_policy_of_another_dataset_is_refused(site: Site) -> None:
    site.publish(READS)
    site.olga.must("push", site.tree, "--dataset", "other")
    site.olga.must("policy", "apply", "other", site.write(READS, name="other"))
    stored = {item.name for item in site.store.list("") if "/policy/" in item.name}
    trust = {item["dataset"]: item["trust"] for item in site.olga.must("status")["datasets"]}
    prefix = dataset_prefix(bytes.fromhex(trust["scans"]))
    mine = next(name for name in stored if name.startswith(prefix))
    (theirs,) = stored - {mine}
    data = site.store.get(theirs, limit=2**30)
    site.store.delete(mine)
    site.store.put_if_absent(mine, data)
    site.rita.refused(7, "ls", "scans")
    site.rita.refused(7, "pull", "scans", site.target())


def test_no_setting_of_the_callers_is_evidence(site: Site) -> None:
    site.publish(READS, 'allowed_regions = ["eu"]')
    claims = ("DATASYNC_REGION", "DATASYNC_AUDIT_REGION", "AWS_REGION", "DATASYNC_POLICY_REGION", "DATASYNC_NODE")
    rita = with_setting(site.rita, **dict.fromkeys(claims, "eu"))
    rita.refused(6, "pull", "scans", site.target(), words="not in a region")


def test_a_clock_that_is_set_back_renews_no_token_and_no_time_left_lends_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = int(time.time() * 1000) + 3_600_000
    right = Right(("scans",), ("warm",), ends)
    node = Asking("gpu", "token", "token 1", (right,))
    asked = releasing.Asked("scans", Identity.generate().recipient.text, "gpu")

    def lend() -> Answer:
        with control(site) as (session, _):
            return releasing.release(session, node, asked, lambda *_: None)

    assert 0 < lend().until <= ends
    with monkeypatch.context() as patch:
        patch.setattr(releasing, "allowed_until", lambda *_: 0)
        with pytest.raises(NotAuthorized, match="no time is left"):
            lend()
    with control(site) as (session, _):
        decision_time(session.config, ends)  # somebody was decided about after its end; then the clock went back
    with pytest.raises(NotAuthorized, match="no right to warm"):
        lend()


def test_whom_the_policy_lets_manage_no_keys_signs_no_proposal_either(
    site: Site, person: Callable[..., Person], tmp_path: Path
) -> None:
    """Not the last signature alone: the first and any between are asked about, too."""
    omar, nina = person("omar"), person("nina")
    for owner in (omar, nina):
        site.olga.grant("scans", owner, "owner")
    first, third, signed = tmp_path / "first", tmp_path / "third", tmp_path / "policy.json"
    site.olga.must("key", "owners", "scans", "--threshold", "3", "--output", first)
    for other in (omar, nina):
        other.must("key", "cosign", "scans", first, "--yes")
    listed = f'[users.omar]\nidentities = ["{signer(omar)}"]\n[users.nina]\nidentities = ["{signer(nina)}"]\n'
    keys = '[[grant]]\nid = "nina-keys"\nto = ["nina"]\nactions = ["ManageKeys", "ManagePolicy"]\n'
    policies = '[[grant]]\nid = "omar-policies"\nto = ["omar"]\nactions = ["ManagePolicy"]\n'
    site.olga.must("policy", "apply", "scans", site.write(listed + keys + policies), "--output", signed)
    for other in (omar, nina):
        other.must("policy", "cosign", "scans", signed)
    site.olga.must("key", "revoke", "scans", "rita", "--output", third)
    before = third.read_bytes()
    ran = omar.run("key", "cosign", "scans", third, "--yes")
    assert (ran.code, "may not ManageKeys" in ran.err) == (6, True), ran
    assert third.read_bytes() == before
    assert nina.must("key", "cosign", "scans", third, "--yes")["missing"] == 1
