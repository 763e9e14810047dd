"""Authorize, act, record: what the CLI, the Python API and (later) the daemon call, one module per subject."""
