"""Opens fsspec's file systems: one connection for each thread, nothing cached, waits bounded where we know how.

Credentials are the file system's own: fsspec's configuration (~/.config/fsspec, FSSPEC_<SCHEME>_<OPTION>), keys
in ~/.ssh or an agent. SFTP gets what fsspec's default lacks: unknown hosts are refused (the user's known_hosts, or
FSSPEC_SFTP_KNOWN_HOSTS, decides; RFC 4253, section 4.1), reads and writes are pipelined, and a rename that never
replaces. Raises what the file system raises; `UsageError` for a scheme that fsspec does not know or whose package is
not installed.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import fsspec
from fsspec import AbstractFileSystem
from fsspec.config import conf, set_conf_env

from datasync.errors import UsageError
from datasync.storage.location import StoreUrl

CONNECT_SECONDS = 10.0
STALL_SECONDS = 60.0
SFTP_SCHEMES = ("sftp", "ssh")

Opener = Callable[[], AbstractFileSystem]


def opener(where: StoreUrl) -> Opener:
    """Return what opens a fresh file system for *where*."""
    try:
        kind = fsspec.get_filesystem_class(_protocol(where))
        if where.scheme in SFTP_SCHEMES:
            kind = _pipelined_sftp(kind)
    except (ImportError, ValueError) as error:
        missing = error.name if isinstance(error, ImportError) and error.name else "a package"
        said = f"{missing} is not installed" if isinstance(error, ImportError) else "fsspec does not know it"
        raise UsageError(f"repository URL: unknown scheme {where.scheme}://: {said}") from error
    options = _options(where)
    return lambda: kind(**options)


def _options(where: StoreUrl) -> dict[str, Any]:
    """Return what the URL says, as the file system wants it, and our own conditions."""
    now: dict[str, Any] = {}
    set_conf_env(now)  # fsspec itself reads the variables once, when it is imported
    protocol = _protocol(where)
    found = {**conf.get(protocol, {}), **now.get(protocol, {}), **_from_url(where)}
    if isinstance(found.get("auth"), list):
        found["auth"] = tuple(found["auth"])  # JSON has no tuples, and WebDAV's client wants one: name and password
    if where.scheme in SFTP_SCHEMES:
        found |= {"timeout": CONNECT_SECONDS, "banner_timeout": CONNECT_SECONDS, "auth_timeout": CONNECT_SECONDS}
    return found | {"skip_instance_cache": True}


def _protocol(where: StoreUrl) -> str:
    """Return fsspec's own name: `webdav+https` is WebDAV over https."""
    return where.scheme.partition("+")[0]


def _from_url(where: StoreUrl) -> dict[str, Any]:
    if _protocol(where) == "webdav":
        secure = where.scheme.rpartition("+")[2] != "http"
        return {"base_url": f"http{'s' if secure else ''}://{where.place}", "timeout": STALL_SECONDS}
    parts = urlsplit(f"//{where.place}")
    found = {"host": parts.hostname, "port": parts.port, "username": parts.username}
    return {name: value for name, value in found.items() if value} if parts.hostname else {}


def _pipelined_sftp(base: Any) -> Any:
    """Return fsspec's SFTP file system with our own ways; paramiko is imported by fsspec only when it is asked for."""
    import paramiko

    class Sftp(base):  # type: ignore[misc]
        def _connect(self) -> None:
            self.client = paramiko.SSHClient()
            options = dict(self.ssh_kwargs)
            self.client.load_system_host_keys(options.pop("known_hosts", None))  # None: the user's own
            self.client.set_missing_host_key_policy(paramiko.RejectPolicy())
            self.client.connect(self.host, **options)
            self.ftp = self.client.open_sftp()
            self.ftp.get_channel().settimeout(STALL_SECONDS)

        def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
            with self.ftp.open(path, "rb") as file:
                first = start or 0
                last = file.stat().st_size if end is None else end
                return b"".join(file.readv([(first, last - first)]))

        def pipe_file(self, path: str, value: Any, **_: Any) -> None:
            with self.ftp.open(path, "wb") as file:
                file.set_pipelined(True)
                file.write(value)

        def rename_new(self, source: str, target: str) -> None:
            """Rename unless *target* exists: SSH_FXP_RENAME of protocol version 3, which OpenSSH makes of link()."""
            self.ftp.rename(source, target)

        def close(self) -> None:
            self.client.close()

    return Sftp
