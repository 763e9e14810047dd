"""The only place that calls cryptographic primitives (docs/format.md, sections 2 to 8, says what each is for)."""
