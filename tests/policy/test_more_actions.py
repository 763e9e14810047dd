"""The actions of a machine and of the audit log obey a site's policy, too."""

import getpass
import socket
from pathlib import Path

import pytest

from tests.policy.site import Site, with_setting

OPERATES = '[[grant]]\nid = "rita-operates"\nto = ["rita"]\nrole = "operator"\n'
AUDITS = '[[grant]]\nid = "rita-audits"\nto = ["rita"]\nrole = "auditor"\n'
OWNS = '[[grant]]\nid = "rita-owns"\nto = ["rita"]\nrole = "owner"\n'
WARMS = '[[grant]]\nid = "rita-reads"\nto = ["rita"]\nrole = "reader"\n'
CHECKPOINT = "CHECKPOINT"
PERSON = f"{getpass.getuser()}@{socket.gethostname()}"


@pytest.mark.parametrize(
    ("line", "grant", "code"),
    [
        (("cache", "purge", "--yes"), OPERATES, 0),
        (("cache", "evict", "scans"), OPERATES, 0),
        (("cache", "pin", "scans"), WARMS, 0),
        (("cache", "unpin", "scans"), WARMS, 0),
        (("audit", "query"), AUDITS, 0),
        (("audit", "tail"), AUDITS, 0),
        (("audit", "show", "0"), AUDITS, 0),
        (("audit", "prove", "0"), AUDITS, 0),
        (("audit", "prove", "--since", CHECKPOINT), AUDITS, 0),
        (("audit", "verify"), AUDITS, 0),
        (("audit", "anchor"), AUDITS, 0),
        (("audit", "verify", "--remote"), AUDITS, 4),
        (("audit", "export", "--format", "jsonl", "--output", "OUT"), AUDITS, 0),
        (("audit", "report", "integrity", "--output", "OUT.html"), AUDITS, 0),
        (("audit", "retain"), AUDITS, 0),
        (("audit", "retain", "--apply"), OWNS, 0),
        (("audit", "hold", "a case"), OWNS, 0),
        (("audit", "hold", "--lift"), OWNS, 0),
        (("audit", "erase", PERSON, "--yes"), OWNS, 0),
        (("token", "create", "--node", "n1", "--dataset", "scans", "--ttl", "1h"), OWNS, 0),
        (("token", "create", "--node", "n1", "--dataset", "*", "--ttl", "1h"), OWNS, 0),
        (("token", "list"), OPERATES, 0),
    ],
)
def test_it_is_denied_without_and_allowed_with_a_grant(
    site: Site, tmp_path: Path, line: tuple[str, ...], grant: str, code: int
) -> None:
    site.rita.must("warm", "scans")
    checkpoint = tmp_path / "checkpoint"
    site.rita.must("audit", "anchor", "--output", checkpoint)
    rita = with_setting(site.rita, DATASYNC_POLICY_DIR=str(site.write(name="site")))
    words = [word.replace("OUT", str(tmp_path / "export")).replace(CHECKPOINT, str(checkpoint)) for word in line]
    rita.refused(6, *words, words="no policy permits it")
    assert not list(tmp_path.glob("export*"))
    site.write(grant, name="site")
    ran = rita.run(*words)
    assert ran.code == code, ran
