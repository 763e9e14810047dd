"""What lets this machine or its nodes in, and when it ends: certificates, offline grants, tokens that were given.

Something ends soon when less is left than `[alerts] ending`, and than a tenth of its own life: a token of twelve hours
is no news for a week. What ended is no longer listed: what it was for fails then, and is told by itself. Raises
`UsageError` for a file that can not be read, `FormatError` for one that is none.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from datasync.config import Config
from datasync.format.grant import read_grant
from datasync.service.caller import grant_line
from datasync.service.certificates import ends_in
from datasync.service.daemon_settings import Settings
from datasync.service.tokens import listed

CERTIFICATE, GRANT = "certificate-ending", "grant-ending"
SHARE = 0.1  # of its life


@dataclass(frozen=True, slots=True)
class Ending:
    """One thing that ends: the kind of its alert, what it is, seconds left, seconds it lives (0: not known)."""

    kind: str
    subject: str
    left: float
    life: float = 0.0

    def soon(self, within: float) -> bool:
        """Tell whether somebody should hear of it."""
        return self.left < (min(within, SHARE * self.life) if self.life else within)

    @property
    def text(self) -> str:
        """When it ends, for a person."""
        moment = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(time.time() + self.left))
        return f"ended at {moment}: renew it" if self.left <= 0 else f"ends at {moment}: renew it before"


def certificates(settings: Settings) -> Iterator[Ending]:
    """Yield the server's certificate and the one that this node shows to its control side, if they are set."""
    for path in (settings.server.certificate, settings.control.certificate):
        if path:
            yield Ending(CERTIFICATE, path, ends_in(Path(path)))


def grants(config: Config) -> Iterator[Ending]:
    """Yield the offline grants of this machine that are not over."""
    now = time.time()
    for path in config.grants:
        grant, _ = read_grant(grant_line(path), str(path))
        if grant.until / 1000 > now:
            yield Ending(GRANT, str(path), grant.until / 1000 - now, (grant.until - grant.issued) / 1000)


def tokens(config: Config) -> Iterator[Ending]:
    """Yield the tokens that this machine gave and that still live."""
    now = time.time()
    for token in listed(config):
        if not token.revoked and token.until / 1000 > now:
            subject = f"token {token.id} of {token.node}"
            yield Ending(GRANT, subject, token.until / 1000 - now, (token.until - token.created) / 1000)
