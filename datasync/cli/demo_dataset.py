"""The dataset of `datasync demo`: the licence texts that the package licensedcode-data ships, and their changes.

Copies the files into a working directory and changes only the copies. Raises `UsageError` where the extra `demo` is
not installed, `NoSpace` where the copies do not fit.
"""

import errno
import importlib.util
import shutil
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from datasync.errors import NoSpace, UsageError

PACKAGE = "licensedcode-data"
FOLDER = "licensedcode/data/licenses"
LICENCE = "CC-BY-4.0"
AUTHORS = "nexB Inc. and others"
EACH = 12  # files that are changed, added, deleted, moved


@dataclass(frozen=True, slots=True)
class Origin:
    """The installed dataset; `late` are the files that the working directory gets only when it is changed."""

    version: str
    files: tuple[Path, ...]
    late: tuple[Path, ...]
    bytes: int


def locate() -> Origin:
    """Return the installed dataset; raise `UsageError` when it, or what trains on it, is missing."""
    missing = [] if importlib.util.find_spec("numpy") else ["numpy"]
    files: list[Path] = []
    version = ""
    try:
        package = metadata.distribution(PACKAGE)
        version = package.version
        files = sorted(Path(str(package.locate_file(FOLDER))).glob("*.LICENSE"))
    except metadata.PackageNotFoundError:
        pass  # told below, together with numpy
    if len(files) < 10 * EACH:
        missing.insert(0, PACKAGE)
    if missing:
        raise UsageError(f"demo: {' and '.join(missing)} not found: run pip install 'gpu-datasync[demo]'")
    late = tuple(files[:: len(files) // EACH][:EACH])
    return Origin(version, tuple(files), late, sum(file.stat().st_size for file in files))


def copy(origin: Origin, target: Path) -> None:
    """Make the working directory *target*: all files but the late ones."""
    target.mkdir()
    late = frozenset(origin.late)
    _copy([file for file in origin.files if file not in late], target)


def change(origin: Origin, target: Path) -> None:
    """Add the late files, change some, delete some deprecated ones and move some others into a new directory."""
    deprecated: list[Path] = []
    current: list[Path] = []
    for file in sorted(target.iterdir()):
        is_deprecated = "\nis_deprecated: yes\n" in file.read_text("utf-8")
        (deprecated if is_deprecated else current).append(file)
    for file in current[:EACH]:
        front, mark, text = file.read_text("utf-8").removeprefix("---\n").partition("\n---\n")
        file.write_text(f"---\n{front}\nreviewed: yes{mark}{text}", "utf-8")
    for file in deprecated[:EACH]:
        file.unlink()
    moved = target / "deprecated"
    moved.mkdir()
    for file in deprecated[EACH : 2 * EACH]:
        file.rename(moved / file.name)
    _copy(origin.late, target)


def _copy(files: list[Path] | tuple[Path, ...], target: Path) -> None:
    try:
        for file in files:
            shutil.copyfile(file, target / file.name)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(
                f"{target}: no space for the demo's files: set TMPDIR to a directory with 100 MB free"
            ) from None
        raise
