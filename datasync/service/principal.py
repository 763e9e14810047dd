"""Who asks a daemon, and what they may do there."""

from dataclasses import dataclass

from datasync.errors import NotAuthorized

ANY = "*"


@dataclass(frozen=True, slots=True)
class Right:
    """Actions on datasets (`*`: all), on snapshots from `first` to `last` (0: any), until a time in ms (0: no end)."""

    datasets: tuple[str, ...]
    actions: tuple[str, ...]
    until: int
    first: int = 1
    last: int = 0

    def covers(self, action: str, dataset: str | None, now: int) -> bool:
        """Tell whether this right is for that."""
        of_dataset = dataset is None or ANY in self.datasets or dataset in self.datasets
        return of_dataset and action in self.actions and (not self.until or now < self.until)


@dataclass(frozen=True, slots=True)
class Proved:
    """What was verified of a subject besides its name; what is not known stays so."""

    mfa: bool = False
    attested: bool = False
    region: str | None = None
    purpose: str | None = None


NOTHING = Proved()


@dataclass(frozen=True, slots=True)
class Principal:
    """A subject, who vouches for it, and how it showed that; `admin` is this machine's own user, or a member of its
    group; `own` is the daemon's own user, or root.
    """

    subject: str
    issuer: str
    method: str
    rights: tuple[Right, ...] = ()
    admin: bool = False
    own: bool = False
    proved: Proved = NOTHING
    address: str | None = None  # that its connection came from

    def right(self, action: str, dataset: str | None, now: int) -> Right:
        """Return the right to do *action*; raise `NotAuthorized`."""
        for right in self.rights:
            if right.covers(action, dataset, now):
                return right
        if self.admin:
            return Right((ANY,), (action,), 0)
        where = f" dataset {dataset!r}" if dataset is not None else ""
        raise NotAuthorized(f"{self.subject}: no right to {action}{where}: ask the owner for a token that names it")
