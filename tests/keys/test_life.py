"""The whole life of a dataset's keys, played by three people and two machines over stores of several kinds."""

from pathlib import Path

import pytest

from tests.keys.life import play
from tests.support.people import Person
from tests.support.stores import Running


@pytest.mark.parametrize("kind", ["local", "moto"])
def test_three_people_and_two_machines_play_the_whole_life(
    tmp_path: Path, running: Running, fresh_bucket: str, kind: str
) -> None:
    server = running.server(kind)
    url, environment = server.make_bucket(fresh_bucket), server.environment()
    play(tmp_path, lambda name: Person.make(tmp_path, name, url, None, **environment))
