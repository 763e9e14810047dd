"""All ranks of a job agree that they read the same snapshot (docs/jobs.md).

    import datasync
    datasync.torch.assert_same_snapshot("imagenet")  # after init_process_group, before the first step

Each rank reads the receipt beside its own view and all compare the root hashes, so a tag that moved between two nodes,
or a node that kept an older view, ends the job before it trains on mixed data. A rank that has no receipt still takes
part, so that nobody waits for it; then every rank raises. torch is imported here only, when the function is called.
Raises `IntegrityError`, and `UsageError` for a dataset that no variable names.
"""

import importlib
import os
import socket
from collections import Counter
from pathlib import Path
from typing import Any

from datasync.cache.layout import READY_SUFFIX
from datasync.cache.ready import READY_BYTES, parse_ready
from datasync.errors import DatasyncError, IntegrityError, UsageError
from datasync.service.references import parse_reference
from datasync.service.warm import variables

PREFIX = "DATASYNC_DATASET_"
SHOWN_DIGITS = 16
SHOWN_RANKS = 16

Answer = tuple[str, str, str]
"""What a rank says: its root hash in hex, or what kept it from one, and its host."""


def assert_same_snapshot(ready_path_or_dataset: str | os.PathLike[str] | None = None, group: Any = None) -> str:
    """Return the root hash (hex) that all ranks of *group* hold; raise `IntegrityError` naming the ranks that differ.

    The argument is a dataset's name, the path of a view or of its receipt; None means the one dataset that `datasync
    run` gave. A collective call: every rank of the group makes it. With nccl call torch.cuda.set_device before.
    """
    root, trouble = "", None
    try:
        root = _root(ready_path_or_dataset)
    except DatasyncError as error:
        trouble = error
    answers = _gather((root, str(trouble or ""), socket.gethostname()), group)
    if trouble is not None:
        raise trouble
    compare(answers)
    return root


def compare(answers: dict[int, Answer]) -> None:
    """Refuse *answers*, by rank, that are not all the same root hash."""
    missing = {rank: answer for rank, answer in answers.items() if not answer[0]}
    if missing:
        told = "; ".join(f"rank {rank} ({host}): {why}" for rank, (_, why, host) in list(missing.items())[:SHOWN_RANKS])
        raise IntegrityError(f"snapshot of {_ranks(list(missing))}: expected a ready view on every rank, found {told}")
    counts = Counter(root for root, _, _ in answers.values())
    common = counts.most_common(1)[0][0]
    differing = {rank: answer for rank, answer in answers.items() if answer[0] != common}
    if differing:
        told = "; ".join(
            f"rank {rank} ({host}) {root[:SHOWN_DIGITS]}…"
            for rank, (root, _, host) in list(differing.items())[:SHOWN_RANKS]
        )
        raise IntegrityError(
            f"snapshot of {_ranks(list(differing))}: expected root hash {common[:SHOWN_DIGITS]}… as on "
            f"{counts[common]} of {len(answers)} ranks, found {told}: name one snapshot (NAME@SEQ) and warm again"
        )


def _ranks(ranks: list[int]) -> str:
    more = f" and {len(ranks) - SHOWN_RANKS} more" if len(ranks) > SHOWN_RANKS else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:SHOWN_RANKS]))}{more}"


def _root(asked: str | os.PathLike[str] | None) -> str:
    view = _view(asked)
    receipt = (
        view if view.name.endswith(os.fsdecode(READY_SUFFIX)) else view.with_name(view.name + os.fsdecode(READY_SUFFIX))
    )
    place = receipt.with_name(receipt.name.removesuffix(os.fsdecode(READY_SUFFIX)))
    try:
        with receipt.open("rb") as file:
            data = file.read(READY_BYTES + 1)
    except OSError as error:
        raise IntegrityError(
            f"{receipt}: expected the receipt of a ready view, found {error.strerror}: warm again"
        ) from None
    if not place.is_dir():
        raise IntegrityError(f"{place}: expected the view that its receipt speaks of, found none: warm again")
    return parse_ready(data, str(receipt)).root.hex()


def _view(asked: str | os.PathLike[str] | None) -> Path:
    if asked is not None and (not isinstance(asked, str) or "/" in asked):
        return Path(os.path.abspath(asked))
    known = sorted(name for name in os.environ if name.startswith(PREFIX))
    if asked is None:
        if len(known) != 1:
            raise UsageError(
                f"assert_same_snapshot: expected one variable {PREFIX}…, found {len(known)}: name the dataset"
            )
        variable = known[0]
    else:
        variable = variables(parse_reference(asked).name)[0]
    if not os.environ.get(variable):
        raise UsageError(f"{variable}: expected the path of a view, found it unset: start the job with datasync run")
    return Path(os.path.abspath(os.environ[variable]))


def _gather(own: Answer, group: Any) -> dict[int, Answer]:
    """Return every rank's answer by its global rank; a process that is no group has rank 0 alone."""
    try:
        distributed: Any = importlib.import_module("torch.distributed")
    except ImportError as error:
        raise UsageError(f"assert_same_snapshot: expected PyTorch, found none ({error}): install torch") from None
    if not distributed.is_available() or not distributed.is_initialized():
        if int(os.environ.get("WORLD_SIZE") or 1) > 1:
            raise UsageError(
                "assert_same_snapshot: expected an initialised process group: call init_process_group first"
            )
        return {0: own}
    if distributed.get_rank(group) < 0:
        raise UsageError("assert_same_snapshot: expected a group that this rank belongs to")
    ranks = distributed.get_process_group_ranks(group or distributed.group.WORLD)
    answers: list[Answer] = [own] * len(ranks)
    distributed.all_gather_object(answers, own, group=group)
    return dict(zip(ranks, answers, strict=True))
