"""Offline grants: what one allows, and everything that makes one worth nothing."""

import base64
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from datasync.crypto.signatures import SigningKey
from datasync.errors import DatasyncError, FormatError, IntegrityError, NotAuthorized
from datasync.format.grant import PREFIX, Grant, read_grant
from datasync.format.trust import OWNER, WRITER, Principal, TrustRoot
from datasync.repository.grants import check_grant, covers, issue
from tests.policy.site import READS, Site, node_signer, signer, with_grant
from tests.support.people import Person

DATASET, NODE = bytes(range(32)), SigningKey(bytes([7] * 32))
OWNER_KEY, OTHER = SigningKey(bytes([1] * 32)), SigningKey(bytes([2] * 32))
GRANT = Grant(DATASET, 1_000, 5_000, NODE.public, ("ReadData", "Warm"), 3, 9, b"", "eu", "study")
NODES = frozenset({NODE.public})


def root(roles: int = OWNER, until: int = 0, removed: tuple[int, bytes] | None = None) -> TrustRoot:
    principal = Principal(OWNER_KEY.public, roles, b"", 0, until, removed)
    return TrustRoot(2, DATASET, bytes([9] * 32), 0, 0, 1, (principal,))


def test_a_grant_needs_nothing_but_the_trust_root() -> None:
    line = issue(GRANT, OWNER_KEY)
    assert line.startswith(PREFIX)
    assert "\n" not in line
    assert check_grant(f" {line}\n", DATASET, root(), NODES, 4_999) == (GRANT, OWNER_KEY.public)


def test_it_is_the_line_of_the_vector() -> None:
    vector = (Path(__file__).parents[1] / "vectors" / "grant.txt").read_text().strip()
    assert issue(GRANT, OWNER_KEY) == vector
    assert read_grant(vector, "vector")[0] == GRANT


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"now": 5_000}, "it ended"),
        ({"now": 10**15}, "it ended"),
        ({"dataset": bytes(32)}, "it is for dataset"),
        ({"nodes": frozenset({OTHER.public})}, "another machine's key"),
        ({"nodes": frozenset()}, "another machine's key"),
        ({"issuer": OTHER}, "does not own"),
        ({"root": root(WRITER)}, "does not own"),
        ({"root": root(until=4_000)}, "does not own"),
        ({"root": root(removed=(1, bytes(32)))}, "does not own"),
    ],
)
def test_it_does_not_hold(given: dict[str, object], words: str) -> None:
    usual: dict[str, object] = {"dataset": DATASET, "root": root(), "nodes": NODES, "now": 4_000}
    issuer = given.pop("issuer", OWNER_KEY)
    assert isinstance(issuer, SigningKey)
    with pytest.raises(NotAuthorized, match=words):
        check_grant(issue(GRANT, issuer), **{**usual, **given})  # type: ignore[arg-type]


def test_every_flipped_bit_is_refused() -> None:
    data = base64.urlsafe_b64decode(issue(GRANT, OWNER_KEY)[len(PREFIX) :])
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << (position % 8)
        line = PREFIX + base64.urlsafe_b64encode(changed).decode()
        with pytest.raises(DatasyncError) as caught:
            check_grant(line, DATASET, root(), NODES, 4_000)
        assert isinstance(caught.value, IntegrityError | NotAuthorized)


@pytest.mark.parametrize("line", ["", "dsg1", "dsg1!!!!", "dss1abc", "dsg1" + "A" * 20_000, "dsg1AAAA"])
def test_other_text_is_refused_by_name(line: str) -> None:
    with pytest.raises(FormatError, match="grant"):
        read_grant(line, "grant x")


def test_a_line_has_one_encoding() -> None:
    line = issue(GRANT, OWNER_KEY)
    for other in (line + "=", line[:-1], line.replace("=", ""), line + "\n" + line):
        if other != line:
            with pytest.raises(FormatError):
                read_grant(other, "grant x")


