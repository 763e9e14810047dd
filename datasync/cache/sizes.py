"""Sizes as settings write them: `500GiB`, `80%`. Pure: reading the settings loads nothing of the cache's engine.

Raises `UsageError` that names the setting.
"""

import re

from datasync.errors import UsageError

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(%|B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?")
_UNITS = {unit + "B": 1000**at for at, unit in enumerate(("", "K", "M", "G", "T"))}
_UNITS |= {unit + "iB": 1024**at for at, unit in enumerate(("K", "M", "G", "T"), 1)}


def parse_size(text: str, what: str) -> tuple[float, bool]:
    """Return (number, is a share) for `80%`, `500GiB` or plain bytes; raise `UsageError`."""
    match = _SIZE.fullmatch(text.strip())
    if not match or (match[2] == "%" and float(match[1]) > 100):
        raise UsageError(f"{what}: expected a size like 500GiB or a share like 80%, found {text!r}")
    number = float(match[1])
    return (number / 100, True) if match[2] == "%" else (number * _UNITS[match[2] or "B"], False)
