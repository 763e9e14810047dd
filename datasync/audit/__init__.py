"""The audit log: canonical events in an RFC 6962 Merkle tree, signed checkpoints, proofs (docs/audit.md)."""
