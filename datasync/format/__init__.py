"""Bytes to values and back, one module per section of docs/format.md.

Sees no keys and does no I/O; raises `FormatError` only.
"""
