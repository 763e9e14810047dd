"""Our own HTTP for S3, against a socket that says byte for byte what a test wants."""

import datetime
import ipaddress
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from datasync.errors import AlreadyExists, StorageUnavailable
from datasync.storage.location import parse_url
from datasync.storage.s3 import S3Credentials, S3Options, S3Store
from datasync.storage.s3 import wire as wires
from datasync.storage.s3.wire import WAKE_BYTES, Wire, WireError, WireOptions

OPTIONS = WireOptions(connect_seconds=5, read_seconds=5, connections=4)
NOTHING = memoryview(b"")
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
Talk = Callable[[socket.socket], None]


@contextmanager
def says(*talks: Talk, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Yield the endpoint of a server that holds one of *talks* with each connection, in order, then hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for talk in talks:
                line, _ = listening.accept()
                with suppress(OSError), closing(context.wrap_socket(line, server_side=True) if context else line) as on:
                    talk(on)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"{'https' if context else 'http'}://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(10)


def request(line: socket.socket) -> bytes:
    """Receive the head of one request."""
    head = b""
    while b"\r\n\r\n" not in head:
        part = line.recv(1)
        if not part:
            raise OSError("the client has gone")
        head += part
    return head


def answers(*answers: bytes) -> Talk:
    def talk(line: socket.socket) -> None:
        for answer in answers:
            request(line)
            line.sendall(answer)

    return talk


def ask(wire: Wire, method: str = "GET") -> tuple[int, bytes]:
    answer = wire.send(method, "/x", {"Host": "h"}, NOTHING, ask=False)
    try:
        return answer.status, answer.read()
    finally:
        answer.close()


def asked(endpoint: str, method: str = "GET") -> tuple[int, bytes]:
    with closing(Wire(endpoint, OPTIONS, None)) as wire:
        return ask(wire, method)


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 200\r\ncontent-length:3\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 200 OK\ncontent-length: 3\n\nabc", b"abc"),
        (
            CHUNKED + b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\nTrailer: x\r\n\r\n",
            b"abc",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nabc", b"abc"),
        (b"HTTP/1.0 200 OK\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
def test_a_body_of_any_framing_is_read_whole(answer: bytes, body: bytes) -> None:
    with says(answers(answer)) as endpoint:
        assert asked(endpoint)[1] == body


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc",
        CHUNKED + b"3\r\nab",
        CHUNKED + b"2\r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"xyz\r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"3\r\nabc\r\n",
        b"HTTP/1.1 000 OK\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 300_000,
        b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 100_000,
    ],
)
def test_what_is_no_whole_answer_is_an_error(answer: bytes) -> None:
    with says(answers(answer)) as endpoint, pytest.raises(WireError):
        asked(endpoint)


def test_a_document_without_an_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wires, "DOCUMENT_BYTES", 1000)
    with says(answers(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(5000))) as endpoint, pytest.raises(WireError):
        asked(endpoint)
    chunked = CHUNKED + b"FFFFFFFF\r\n" + bytes(5000)
    with says(answers(chunked)) as endpoint, pytest.raises(WireError):
        asked(endpoint)


def test_one_connection_serves_in_turn_and_a_head_has_no_body() -> None:
    one = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"
    with says(answers(one + b"abc", one, one + b"def")) as endpoint, closing(Wire(endpoint, OPTIONS, None)) as wire:
        assert [ask(wire), ask(wire, "HEAD"), ask(wire)] == [(200, b"abc"), (200, b""), (200, b"def")]


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n",
        b"HTTP/1.1 200 OK\r\nconnection: X, Close\r\n",
        b"HTTP/1.0 200 OK\r\n",
    ],
)
def test_a_connection_that_the_server_ends_is_not_kept(head: bytes) -> None:
    one = answers(head + b"Content-Length: 3\r\n\r\nabc")
    with says(one, one) as endpoint, closing(Wire(endpoint, OPTIONS, None)) as wire:
        for _ in range(2):
            assert ask(wire) == (200, b"abc")
            assert wire._idle == []


@pytest.mark.parametrize(
    "answer",
    [
        CHUNKED + b"2\r\nabc\r\n",
        CHUNKED + b"1\r\na\r\n0\r\n" + b"T: x\r\n" * 20_000,
        CHUNKED + b"400\r\n" + bytes(1024) + b"\r\n0\r\n\r\n",  # longer than was asked for
    ],
)
def test_a_connection_whose_answer_failed_is_not_kept(answer: bytes) -> None:
    with says(answers(answer)) as endpoint, closing(Wire(endpoint, OPTIONS, None)) as wire:
        found = wire.send("GET", "/x", {}, NOTHING, ask=False)
        with pytest.raises(WireError):
            found.read(1000)
        found.close()
        assert wire._idle == []


