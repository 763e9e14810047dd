"""Values that every layer shares: frozen, no I/O (docs/glossary.md has the words)."""
