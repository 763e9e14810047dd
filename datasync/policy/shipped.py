"""The files that come with datasync: schema, built-in roles, built-in denials (`policies/` in the source)."""

from functools import cache
from pathlib import Path

SCHEMA = "schema.cedarschema"
ROLES = "roles.toml"
GUARDS = "guards.cedar"
DIRECTORY = Path(__file__).parent / "shipped"


@cache
def shipped(name: str) -> str:
    """Return the text of a shipped file."""
    return (DIRECTORY / name).read_text(encoding="utf-8")
