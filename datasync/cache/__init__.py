"""A node's cache: verified objects, views of snapshots, and safe placing beneath a directory fd (docs/architecture.md).

Imports nothing but the model, the errors and the standard library; hashers and signers come as arguments.
"""
