"""What removing objects from a store may answer: gone, or kept by the store, and until when. Values only."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kept:
    """An object that the store keeps: why, and until when (Unix time; None: not known, or for ever)."""

    name: str
    why: str
    until: float | None = None


Remove = Callable[[Iterable[str]], list[Kept]]
"""Removes objects; a name that is not there is no error. Returns those that the store would not let go."""
