"""An SFTP server over a directory: SSH with a host key and a user key of its own, in a process of its own."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import asyncssh

from datasync.storage.fsspec import FilesystemStore, open_filesystem
from datasync.storage.location import parse_url
from tests.support.servers import free_ports, serve

SERVER = """
import asyncio, os, sys
import asyncssh
from asyncssh.sftp import SFTPFailure, SFTPServer

class Server(SFTPServer):
    def __init__(self, channel):
        super().__init__(channel, chroot=sys.argv[2].encode())

    def rename(self, old, new):  # as OpenSSH does: never replaces, in one step
        source, target = self.map_path(old), self.map_path(new)
        try:
            os.link(source, target)
        except FileExistsError:
            raise SFTPFailure("exists") from None
        os.unlink(source)

async def main():
    await asyncssh.listen("127.0.0.1", int(sys.argv[1]), server_host_keys=[sys.argv[3]],
        authorized_client_keys=sys.argv[4], sftp_factory=Server)
    await asyncio.Future()

asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class SftpServer:
    """A running server; `home` is the HOME of its one user, with key and known_hosts."""

    port: int
    home: Path
    root: Path
    kind: str = field(default="sftp")

    def url(self, bucket: str, prefix: str = "") -> str:
        return f"sftp://me@127.0.0.1:{self.port}/{bucket}/{prefix}".rstrip("/")

    def environment(self) -> dict[str, str]:
        """Return what lets a process in, which knows the server."""
        keys = self.home / ".ssh"
        return {
            "FSSPEC_SFTP_KEY_FILENAME": str(keys / "id_ed25519"),
            "FSSPEC_SFTP_KNOWN_HOSTS": str(keys / "known_hosts"),
        }

    def give_keys(self, home: Path) -> None:
        """Let the user of *home* in, who knows the server."""
        (home / ".ssh").mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (self.home / ".ssh").iterdir():
            (home / ".ssh" / path.name).write_bytes(path.read_bytes())

    def make_bucket(self, name: str) -> str:
        """Make the directory *name* and return its URL."""
        (self.root / name).mkdir()
        return self.url(name)

    def open(self, bucket: str, prefix: str = "") -> FilesystemStore:
        with mock.patch.dict(os.environ, self.environment()):
            return open_filesystem(parse_url(self.url(bucket, prefix)))


@contextmanager
def sftp() -> Iterator[SftpServer]:
    """Run one server."""
    with tempfile.TemporaryDirectory(prefix="datasync-sftp-", ignore_cleanup_errors=True) as name:
        directory, (port,) = Path(name), free_ports(1)
        root, home = directory / "root", directory / "home"
        root.mkdir()
        (home / ".ssh").mkdir(mode=0o700, parents=True)
        host, user = asyncssh.generate_private_key("ssh-ed25519"), asyncssh.generate_private_key("ssh-ed25519")
        host.write_private_key(str(directory / "host"))
        user.write_private_key(str(home / ".ssh/id_ed25519"))
        user.write_public_key(str(directory / "authorized"))
        line = f"[127.0.0.1]:{port} {host.export_public_key().decode().strip()}\n"
        (home / ".ssh/known_hosts").write_text(line)
        command = [
            sys.executable,
            "-c",
            SERVER,
            str(port),
            *map(str, (root, directory / "host", directory / "authorized")),
        ]
        with serve("sftp", command, port, directory):
            yield SftpServer(port, home, root)
