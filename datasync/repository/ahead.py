"""An ordered parallel map with a bounded window, for reads that should overlap."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(work: Callable[[Item], Result], items: Iterable[Item], *, threads: int, window: int) -> Iterator[Result]:
    """Yield work(item) for each item in order, at most *window* of them started and not yet taken."""
    with ThreadPoolExecutor(threads, thread_name_prefix="read") as pool:
        started: deque[Future[Result]] = deque()
        try:
            for item in items:
                started.append(pool.submit(work, item))
                if len(started) >= window:
                    yield started.popleft().result()
            while started:
                yield started.popleft().result()
        finally:
            for future in started:
                future.cancel()
