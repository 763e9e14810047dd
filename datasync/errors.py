"""The whole error tree: one class per thing that the caller does next, one exit code per class.

    DatasyncError               1   unexpected
    ├── UsageError              2   correct the command or the configuration
    │   └── NewerFormat         2   install a newer datasync
    ├── PartialFailure          3   look at what was skipped, each was named
    ├── NotFound                4   correct the reference or the path
    ├── StorageUnavailable      5   try again later, the same line resumes
    │   └── SlowDown            5   the same, with fewer requests at a time
    ├── NotAuthorized           6   ask for the right, or renew the credentials
    ├── IntegrityError          7   stop: something is not what was written
    │   ├── FormatError         7   bytes that do not parse
    │   ├── RollbackError       7   an older or another state than the one known here
    │   └── UntrustedError      7   nothing says that this state may be believed
    ├── NoSpace                 8   make room
    ├── NoRepository            10  run `datasync init`, or correct the URL
    ├── Locked                  11  another process holds it: wait
    ├── WrongKey                12  use another identity or passphrase
    └── DeadlineExceeded        13  it took longer than was allowed

`AlreadyExists` (storage only) never reaches a user. A message names the object, what was expected, what was
found, and what to do; it never holds a secret.
"""

from typing import ClassVar


class DatasyncError(Exception):
    """Base of everything that datasync raises on purpose."""

    exit_code: ClassVar[int] = 1


class UsageError(DatasyncError):
    """The command line, a URL or the configuration is wrong."""

    exit_code = 2


class NewerFormat(UsageError):
    """The repository was made by a newer datasync."""


class PartialFailure(DatasyncError):
    """The work is done except for what was skipped; each was named."""

    exit_code = 3


class NotFound(DatasyncError):
    """A dataset, snapshot, tag, object or path does not exist."""

    exit_code = 4


class StorageUnavailable(DatasyncError):
    """Network or service trouble that a later try may not meet."""

    exit_code = 5


class SlowDown(StorageUnavailable):
    """The store has more requests than it takes; *retry_after* is the pause in seconds that it asks for, 0 for none."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NotAuthorized(DatasyncError):
    """Refused by policy, or by the store's credentials."""

    exit_code = 6


class IntegrityError(DatasyncError):
    """Bytes are not the bytes that were written, or a signature does not hold."""

    exit_code = 7


class FormatError(IntegrityError):
    """Bytes do not parse as docs/format.md says."""


class RollbackError(IntegrityError):
    """The store offers an older state, or another one, than this machine has seen."""


class UntrustedError(IntegrityError):
    """A dataset whose trust root nothing on this machine vouches for."""


class NoSpace(DatasyncError):
    """A disk, a quota or the cache's limit is full."""

    exit_code = 8


class NoRepository(DatasyncError):
    """There is no repository at this URL."""

    exit_code = 10


class Locked(DatasyncError):
    """Another process holds the lock or lease."""

    exit_code = 11


class WrongKey(DatasyncError):
    """No identity or passphrase at hand opens this."""

    exit_code = 12


class DeadlineExceeded(DatasyncError):
    """It took longer than was allowed."""

    exit_code = 13


class AlreadyExists(DatasyncError):
    """put_if_absent found another object under the name; callers always handle it."""