def test_a_connection_that_comes_back_after_the_end_is_closed() -> None:
    with says(answers(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")) as endpoint:
        wire = Wire(endpoint, OPTIONS, None)
        found = wire.send("GET", "/x", {}, NOTHING, ask=False)
        wire.close()
        assert found.read() == b"abc"
        assert wire._idle == []


def test_a_kept_connection_that_died_meanwhile_costs_nothing() -> None:
    one = answers(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")  # and hangs up without a word
    with says(one, one) as endpoint, closing(Wire(endpoint, OPTIONS, None)) as wire:
        assert ask(wire) == (200, b"abc")
        while wire._idle[0].quiet():
            pass
        assert ask(wire) == (200, b"abc")


def test_an_answer_with_an_unread_body_gives_no_connection_back() -> None:
    one = answers(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
    with says(one, one) as endpoint, closing(Wire(endpoint, OPTIONS, None)) as wire:
        wire.send("GET", "/x", {}, NOTHING, ask=False).close()
        assert ask(wire) == (200, b"abc")


@pytest.mark.parametrize("step", [1000, WAKE_BYTES, 10**7])
@pytest.mark.parametrize("size", [1, WAKE_BYTES - 1, WAKE_BYTES, WAKE_BYTES + 1, 5 * WAKE_BYTES, 3_000_001])
def test_bodies_of_every_size_arrive_and_the_next_answer_too(size: int, step: int) -> None:
    """While much is to come the kernel is told to wait for more: never for more than comes."""
    body = bytes(range(251)) * (size // 251 + 1)
    one = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + body[:size]
    with (
        says(answers(one, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")) as endpoint,
        closing(Wire(endpoint, OPTIONS, None)) as wire,
    ):
        answer, got = wire.send("GET", "/x", {}, NOTHING, ask=False), memoryview(bytearray(size))
        done = 0
        while count := answer.readinto(got[done : done + step]):
            done += count
        assert got == body[:size]
        assert ask(wire) == (200, b"x")


def test_a_body_in_drops_arrives() -> None:
    size = 2 * WAKE_BYTES + 5

    def talk(line: socket.socket) -> None:
        request(line)
        line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 1000):
            line.sendall(bytes(1000))
        line.sendall(bytes(size % 1000))

    with says(talk) as endpoint:
        assert asked(endpoint) == (200, bytes(size))


def test_a_slow_line_is_slow_and_no_failure() -> None:
    """What counts is a byte in time, whatever the kernel was told to wait for."""
    size, pace = 2 * WAKE_BYTES, threading.Event()

    def talk(line: socket.socket) -> None:
        request(line)
        line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(8):
            line.sendall(bytes(size // 8))
            pace.wait(0.15)

    with says(talk) as endpoint, closing(Wire(endpoint, WireOptions(5, 0.25, 4), None)) as wire:
        assert ask(wire) == (200, bytes(size))


@pytest.mark.parametrize("size", [1, 2 * WAKE_BYTES])
def test_a_body_that_stops_is_an_error_after_the_time_for_one_byte(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, not once for the bytes waited for and once more for the first of them."""
    waits: list[int] = []
    receive = wires._Connection._receive

    def counted(connection: wires._Connection, view: memoryview) -> int:
        waits.append(len(view))
        return receive(connection, view)

    monkeypatch.setattr(wires._Connection, "_receive", counted)

    def talk(line: socket.socket) -> None:
        request(line)
        line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        line.recv(1)

    with says(talk) as endpoint, closing(Wire(endpoint, WireOptions(5, 0.2, 4), None)) as wire:
        answer = wire.send("GET", "/x", {}, NOTHING, ask=False)
        waits.clear()
        with pytest.raises(WireError, match="TimeoutError"):
            answer.read()
        answer.close()
    assert waits == []


def test_a_silent_server_is_an_error_after_the_time_for_it() -> None:
    def talk(line: socket.socket) -> None:
        request(line)
        line.recv(1)

    waits = WireOptions(5, 0.1, 4)
    with (
        says(talk) as endpoint,
        closing(Wire(endpoint, waits, None)) as wire,
        pytest.raises(WireError, match="TimeoutError"),
    ):
        ask(wire)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for 127.0.0.1, in one file."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, end)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


def serving(certificate: Path) -> ssl.SSLContext:
    """Return what a server needs that shows *certificate*."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


# Bodies that are sent


def put(endpoint: str, size: int) -> None:
    place = parse_url(f"s3://bucket?endpoint={endpoint}&addressing=path")
    with closing(S3Store(place, S3Options(S3Credentials("AKID", "secret")))) as store:
        store.put_if_absent("one", bytes(size))


def test_a_refused_body_is_not_sent() -> None:
    rest = []

    def talk(line: socket.socket) -> None:
        assert b"Expect: 100-continue" in request(line)
        line.sendall(b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n")
        rest.append(line.recv(1))

    with says(talk) as endpoint, pytest.raises(AlreadyExists):
        put(endpoint, 300_000)
    assert rest == [b""]


def test_a_body_that_was_not_sent_whole_is_not_stored_whatever_the_server_says() -> None:
    def at_once(line: socket.socket) -> None:
        request(line)
        line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        line.recv(1)

    def after_some(line: socket.socket) -> None:
        request(line)
        line.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        line.recv(1000)
        line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        line.shutdown(socket.SHUT_WR)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    for talk in (at_once, after_some):
        with says(talk) as endpoint, pytest.raises(StorageUnavailable):
            put(endpoint, 30_000_000)


def test_a_refusal_is_heard_when_the_server_stops_reading() -> None:
    def talk(line: socket.socket) -> None:
        request(line)
        line.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        line.recv(1000)
        line.sendall(b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n")
        done.wait(5)

    done = threading.Event()
    with says(talk) as endpoint:
        place = parse_url(f"s3://bucket?endpoint={endpoint}&addressing=path")
        options = S3Options(S3Credentials("AKID", "secret"), read_seconds=0.3)
        with closing(S3Store(place, options)) as store, pytest.raises(AlreadyExists):
            store.put_if_absent("one", bytes(30_000_000))
        done.set()


@pytest.mark.parametrize("tls", [False, True])
def test_a_body_goes_to_a_server_that_does_not_know_expect(
    tls: bool, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under TLS 1.3 the server's tickets come meanwhile, which are no answer."""
    got, context = [], serving(certificate) if tls else None
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))

    def talk(line: socket.socket) -> None:
        request(line)
        left = 300_000
        while left:
            left -= len(line.recv(left))
        got.append(left)
        line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with says(talk, context=context) as endpoint:
        put(endpoint, 300_000)
    assert got == [0]


def test_what_a_server_says_before_it_hangs_up_in_the_middle_of_a_body_is_heard() -> None:
    def talk(line: socket.socket) -> None:
        request(line)
        line.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        line.recv(1000)
        line.sendall(b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        line.shutdown(socket.SHUT_WR)
        while line.recv(1_000_000):
            pass

    with says(talk) as endpoint, pytest.raises(AlreadyExists):
        put(endpoint, 30_000_000)


# TLS


def test_tls_with_a_certificate_that_is_trusted_carries_large_bodies(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = serving(certificate)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    body = bytes(range(256)) * 4000
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    with says(answers(head + body, head + body), context=context) as endpoint:
        place = parse_url(f"s3://bucket?endpoint={endpoint}&addressing=path")
        with closing(S3Store(place, S3Options(S3Credentials("AKID", "secret")))) as store:
            assert [store.get("one", limit=len(body)) for _ in range(2)] == [body, body]


def test_tls_with_a_certificate_that_nobody_vouches_for_is_refused(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    context = serving(certificate)
    with says(answers(b""), context=context) as endpoint:
        place = parse_url(f"s3://bucket?endpoint={endpoint}&addressing=path")
        store = S3Store(place, S3Options(S3Credentials("AKID", "secret")))
        with closing(store), pytest.raises(StorageUnavailable, match=r"no TLS connection.*AWS_CA_BUNDLE"):
            store.get("one", limit=1)


def test_what_tls_holds_back_is_not_taken_for_the_next_answer(certificate: Path) -> None:
    evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL"

    def more_than_asked(line: socket.socket) -> None:
        request(line)
        line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
        line.sendall(b"good" + evil)  # one record
        line.recv(1)

    honest = answers(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
    trusting = ssl.create_default_context(cafile=str(certificate))
    with (
        says(more_than_asked, honest, context=serving(certificate)) as endpoint,
        closing(Wire(endpoint, OPTIONS, trusting)) as wire,
    ):
        assert [ask(wire), ask(wire)] == [(200, b"good")] * 2
