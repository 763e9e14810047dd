"""The control side decides about somebody else: by verified claims alone, never by a name or by its own keys."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from datasync.config import Flags, load_config
from datasync.errors import NotAuthorized
from datasync.repository.repository import OpenDataset
from datasync.service import session as sessions
from datasync.service.authorize import authorize
from datasync.service.caller import Claims
from datasync.service.credentials import allowed_until
from datasync.service.session import Session
from tests.policy.site import READS, Site

TOKENS = """
[users.nora]
identities = ["https://idp#nora"]
[nodes.gpu]
identities = ["token#gpu"]
region = "eu"
[[grant]]
id = "by-token"
to = ["nora", "node:gpu"]
on = ["scans"]
role = "reader"
until = 2099-01-01
"""
NORA, GPU = Claims(("https://idp#nora",)), Claims(("token#gpu",))


@contextmanager
def control(site: Site) -> Iterator[tuple[Session, OpenDataset]]:
    """Yield olga's session, which decides about others."""
    with (
        mock.patch.dict("os.environ", site.olga.machine.environment(), clear=True),
        mock.patch.object(sessions, "open_store", return_value=site.store),
    ):
        session = Session(load_config(Flags()))
        yield session, session.repository.open("scans")


def allowed(site: Site, claims: Claims | None, action: str = "ReadData") -> bool:
    with control(site) as (session, dataset):
        try:
            authorize(session, action, dataset, claims=claims)
        except NotAuthorized:
            return False
        return True


def test_a_token_is_who_the_policy_lists_and_nobody_by_name(site: Site) -> None:
    site.publish(READS + TOKENS)
    assert allowed(site, NORA)
    assert not allowed(site, NORA, "PushSnapshot")
    assert allowed(site, None, "PushSnapshot")  # olga herself
    for other in ("olga", "nora", "https://other#nora", "https://idp#olga", "node:gpu", ""):
        assert not allowed(site, Claims((other,))), other
    assert not allowed(site, Claims(()))


def test_region_purpose_and_attestation_are_the_claims_and_never_the_controllers(site: Site) -> None:
    site.publish(READS + TOKENS, 'allowed_regions = ["eu"]')
    assert allowed(site, GPU)  # its region is the policy's word
    assert not allowed(site, NORA)
    assert allowed(site, Claims(NORA.identities, region="eu"))
    assert not allowed(site, Claims(NORA.identities, region="us"))
    assert allowed(site, Claims(GPU.identities, region="us"))  # the policy's word counts before the token's
    site.publish(READS + TOKENS, 'purposes = ["study"]')
    assert not allowed(site, GPU)
    assert allowed(site, Claims(GPU.identities, purpose="study"))
    site.publish(READS + TOKENS.replace('role = "reader"', 'role = "reader"\nmfa = true\nattested = true'))
    assert not allowed(site, Claims(NORA.identities, mfa=True))
    assert allowed(site, Claims(NORA.identities, mfa=True, attested=True))


def test_what_is_released_ends_when_the_grant_ends(site: Site) -> None:
    ends = 4_070_908_800_000  # 2099-01-01
    site.publish(READS + TOKENS)
    with control(site) as (session, dataset):
        assert allowed_until(session, dataset, "Warm", ends + 1, NORA) == ends
        assert allowed_until(session, dataset, "Warm", ends - 5, NORA) == ends - 5
        now = dataset.history.now()
        assert allowed_until(session, dataset, "Prune", ends, NORA) < now + 60_000
        with pytest.raises(NotAuthorized, match="unlisted:https://idp#other may not Warm"):
            authorize(session, "Warm", dataset, claims=Claims(("https://idp#other",)))
