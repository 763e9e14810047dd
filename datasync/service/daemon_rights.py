"""Who may manage a daemon: the policies in force say it of who asks, besides what the socket lets in.

The daemon's own user, and root, ask as this machine's identity: they could use it anyway. A member of the daemon's
group asks as `os-user#NAME`, which a policy may list among somebody's identities. Raises `NotAuthorized`.
"""

from datasync.config import Config
from datasync.service.authorize import authorize
from datasync.service.principal import Principal
from datasync.service.release import claims_of

ACTION = "ManageDaemon"


def manage(config: Config, principal: Principal | None = None, dataset: str | None = None) -> None:
    """Allow *principal* (None: the daemon's own user) to manage this daemon, or its mirror of *dataset*."""
    claims = None if principal is None or principal.own else claims_of(principal)
    authorize(config, ACTION, dataset, claims=claims)
