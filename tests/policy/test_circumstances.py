"""Events of decisions tell the evidence that counted: the dataset's class, the purpose, what was attested."""

import time
from pathlib import Path

from tests.policy.site import READS, Site, node_signer, with_grant


def test_the_class_of_the_dataset_is_in_every_decided_event(site: Site) -> None:
    site.publish(READS, 'classification = "restricted"')
    site.rita.must("pull", "scans", site.target())
    assert site.events(site.rita, "pull")[-1]["classification"] == "restricted"


def test_a_purpose_that_an_owner_vouched_for_is_in_the_event(site: Site, tmp_path: Path) -> None:
    site.publish(READS)
    until = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 2 * 86_400))  # its first moment, so a day from now on
    line = tmp_path / "grant"
    asked = ("--action", "ReadData", "--purpose", "study-17", "--until", until, "--output", line)
    site.olga.must("policy", "grant", "scans", node_signer(site.rita), *asked)
    with_grant(site.rita, line).must("pull", "scans", site.target())
    assert site.events(site.rita, "pull")[-1]["purpose"] == "study-17"
