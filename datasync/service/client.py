"""Speaks to a daemon: this machine's over its Unix socket, a control side's over TLS 1.3.

Answers are JSON of bounded size, or a stream of events; an error keeps its class and so its exit code. Redirects are
not followed. Raises the error that the daemon names, `StorageUnavailable` when it does not answer, `UsageError` for a
URL that is no daemon's.
"""

import http.client
import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from datasync import errors
from datasync.config import Config
from datasync.errors import DatasyncError, IntegrityError, NotAuthorized, NotFound, StorageUnavailable, UsageError
from datasync.model.limits import KIB, MIB
from datasync.service.daemon_settings import Control, read_settings
from datasync.service.sockets import CONNECT_SECONDS, is_url, listening, reachable, socket_path
from datasync.service.verbs import LINE_BYTES

ANSWER_SECONDS = 120.0  # without a byte; a stream sends one at least every 15 s
ANSWER_BYTES = 4 * MIB
TOKEN_BYTES = 16 * KIB


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=CONNECT_SECONDS)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket's path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(CONNECT_SECONDS)
        try:
            with reachable(self._path) as name:
                self.sock.connect(name)
        except OSError:
            self.sock.close()
            raise


class Api:
    """One daemon."""

    def __init__(self, name: str, place: Path | str, token: str | None = None, context: ssl.SSLContext | None = None):
        self.name = name
        self._place, self._token, self._context = place, token, context

    @classmethod
    def local(cls, path: Path) -> "Api":
        """Return the daemon of this machine that listens at *path*."""
        return cls("daemon", path)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON answer to a request."""
        with closing(self._connect()) as connection:
            response = self._send(connection, method, path, body)
            return self._answer(response)

    def stream(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the events of a stream until the daemon ends it; raise the error that it names."""
        with closing(self._connect()) as connection:
            response = self._send(connection, method, path, body)
            if response.status != 200:
                self._answer(response)
            try:
                yield from self._events(response)
            except (OSError, http.client.HTTPException) as error:
                raise StorageUnavailable(f"{self.name}: the connection broke ({type(error).__name__})") from None

    def _events(self, response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
        while line := response.readline(LINE_BYTES + 64):
            if len(line) > LINE_BYTES + len(b"data: \n"):
                raise IntegrityError(f"{self.name}: an event is longer than {LINE_BYTES} bytes")
            if line.startswith(b"data: "):
                event = self._json(line[6:])
                if event.get("type") == "error":
                    raise error_of(event, self.name)
                yield event

    def _connect(self) -> http.client.HTTPConnection:
        if isinstance(self._place, Path):
            return _SocketConnection(self._place)
        parts = urlsplit(self._place)
        return http.client.HTTPSConnection(
            parts.hostname or "", parts.port or 443, timeout=CONNECT_SECONDS, context=self._context
        )

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Mapping[str, Any] | None
    ) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        try:
            connection.connect()
            connection.sock.settimeout(ANSWER_SECONDS)
            connection.request(method, path, data, headers)
            return connection.getresponse()
        except ssl.SSLError as error:
            raise StorageUnavailable(
                f"{self.name}: no TLS connection ({error.reason or type(error).__name__}): check its certificate"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise StorageUnavailable(f"{self.name}: no answer ({type(error).__name__}): does it run?") from None

    def _answer(self, response: http.client.HTTPResponse) -> Any:
        data = response.read(ANSWER_BYTES + 1)
        if len(data) > ANSWER_BYTES:
            raise IntegrityError(f"{self.name}: expected an answer of at most {ANSWER_BYTES} bytes")
        if response.status == 204:
            return {}
        found = self._json(data)
        if response.status >= 400:
            raise error_of(found, self.name)
        return found

    def _json(self, data: bytes) -> dict[str, Any]:
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise IntegrityError(f"{self.name}: expected a JSON object, found something else: is it a daemon?")
        return found


def error_of(found: Mapping[str, Any], name: str) -> DatasyncError:
    """Return the error that an answer names, of the class that it names where this version knows it."""
    kind = getattr(errors, str(found.get("error", "")), None)
    known = isinstance(kind, type) and issubclass(kind, DatasyncError)
    code = found.get("exit")
    by_code = next((item for item in (UsageError, NotFound, NotAuthorized) if item.exit_code == code), DatasyncError)
    return (kind if known and kind is not None else by_code)(f"{name}: {found.get('message', 'no reason given')}")


def quoted(text: str) -> str:
    """Return *text* as one part of a path."""
    return quote(text, safe="")


def local_api(config: Config) -> Api | None:
    """Return this machine's daemon, None when none listens here or none is wanted."""
    path = listening(config)
    return Api.local(path) if path is not None else None


def require_local(config: Config) -> Api:
    """Return this machine's daemon; raise `NotFound` when none runs."""
    found = local_api(config)
    if found is None:
        raise NotFound(f"daemon: none listens at {socket_path(config)}: run `datasync daemon start`")
    return found


def require_daemon(config: Config) -> Api:
    """Return the daemon that `--daemon` names by its URL, else this machine's own; raise `NotFound` without one."""
    if is_url(config.daemon):
        found = control_api(config, read_settings(config).control)
        if found is not None:
            return found
    return require_local(config)


def control_api(config: Config, control: Control) -> Api | None:
    """Return the control side that is set, None without one."""
    url = config.daemon if is_url(config.daemon) else control.url
    if not url:
        return None
    parts = urlsplit(url)
    odd = parts.username or parts.query or parts.fragment or parts.path not in ("", "/")
    if parts.scheme != "https" or not parts.hostname or odd:
        raise UsageError(f"control side {url!r}: expected https://HOST:PORT")
    try:
        context = ssl.create_default_context(cafile=control.ca or None)
        if control.certificate:
            context.load_cert_chain(control.certificate, control.key or None)
    except (OSError, ssl.SSLError):
        raise UsageError("[control]: the files of ca, certificate and key must be readable PEM") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return Api(f"control side {parts.hostname}", url, _token(config, control), context)


def _token(config: Config, control: Control) -> str | None:
    if config.token:
        return config.token.strip()
    path = config.token_file or (Path(control.token_file) if control.token_file else None)
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            text = file.read(TOKEN_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: expected a file with a token: {error.strerror}") from None
    if len(text) > TOKEN_BYTES or not text.strip().isascii():
        raise UsageError(f"{path}: expected one token")
    return text.strip().decode()
