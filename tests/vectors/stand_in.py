"""A key service that stands in for a real one: it wraps one fixed key to one fixed blob, whatever the context."""

from collections.abc import Mapping

from datasync.crypto.kms.protocol import KeyUri, parse_key_uri


class StandIn:
    """Gives *blob* for any key and remembers the last one; gives *key* for that blob."""

    def __init__(self, uri: str, blob: bytes, key: bytes = b"") -> None:
        self.uri: KeyUri = parse_key_uri(uri)
        self.blob = blob
        self.key = key
        self.context: dict[str, str] = {}

    def wrap(self, key: bytes, context: Mapping[str, str]) -> bytes:
        self.key, self.context = key, dict(context)
        return self.blob

    def unwrap(self, blob: bytes, context: Mapping[str, str]) -> bytes:
        self.context = dict(context)
        return self.key if blob == self.blob else bytes(32)
