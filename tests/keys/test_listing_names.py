"""What this machine remembers of datasets costs one listing, however many of them it can not open any more."""

from tests.keys.forge import Cast, session
from tests.support.requests import RecordingStore, Request


def test_names_that_do_not_open_are_looked_for_with_one_listing(cast: Cast) -> None:
    for number in range(4):
        cast.olga.must("push", cast.source, "--dataset", f"more{number}")
        trust = cast.olga.grant(f"more{number}", cast.rita, "reader")
        assert trust
        cast.rita.must("log", f"more{number}")
        cast.olga.must("key", "revoke", f"more{number}", "rita")
    asked: list[Request] = []
    with session(cast.rita) as opened:
        opened.repository.store = RecordingStore(cast.store, asked)
        found, closed = opened.repository.open_all()
    assert ([item.name for item in found], closed) == (["scans"], 4)
    assert [item.name for item in asked].count("d/") == 2  # one to open all, one to look for those
