"""What the key commands take, write and print: nothing is guessed, nothing is overwritten, nothing is lost."""

import json
from pathlib import Path

import pytest

from datasync.crypto.signatures import signer_text
from datasync.service.erasure import KIND, _canonical
from tests.keys.forge import DATASET, Cast, signer, told
from tests.support.copies import names
from tests.support.people import Person

# whom a grant is for


def grants_nothing(cast: Cast, words: str, *given: str | Path) -> None:
    before = names(cast.store)
    cast.olga.refused(2, "key", "grant", DATASET, *given, words=words)
    assert names(cast.store) == before


def test_two_people_in_one_grant_are_refused(cast: Cast) -> None:
    anna, bert = cast.person("anna").public(), cast.person("bert").public()
    grants_nothing(cast, "several", anna, bert)


def test_the_keys_of_one_and_the_signer_of_another_are_refused(cast: Cast) -> None:
    anna, bert = cast.person("anna").public(), cast.person("bert").must("key", "show")["signer"]
    grants_nothing(cast, "several", anna, str(bert))


def test_a_word_that_means_nobody_is_refused(cast: Cast) -> None:
    grants_nothing(cast, "'bert'", cast.person("anna").public(), "bert")


@pytest.mark.parametrize("other", ["passphrase", "vault://transit/key"])
def test_a_slot_has_one_key(cast: Cast, other: str) -> None:
    grants_nothing(cast, "several", cast.person("anna").public(), other)


def test_the_same_lines_twice_are_one_holder(cast: Cast) -> None:
    anna = cast.person("anna")
    cast.olga.must("key", "grant", DATASET, anna.public(), str(anna.must("key", "show")["recipient"]), "--name", "anna")
    assert "anna" in {item["name"] for item in cast.olga.must("key", "list", DATASET)["holders"]}


@pytest.mark.parametrize(
    "until",
    ["", " ", "-1d", "0s", "1e9", "99999999999999d", "9" * 400 + "d", "3000000d", "2020-01-01", "0001-01-01", "x"],
)
def test_an_end_that_is_none_grants_nothing(cast: Cast, until: str) -> None:
    """An empty one, as an unset variable gives it, is not "for ever"."""
    grants_nothing(cast, "time ", cast.person("anna").public(), "--until", until)


@pytest.mark.parametrize("until", ["9999-12-31", "2900000d", "2099-01-01T00:00+14:00"])
def test_an_end_far_away_is_shown(cast: Cast, until: str) -> None:
    cast.olga.must("key", "grant", DATASET, cast.person("anna").public(), "--name", "anna", "--until", until)
    (anna,) = [item for item in cast.olga.must("key", "list", DATASET)["holders"] if item["name"] == "anna"]
    assert anna["until"] > "2098"


# files


@pytest.mark.parametrize("name", ["certificate.html", "no/such/folder/certificate.json"])
def test_a_certificate_that_could_not_be_kept_stops_the_shredding(cast: Cast, name: str) -> None:
    before = names(cast.store)
    cast.olga.refused(2, "key", "shred", DATASET, "--yes", "--output", cast.folder / name)
    assert names(cast.store) == before
    cast.accepted()


def test_a_page_in_the_way_is_not_overwritten(cast: Cast) -> None:
    page = cast.folder / "certificate.html"
    page.write_text("of somebody else")
    cast.olga.refused(2, "key", "shred", DATASET, "--yes", "--output", cast.folder / "certificate.json", words="html")
    assert page.read_text() == "of somebody else"
    cast.accepted()


def test_a_kit_that_could_not_be_kept_makes_no_owner(cast: Cast, tmp_path: Path) -> None:
    before = names(cast.store)
    cast.olga.refused(2, "key", "export-recovery", "--output", cast.folder / "no" / "kit", words="nothing was done")
    cast.olga.refused(2, "key", "export-recovery", "--output", cast.folder / "a", "--png", cast.folder / "a")
    assert names(cast.store) == before
    new = Person.make(tmp_path / "new", "nora", "memory://nora", cast.store)
    new.refused(2, "init", "--recovery", cast.folder / "no" / "kit", words="nothing was done")


def test_a_kit_that_does_not_open_all_is_a_partial_success(cast: Cast) -> None:
    cast.olga.grant(DATASET, cast.will, "owner")
    path = cast.place()
    cast.olga.must("key", "owners", DATASET, "--threshold", "2", "--output", path)
    cast.will.must("key", "cosign", DATASET, path)
    ran = cast.olga.run("key", "export-recovery", "--output", cast.place(), "--json")
    assert (ran.code, ran.result["exit"], len(ran.result["problems"])) == (3, 3, 1), ran


def test_a_certificate_names_the_views_that_stay_on_this_machine(cast: Cast) -> None:
    cache = Path(cast.olga.must("warm", DATASET)["path"]).parents[2]
    path = cast.place()
    cast.olga.must("key", "shred", DATASET, "--yes", "--output", path)
    assert [
        item
        for item in json.loads(path.read_text())["not_destroyed"]
        if f"1 views in plain in this machine's cache {cache}" in item
    ]


# certificates of others


def certificate(cast: Cast, **changed: object) -> Path:
    """Return a file that somebody signed and called a certificate."""
    fields = {"format": "datasync-erasure-certificate", "dataset": "a", "dataset_id": "b" * 64, "time": "now"} | changed
    fields = {key: value for key, value in fields.items() if value is not None}
    key, path = signer(cast.rita), cast.place()
    signed = fields | {"signer": signer_text(key.public), "signature": key.sign(KIND, _canonical(fields)).hex()}
    path.write_text(json.dumps(signed))
    return path


@pytest.mark.parametrize("change", [{"dataset": None}, {"dataset_id": 3}, {"time": None}, {"format": "another"}])
def test_a_certificate_that_lacks_something_is_refused_in_one_line(cast: Cast, change: dict[str, object]) -> None:
    told(cast.olga.run("key", "certificate", certificate(cast, **change)), "expected an erasure certificate")


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, "{}", json.dumps({"signer": 1}), '{"signer": ["dss1"]}'])
def test_what_is_no_certificate_is_refused_in_one_line(cast: Cast, text: str) -> None:
    path = cast.place()
    path.write_text(text)
    told(cast.olga.run("key", "certificate", path), "expected an erasure certificate")


def test_a_certificate_draws_nothing_on_the_terminal(cast: Cast) -> None:
    ran = cast.olga.run("key", "certificate", certificate(cast, dataset="\x1b[2J", time="\x1b]0;t\x07"))
    assert (ran.code, "\x1b" in ran.out, "\\x1b" in ran.out) == (0, False, True), ran
