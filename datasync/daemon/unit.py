"""systemd units for this installation, filled in from deploy/systemd's text (docs/daemon.md)."""

from importlib import resources
from pathlib import Path


def unit_text(kind: str, python: str, config: Path | None) -> str:
    """Return the unit of *kind* (`system` or `user`) that runs *python*."""
    text = (resources.files("datasync.daemon") / f"datasync-{kind}.service").read_text(encoding="utf-8")
    option = f" --config {_quoted(str(config.resolve()))}" if config is not None else ""
    return text.replace("@python@", _quoted(python)).replace("@options@", option)


def _quoted(text: str) -> str:
    """Return *text* as one word of a unit's command line (systemd.syntax(7))."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'
