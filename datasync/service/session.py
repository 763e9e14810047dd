"""A session: the configuration in force, the identity, the store behind its decorators, and the repository."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from datasync import __version__
from datasync.config import Config
from datasync.crypto.identity import Identity, read_identity, write_identity
from datasync.errors import NotFound, UsageError, WrongKey
from datasync.repository.repository import Ask, Holder, LocalPaths, Repository, create_repository
from datasync.storage.location import open_store, parse_url
from datasync.storage.meter import MeteredStore
from datasync.storage.probe import honours_put_if_absent
from datasync.storage.retry import RetryingStore

TOOL = f"datasync {__version__}"


@dataclass(frozen=True, slots=True)
class Initialised:
    """What `init` did."""

    url: str
    repository: str
    conditional: bool
    identity: Path
    identity_created: bool


class Session:
    """One use of datasync. Close it at the end."""

    def __init__(self, config: Config, *, ask: Ask | None = None, warn: Callable[[str], None] | None = None) -> None:
        self.config = config
        self._ask = ask
        self.warn = warn or (lambda text: None)

    @cached_property
    def store(self) -> MeteredStore:
        """The store of the configured repository; each try is metered."""
        if not self.config.repository:
            raise UsageError(
                "repository: none was given: pass --repository, set DATASYNC_REPOSITORY, or write it into datasync.toml"
            )
        return MeteredStore(RetryingStore(open_store(parse_url(self.config.repository))))

    @cached_property
    def identity(self) -> Identity | None:
        """The identity, None when there is no file and a passphrase is at hand."""
        try:
            return read_identity(self.config.identity)
        except NotFound:
            if self.config.passphrase is not None:
                return None
            raise WrongKey(
                f"identity {self.config.identity}: expected the file, found none: "
                "run `datasync init`, or set DATASYNC_IDENTITY or DATASYNC_PASSPHRASE"
            ) from None

    @cached_property
    def repository(self) -> Repository:
        """The repository, opened."""
        store = self.store  # a wrong URL is told before a missing identity
        holder = Holder(self.identity, self.config.passphrase, frozenset(self.config.trust), self._ask)
        return Repository(store, holder, self._paths)

    @property
    def _paths(self) -> LocalPaths:
        return LocalPaths(self.config.state, self.config.evidence)

    def initialise(self) -> Initialised:
        """Make the repository, and an identity if there is none."""
        store, created = self.store, False
        conditional = honours_put_if_absent(store)
        if not os.path.lexists(self.config.identity):
            write_identity(self.config.identity, Identity.generate())
            created = True
        read_identity(self.config.identity)
        marker = create_repository(store, self._paths, conditional=conditional)
        return Initialised(store.url, marker.repository, conditional, self.config.identity, created)

    def close(self) -> None:
        """Give back the store's connections."""
        if "store" in self.__dict__:
            self.store.close()
