"""Verify one dataset or all that open."""

from collections.abc import Callable, Iterator

from datasync.repository.check import CheckResult, check_dataset
from datasync.service.session import Session


def verify(
    session: Session, name: str | None, *, read_data: bool, sample: float, report: Callable[[CheckResult], None]
) -> Iterator[tuple[str, CheckResult]]:
    """Yield each dataset's name and what was found."""
    datasets = [session.repository.open(name)] if name is not None else session.repository.open_all()[0]
    for dataset in datasets:
        result = check_dataset(dataset.history, dataset.keyring, read_data=read_data, sample=sample, report=report)
        yield dataset.name, result
