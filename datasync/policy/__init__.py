"""Access policies: roles and conditions as files, decided by Cedar (docs/policy.md). Pure: no clock, no network."""
