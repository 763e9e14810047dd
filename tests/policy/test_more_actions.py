"""The actions of a machine and of the audit log obey a site's policy, too."""

from pathlib import Path

import pytest

from tests.policy.site import Site, with_setting

OPERATES = '[[grant]]\nid = "rita-operates"\nto = ["rita"]\nrole = "operator"\n'
AUDITS = '[[grant]]\nid = "rita-audits"\nto = ["rita"]\nrole = "auditor"\n'


@pytest.mark.parametrize(
    ("line", "grant"),
    [
        (("cache", "purge", "--yes"), OPERATES),
        (("audit", "query"), AUDITS),
        (("audit", "tail"), AUDITS),
        (("audit", "export", "--format", "jsonl", "--output", "OUT"), AUDITS),
        (("audit", "report", "integrity", "--output", "OUT.html"), AUDITS),
    ],
)
def test_it_is_denied_without_and_allowed_with_a_grant(
    site: Site, tmp_path: Path, line: tuple[str, ...], grant: str
) -> None:
    rita = with_setting(site.rita, DATASYNC_POLICY_DIR=str(site.write(name="site")))
    words = [word.replace("OUT", str(tmp_path / "export")) for word in line]
    rita.refused(6, *words, words="no policy permits it")
    assert not list(tmp_path.glob("export*"))
    site.write(grant, name="site")
    ran = rita.run(*words)
    assert ran.code == 0, ran
