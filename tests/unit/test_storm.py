"""A storm of 503 ends no transfer, and its end is seen soon: no clock, no sleep."""

import random
from dataclasses import dataclass, field

import pytest

from datasync.errors import SlowDown, StorageUnavailable
from datasync.storage.memory import MemoryStore
from datasync.storage.protocol import Created
from datasync.storage.retry import RetryBudget, RetryingStore, Surroundings

SEEN_SECONDS = RetryBudget().slow_cap_seconds


@dataclass(eq=False)
class Stormy(MemoryStore):
    """Answers SlowDown until *ends*, on a clock that only sleep moves."""

    ends: float
    now: float = 0.0
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def __post_init__(self) -> None:
        super().__init__()

    def put_if_absent(self, name: str, data: bytes | bytearray | memoryview) -> Created:
        if self.now < self.ends:
            raise SlowDown("the server answered 503 SlowDown")
        return super().put_if_absent(name, data)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def surroundings(self) -> Surroundings:
        return Surroundings(self.sleep, self.chance.random, lambda: self.now)


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("seconds", [1.0, 30.0, 60.0])
def test_a_storm_is_outlived_and_its_end_seen_soon(seed: int, seconds: float) -> None:
    store = Stormy(seconds, chance=random.Random(seed))
    RetryingStore(store, around=store.surroundings()).put_if_absent("pack", b"data")
    assert store.get("pack", limit=4) == b"data"
    assert store.now <= seconds + SEEN_SECONDS


def test_a_storm_without_an_end_is_given_up() -> None:
    store = Stormy(float("inf"))
    with pytest.raises(StorageUnavailable, match="tried 48 times"):
        RetryingStore(store, around=store.surroundings()).put_if_absent("pack", b"data")
    assert store.now < RetryBudget().seconds
