"""Key management services that protect a slot key (docs/kms.md; docs/format.md, section 7).

`resolve` turns a KMS URI into a `KeyService`; a provider's module is imported only then. A service protects 32 random
bytes and nothing else: what binds a slot to its dataset, epoch and place is our own committing box, so no provider is
relied on for that.
"""

from datasync.crypto.kms.protocol import KMS_KINDS, KeyService, KeyUri, parse_key_uri
from datasync.crypto.kms.resolve import resolve

__all__ = ["KMS_KINDS", "KeyService", "KeyUri", "parse_key_uri", "resolve"]
