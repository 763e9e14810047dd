"""One push of a mirrored folder: the same service as `datasync push`, with what `[[mirror]]` says.

Raises as a push does: `SourceLost` and `NotFound` mean that the source is not what it was, `SourceChanged` that the
dataset belongs to another tree; everything else is worth another try later.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from datasync.config import Config
from datasync.push.options import Progress, PushOptions
from datasync.service.daemon_settings import Mirror, seconds, share
from datasync.service.push import Pushed, push_directory
from datasync.service.session import TOOL, Session


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a person wants of one push: losing most of the source; files that were written a moment ago."""

    loss: bool = False
    unsettled: bool = False


def mirror_once(
    config: Config,
    mirror: Mirror,
    allowed: Allowed,
    report: Callable[[Progress], None],
    warn: Callable[[str], None],
) -> Pushed:
    """Push the folder of *mirror* once; recorded."""
    session = Session(config, warn=warn)
    options = PushOptions(
        include=mirror.include,
        exclude=mirror.exclude,
        allow_empty=allowed.loss,
        max_loss=share(mirror.max_loss, "max_loss"),
        source_change=mirror.shared,
        settle_seconds=0.0 if allowed.unsettled else seconds(mirror.stable, "stable"),
        xattrs=mirror.xattrs,
        chunker=config.chunker,
        tool=TOOL,
    )
    try:
        return push_directory(
            session, Path(mirror.path), mirror.dataset, options, tag=mirror.tag or None, report=report
        )
    finally:
        session.close()
