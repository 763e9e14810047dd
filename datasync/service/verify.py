"""Verify one dataset or all that open."""

from collections.abc import Callable, Iterator

from datasync.errors import IntegrityError
from datasync.repository.check import CheckResult, check_dataset
from datasync.service.authorize import authorize
from datasync.service.record import alarm, recorded, without_paths
from datasync.service.session import Session


def verify(
    session: Session, name: str | None, *, read_data: bool, sample: float, report: Callable[[CheckResult], None]
) -> Iterator[tuple[str, CheckResult]]:
    """Yield each dataset's name and what was found; each is recorded, and what is wrong raises an alarm."""
    datasets = [session.repository.open(name)] if name is not None else session.repository.open_all()[0]
    for dataset in datasets:
        with recorded(session, "verify", dataset=dataset.name, dataset_id=dataset.id, read_data=read_data) as event:
            authorize(session, "ReadData" if read_data else "ReadMetadata", dataset, event=event)
            result = check_dataset(dataset.history, dataset.keyring, read_data=read_data, sample=sample, report=report)
            event.note(files=result.files, bytes=result.read_bytes, problems=len(result.problems))
            if result.problems:
                event.outcome("failure", f"{len(result.problems)} problems")
        if result.problems:
            first = IntegrityError(without_paths(result.problems[0]))
            alarm(session, first, dataset=dataset.name, dataset_id=dataset.id, problems=len(result.problems))
        yield dataset.name, result
