"""Checks of the tracked tree that no linter makes; `make check` runs them (`python -m tests.checks`)."""
