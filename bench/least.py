"""The least work of a warm in Python: what `bench/least.c` does, and each file sealed, hashed and summed, as a warm
opens, verifies and sums it (sealing costs what opening does, and noise can not be opened).

No manifest, no keys, no plan, no record, no receipt, and workers that are forked instead of started: what a warm in
this language and with these libraries can not do without. docs/performance.md says how to run it.

    python -m bench.least PORT OBJECTS OBJECT_BYTES TARGET PROCESSES
"""

import gc
import mmap
import os
import random
import socket
import sys
import threading
from pathlib import Path

import xxhash
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

RANGE_BYTES, HEADER_BYTES, ABREAST, DIRECTORIES = 16 << 20, 60, 4, 20
FLUSH_SECONDS = 0.3
TIME_NS = 1_700_000_000 * 10**9
KEY = bytes(32)

Range = tuple[int, int, int]
"""An object's number, where the range starts, and its length."""


def plan(objects: int, size: int) -> list[Range]:
    """Return ranges of 16 MiB behind the pack's header, those of four packs in turn, as datasync asks for them."""
    found = []
    for first in range(0, objects, ABREAST):
        for start in range(0, size, RANGE_BYTES):
            begin, end = start or HEADER_BYTES, min(start + RANGE_BYTES, size)
            found += [(n, begin, end - begin) for n in range(first, min(first + ABREAST, objects))]
    return found


class Worker:
    """Fetches ranges and makes files of them."""

    def __init__(self, port: int, objects: list[int], views: list[int]) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port))
        self._objects, self._views = objects, views
        self._buffer = memoryview(mmap.mmap(-1, RANGE_BYTES))
        self._head = bytearray(4096)
        self._plain = memoryview(bytearray(100_016))
        self._cipher = AESGCM(KEY)

    def fetch(self, part: Range) -> memoryview:
        """Return the bytes of *part*."""
        number, start, length = part
        want = f"GET /bucket/{number:04d} HTTP/1.1\r\nHost: s3\r\nRange: bytes={start}-{start + length - 1}\r\n\r\n"
        self._connection.sendall(want.encode())
        have, end = 0, -1
        while end < 0:
            have += self._connection.recv_into(memoryview(self._head)[have:])
            end = self._head.find(b"\r\n\r\n", 0, have)
        body = have - end - 4
        self._buffer[:body] = self._head[end + 4 : have]
        while body < length:
            body += self._connection.recv_into(self._buffer[body:length], length - body, socket.MSG_WAITALL)
        return self._buffer[:length]

    def place(self, data: memoryview, number: int) -> None:
        """Make files of *data*, the first named by *number*."""
        pick, at = random.Random(number), 0
        while at < len(data):
            size = min(pick.randrange(5_000, 95_000), len(data) - at)
            sealed = self._plain[: size + 16]
            self._cipher.encrypt_into(number.to_bytes(12, "little"), data[at : at + size], b"header", sealed)
            raw = sealed[:size]
            id_ = blake3(raw, key=KEY).digest()
            xxhash.xxh3_128_digest(raw)
            view, name = self._views[number % DIRECTORIES], f"file-{number:06d}.bin"
            fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444, dir_fd=view)
            os.pwrite(fd, raw, 0)
            os.utime(fd, ns=(TIME_NS, TIME_NS))
            os.close(fd)
            os.link(name, id_.hex(), src_dir_fd=view, dst_dir_fd=self._objects[id_[0]])
            at += size
            number += 1


def flush(done: threading.Event) -> None:
    """Flush all file systems until all is *done*, and once more."""
    while not done.wait(FLUSH_SECONDS):
        os.sync()
    os.sync()


def main() -> None:
    """Make the files."""
    port, objects, size, processes = (int(sys.argv[n]) for n in (1, 2, 3, 5))
    target = Path(sys.argv[4])
    gc.disable()
    names = [target / f"{n:02x}" for n in range(256)] + [target / f"view-{n:02d}" for n in range(DIRECTORIES)]
    target.mkdir()
    for name in names:
        name.mkdir()
    fds = [os.open(name, os.O_RDONLY) for name in names]
    ranges = plan(objects, size)
    turns, give = os.pipe()
    os.write(give, b"".join(n.to_bytes(2, "big") for n in range(len(ranges))))  # each worker takes the next two bytes
    os.close(give)
    pids = []
    for _ in range(processes):
        pid = os.fork()
        if pid == 0:
            worker = Worker(port, fds[:256], fds[256:])
            while turn := os.read(turns, 2):
                n = int.from_bytes(turn, "big")
                worker.place(worker.fetch(ranges[n]), n * 4_000)
            os._exit(0)
        pids.append(pid)
    done = threading.Event()
    flushing = threading.Thread(target=flush, args=(done,))
    flushing.start()
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    done.set()
    flushing.join()
    sys.exit(any(codes))


if __name__ == "__main__":
    main()
