"""One encrypted repository: keys, packs, manifests, snapshots and their checks (docs/format.md).

Joins crypto, format and storage.
"""
