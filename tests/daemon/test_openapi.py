"""docs/openapi.json is what the code says, and the code does what it says: no request finds a 5xx or an undocumented
answer.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from openapi_spec_validator import validate
from schemathesis.specs.openapi.checks import positive_data_acceptance

from datasync.config import Flags, load_config
from datasync.daemon.mirror import MirrorRunner
from datasync.daemon.openapi import document, text
from datasync.daemon.supervisor import Supervisor
from tests.support.daemons import configure, mirror_table
from tests.support.in_process_api import TOKEN, in_process_api
from tests.support.machine import Machine

FILE = Path(__file__).parents[2] / "docs/openapi.json"

schema = schemathesis.openapi.from_dict(document())


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="ds-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        machine = Machine.make(folder / "home", str(folder / "repository"))
        machine.must("init")
        (folder / "source").mkdir()
        configure(machine, mirror_table(folder / "source"))
        supervisor = Supervisor(lambda: load_config(Flags(), machine.environment()))
        with (
            mock.patch.multiple(MirrorRunner, start=mock.DEFAULT, join=mock.DEFAULT),
            in_process_api(supervisor) as found,
        ):
            yield found  # no folder that a request names is pushed
        supervisor.alerts.close()


def test_the_file_is_what_the_code_says() -> None:
    assert FILE.read_text() == text(), "write it anew: python -m datasync.daemon.openapi > docs/openapi.json"


def test_the_document_is_valid_openapi() -> None:
    validate(json.loads(FILE.read_text()))


@schema.exclude(path="/v1/events", method="GET").exclude(path="/v1/warm", method="POST").parametrize()
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_a_documented_one(case: schemathesis.Case[Any], url: str) -> None:
    """That a folder exists and a key is one, no schema can say: such a body may be refused."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    case.call_and_validate(base_url=url, headers=headers, excluded_checks=[positive_data_acceptance])