def test_a_grant_that_makes_no_sense_is_not_issued() -> None:
    for change in ({"until": 1_000}, {"last": 2}, {"policy": b"x"}, {"actions": ("Warm", "ReadData")}):
        with pytest.raises(FormatError):
            issue(msgspec.structs.replace(GRANT, **change), OWNER_KEY)


def test_it_covers_its_actions_and_snapshots_and_no_others() -> None:
    assert covers(GRANT, "Warm", None)
    assert [seq for seq in range(1, 12) if covers(GRANT, "Warm", seq)] == [3, 4, 5, 6, 7, 8, 9]
    assert not covers(GRANT, "PushSnapshot", 5)


# in use


def test_a_machine_with_a_grant_reads_where_no_policy_permits_and_no_other_does(site: Site, tmp_path: Path) -> None:
    site.publish()
    grant = tmp_path / "grant"
    line = ("policy", "grant", "scans", node_signer(site.rita), "--action", "Warm", "--action", "ReadData")
    digest = site.olga.must("policy", "show", "scans")["policy"]
    site.olga.must(*line, "--until", "1h", "--snapshots", "1-1", "--output", grant)
    rita = with_grant(site.rita, grant)
    rita.must("pull", "scans", site.target())
    event = site.events(rita, "pull")[-1]
    assert (event["policy"], event["decided_by"]) == (digest, ["scans:grant"])
    rita.refused(6, "ls", "scans", words="may not ReadMetadata")
    (site.tree / "more").write_bytes(b"more")
    site.olga.must("push", site.tree, "--dataset", "scans")
    rita.refused(6, "pull", "scans", site.target())  # snapshot 2 is not among its snapshots
    rita.must("pull", "scans@1", site.target())
    with_grant(site.olga, grant).must("pull", "scans", site.target())
    issued = site.events(site.olga, "policy.grant")
    assert [item["outcome"] for item in issued] == ["intent", "success"]
    assert issued[-1]["whom"]["subject"] == node_signer(site.rita)


def test_a_denial_overrules_a_grant(site: Site, tmp_path: Path) -> None:
    denial = '[[deny]]\nid = "stop"\nreason = "the contract ended"\nto = ["rita"]\nactions = ["ReadData"]\n'
    site.publish(READS + denial)
    grant = tmp_path / "grant"
    line = ("policy", "grant", "scans", signer(site.rita), "--action", "ReadData", "--until", "1h", "--output", grant)
    site.olga.must(*line)
    with_grant(site.rita, grant).refused(6, "pull", "scans", site.target(), words="the contract ended")


def test_a_grant_vouches_for_region_and_purpose(site: Site, tmp_path: Path) -> None:
    site.publish(READS, 'allowed_regions = ["eu"]\npurposes = ["study"]')
    site.rita.refused(6, "pull", "scans", site.target(), words="not in a region")
    machine, grant = node_signer(site.rita), tmp_path / "grant"
    line = ("policy", "grant", "scans", machine, "--action", "ReadData", "--until", "1h", "--output", grant)
    for region, purpose, code in (("us", "study", 6), ("eu", "fun", 6), ("eu", "study", 0)):
        site.olga.must(*line, "--region", region, "--purpose", purpose)
        assert with_grant(site.rita, grant).run("pull", "scans", site.target()).code == code


def test_who_does_not_own_the_dataset_grants_nothing(site: Site, person: Callable[..., Person], tmp_path: Path) -> None:
    site.rita.refused(6, "policy", "grant", "scans", signer(site.rita), "--action", "Warm", "--until", "1h")
    site.olga.refused(2, "policy", "grant", "scans", signer(site.rita), "--action", "Wram", "--until", "1h")
    site.olga.refused(2, "policy", "grant", "scans", signer(site.rita)[:-4], "--action", "Warm", "--until", "1h")
    stray = tmp_path / "stray"
    stray.write_text("dsg1nonsense")
    ran = with_grant(site.rita, stray, tmp_path / "absent").must("policy", "grants", "scans")
    assert ran["grants"] == 0
    with_grant(site.rita, stray).must("pull", "scans", site.target())  # no policy is in force: the keys decide
