"""Messages say what was done, and errors what to do next."""

from pathlib import Path

import pytest

from datasync.errors import UsageError
from datasync.storage import location
from tests.support.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with an empty repository and a folder `data`."""
    made = Machine.make(tmp_path / "home", str(tmp_path / "repository"))
    made.must("init")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "notes.txt").write_text("a line\n")
    return made


def test_a_second_init_says_that_the_repository_can_be_used(machine: Machine) -> None:
    refused = machine.run("init")
    assert refused.code == 2
    assert "a repository is there already: use it as it is, or choose another URL" in refused.message


def test_a_push_that_only_moves_a_tag_says_so(machine: Machine, tmp_path: Path) -> None:
    machine.must("push", tmp_path / "data")
    assert "data:prod -> @1" in machine.must("push", tmp_path / "data", "--tag", "prod").err
    assert "data:new ->" not in machine.must("push", tmp_path / "data", "--tag", "new", "--dry-run").err


def test_removing_a_tag_says_whether_there_was_one(machine: Machine, tmp_path: Path) -> None:
    machine.must("push", tmp_path / "data", "--tag", "prod")
    assert "data:prod: removed" in machine.must("tag", "data", "prod", "--delete").err
    assert "data:prod: there was no such tag" in machine.must("tag", "data", "prod", "--delete").err


def test_an_exported_kit_is_named_with_what_to_do_with_it(machine: Machine, tmp_path: Path) -> None:
    machine.must("push", tmp_path / "data")
    told = machine.must("key", "export-recovery", "--output", tmp_path / "kit.txt").err
    assert "the kit opens 1 dataset, " in told
    assert f"written: {tmp_path / 'kit.txt'}: print it" in told


def test_a_purge_names_the_receipt(machine: Machine, tmp_path: Path) -> None:
    machine.must("push", tmp_path / "data")
    machine.must("warm", "data")
    told = machine.must("cache", "purge", "--yes", "--output", tmp_path / "receipt.json").err
    assert f"purged; signed receipt: {tmp_path / 'receipt.json'}" in told


def test_config_shows_every_setting_in_words_and_no_secret(tmp_path: Path) -> None:
    extra = {"DATASYNC_POLICY_DIR": "/etc/site", "DATASYNC_TOKEN": "dst_secret", "DATASYNC_KMS": "vault://m/k"}
    machine = Machine.make(tmp_path / "home", str(tmp_path / "repository"), extra)
    lines = machine.must("config").out.splitlines()
    for line in ("policy.dir = /etc/site", "token = set", "kms = vault://m/k", "trust = none", "audit.watch = false"):
        assert line in lines
    assert "push.storage_class = not set" in lines
    assert not any("dst_secret" in line for line in lines)


def test_a_report_says_which_options_it_lacks(machine: Machine) -> None:
    refused = machine.run("audit", "report", "access", "--dataset", "data")
    assert refused.code == 2
    assert "expected --dataset and --day, found --dataset: pass --day" in refused.message


def test_an_unknown_action_of_a_policy_is_refused_with_the_known_ones(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "policy.toml").write_text("[users.rita]\n[datasets.data]\n")
    refused = machine.run("policy", "explain", "rita", "Fly", "data", "--policy", tmp_path / "policy")
    assert refused.code == 2
    assert "action 'Fly': expected one of ListDatasets, ReadMetadata, ReadData" in refused.message
    assert (
        "  because: no policy permits it"
        in machine.must("policy", "explain", "rita", "Warm", "data", "--policy", tmp_path / "policy").out.splitlines()
    )


@pytest.mark.parametrize("scheme", ["sftp", "gs", "az", "cos"])
def test_a_driver_that_is_not_installed_is_named_with_its_own_extra(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError("no module", name="the_sdk")

    monkeypatch.setattr(location, "import_module", absent)
    extra = {"gs": "gcs", "az": "azure"}.get(scheme, scheme)
    with pytest.raises(UsageError, match=rf"the_sdk: pip install 'gpu-datasync\[{extra}\]'"):
        location.open_store(f"{scheme}://place-1250000000/prefix")
