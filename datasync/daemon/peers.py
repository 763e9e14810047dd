"""Who is at the other end: by peer credentials of a Unix socket, a client certificate, or a bearer token.

A Unix socket's peer is this machine's own user (or root, or a member of the configured group) or nobody; the kernel
says so (SO_PEERCRED, unix(7)). Over TCP there is TLS, and a token, a JWT or a certificate. Raises `NotAuthorized`,
without telling which part of a secret was wrong.
"""

import grp
import os
import pwd
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from datasync.errors import NotAuthorized, UsageError
from datasync.service.issuers import Issuers
from datasync.service.principal import Principal
from datasync.service.tokens import PREFIX, TokenBook

_UCRED = struct.Struct("3i")
MTLS = "mtls"


@dataclass(frozen=True, slots=True)
class Authenticator:
    """What the daemon believes; *group* is a numeric group whose members may use the socket."""

    tokens: TokenBook
    issuers: Issuers
    group: int | None = None

    def local(self, connection: socket.socket) -> Principal:
        """Return the peer of a Unix socket."""
        _, uid, gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        own = uid in (os.geteuid(), 0)
        if own or (self.group is not None and self._member(uid, gid)):
            return Principal(_user_name(uid), "os-user", f"uid {uid}", admin=True, own=own)
        raise NotAuthorized(f"uid {uid}: this socket is for the daemon's own user: use a token over TLS")

    def _member(self, uid: int, gid: int) -> bool:
        if gid == self.group:
            return True
        try:
            return self.group in os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
        except KeyError:
            return False

    def remote(self, authorization: str | None, certificate: Mapping[str, Any] | None) -> Principal:
        """Return the subject of a token or a verified client certificate."""
        if authorization is not None:
            scheme, _, text = authorization.partition(" ")
            if scheme.lower() != "bearer" or not text:
                raise NotAuthorized("Authorization: expected a bearer token")
            if text.startswith(PREFIX):
                return self.tokens.principal(text, int(time.time() * 1000))
            return self.issuers.principal(text)
        if certificate:
            return self.issuers.known(MTLS, _subject(certificate), "mtls")
        raise NotAuthorized("expected a bearer token or a client certificate, found neither")


def _subject(certificate: Mapping[str, Any]) -> str:
    """Return a verified certificate's first URI (SPIFFE), else its first DNS name; never the common name."""
    names = certificate.get("subjectAltName", ())
    for wanted in ("URI", "DNS"):
        for kind, value in names:
            if kind == wanted:
                return str(value)
    raise NotAuthorized("client certificate: expected a URI or DNS name in it, found neither")


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_id(name: str) -> int | None:
    """Return the number of the group called *name*, None for an empty one."""
    if not name:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise UsageError(f"[daemon] group: this machine has no group {name!r}") from None
