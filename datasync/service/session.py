"""A session: the configuration in force, the identity, the store behind its decorators, and the repository."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from datasync import __version__
from datasync.config import Config
from datasync.crypto.identity import Identity
from datasync.crypto.identity_file import read_identity, replace_identity, write_identity
from datasync.crypto.kms.resolve import resolve
from datasync.errors import NotAuthorized, NotFound, UsageError, WrongKey
from datasync.repository.belief import Ask, Holder
from datasync.repository.holders import Secrets
from datasync.repository.repository import LocalPaths, Repository, create_repository
from datasync.service.record import recorded
from datasync.storage.limit import limited, parse_timetable
from datasync.storage.location import open_store, parse_url
from datasync.storage.meter import MeteredStore
from datasync.storage.probe import honours_put_if_absent
from datasync.storage.protocol import ObjectStore
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
    """One use of datasync. Close it at the end.

    *ask* asks a person whether a dataset is to be trusted, *secret* for a passphrase (its words tell for what).
    """

    decided = False
    """True where somebody else has asked the policies: the control side that lent the key."""

    def __init__(
        self,
        config: Config,
        *,
        ask: Ask | None = None,
        warn: Callable[[str], None] | None = None,
        secret: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self.config = config
        self._ask = ask
        self.secret = secret
        self.warn = warn or (lambda text: None)

    @cached_property
    def store(self) -> MeteredStore:
        """The store of the configured repository; each try is metered."""
        if not self.config.repository:
            raise UsageError(
                "repository: none was given: pass --repository, set DATASYNC_REPOSITORY, or write it into datasync.toml"
            )
        return MeteredStore(RetryingStore(limited(self.driver, parse_timetable(self.config.bwlimit))))

    @cached_property
    def driver(self) -> ObjectStore:
        """The store's own driver, for what only some stores can do (`datasync.storage.extras`)."""
        where = parse_url(self.config.repository or "")
        if self.config.storage_class is not None:
            where = where.with_option("storage_class", self.config.storage_class)
        return open_store(where)

    def tell_notes(self) -> None:
        """Warn of what this store costs or does besides storing."""
        from datasync.storage.extras import Notes  # what only some stores can do, and init alone asks

        if isinstance(self.driver, Notes):
            with suppress(NotAuthorized, UsageError):  # these credentials may not ask, or this server can not tell
                for text in self.driver.notes():
                    self.warn(text)

    @cached_property
    def identity(self) -> Identity | None:
        """The identity, None when there is no file and a passphrase is at hand."""
        try:
            return self.read_identity()
        except NotFound:
            if self.config.passphrase is not None or self.config.kms:
                return None
            raise WrongKey(
                f"identity {self.config.identity}: expected the file, found none: "
                "run `datasync init`, or set DATASYNC_IDENTITY or DATASYNC_PASSPHRASE"
            ) from None

    def read_identity(self) -> Identity:
        """Return the identity in its file; `NotFound` without one."""
        path = self.config.identity
        return read_identity(path, lambda: self.config.identity_passphrase or self.secret(f"Passphrase of {path}"))

    def keep_identity(self, identity: Identity) -> None:
        """Replace the identity's file."""
        replace_identity(self.config.identity, identity)
        self.__dict__["identity"] = identity

    @cached_property
    def secrets(self) -> Secrets:
        """Everything at hand that opens slots."""
        return Secrets(self.identity, self.config.passphrase, tuple(map(resolve, self.config.kms)))

    @cached_property
    def repository(self) -> Repository:
        """The repository, opened."""
        store = self.store  # a wrong URL is told before a missing identity
        holder = Holder(self.secrets, frozenset(self.config.trust), self._ask)
        return Repository(store, holder, self._paths)

    @property
    def _paths(self) -> LocalPaths:
        return LocalPaths(self.config.state, self.config.evidence)

    def initialise(self) -> Initialised:
        """Make the repository, and an identity if there is none."""
        store = self.store
        self.tell_notes()
        with recorded(self, "init"):
            return self._initialise(store)

    def _initialise(self, store: MeteredStore) -> Initialised:
        created = False
        conditional = honours_put_if_absent(store)
        if not os.path.lexists(self.config.identity):
            write_identity(self.config.identity, Identity.generate())
            created = True
        self.read_identity()
        marker = create_repository(store, self._paths, conditional=conditional)
        return Initialised(store.url, marker.repository, conditional, self.config.identity, created)

    def close(self) -> None:
        """Give back the store's connections."""
        if "store" in self.__dict__:
            self.store.close()
