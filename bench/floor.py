"""The floor: the least that a push or a warm has to do, by plain means, as a tool among the others.

    python -m bench.floor push|again|pull SOURCE TARGET

`push` reads every file and puts as many bytes in objects of 32 MiB, 4 at a time; `again` walks the tree; `pull` gets
those objects and writes files of the same names and sizes, 2 threads. No hashing, no sealing, no names in the store.
Files and objects are done at the same time; with FLOOR_IN_TURN in the environment first the ones, then the others.
"""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import botocore.session
from botocore.config import Config

OBJECT_BYTES = 32 * 1024 * 1024
TRANSFERS = 4
WRITERS = 2


def main() -> None:
    """Do what the command line says."""
    step, source, target = sys.argv[1:]
    {"push": _push, "again": _again, "pull": _pull}[step](Path(source), Path(target))


def _client() -> tuple[Any, str]:
    config = Config(
        s3={"addressing_style": "path", "payload_signing_enabled": False},
        retries={"total_max_attempts": 4, "mode": "standard"},  # rclone's server fails puts that meet in a new folder
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        max_pool_connections=TRANSFERS,
    )
    endpoint = os.environ["FLOOR_ENDPOINT"]
    session = botocore.session.Session()
    return session.create_client("s3", "us-east-1", endpoint_url=endpoint, config=config), os.environ["FLOOR_BUCKET"]


def _in_turn() -> bool:
    return "FLOOR_IN_TURN" in os.environ


def _files(source: Path) -> Iterator[tuple[Path, int]]:
    for folder, _, names in os.walk(source):
        for name in sorted(names):
            path = Path(folder, name)
            yield path, path.lstat().st_size


def _objects(source: Path) -> Iterator[tuple[str, int]]:
    left, folder = sum(size for _, size in _files(source)), "floor-in-turn" if _in_turn() else "floor"
    for number in range(-(-left // OBJECT_BYTES)):
        yield f"{folder}/{source.name}/{number}", min(OBJECT_BYTES, left - number * OBJECT_BYTES)


def _push(source: Path, _: Path) -> None:
    client, bucket = _client()
    body = os.urandom(OBJECT_BYTES)
    buffer = memoryview(bytearray(8 * 1024 * 1024))

    def read() -> None:
        for path, _size in _files(source):
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass

    with ThreadPoolExecutor(TRANSFERS) as pool:
        if _in_turn():
            read()
        puts = [
            pool.submit(client.put_object, Bucket=bucket, Key=key, Body=body[:size]) for key, size in _objects(source)
        ]
        if not _in_turn():
            read()
        for put in puts:
            put.result()


def _again(source: Path, _: Path) -> None:
    for _found in _files(source):
        pass


def _pull(source: Path, target: Path) -> None:
    client, bucket = _client()
    body = os.urandom(OBJECT_BYTES)

    def get(key: str) -> None:
        stream = client.get_object(Bucket=bucket, Key=key)["Body"]
        while stream.read(256 * 1024):
            pass

    def write(file: tuple[Path, int]) -> None:
        path, left = target / file[0].relative_to(source), file[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb", buffering=0) as out:
            while left:
                left -= out.write(memoryview(body)[: min(left, OBJECT_BYTES)])

    with ThreadPoolExecutor(TRANSFERS) as pool, ThreadPoolExecutor(WRITERS) as writers:
        gets = [pool.submit(get, key) for key, _ in _objects(source)]
        if _in_turn():
            wait(gets)
        writes = [writers.submit(write, file) for file in _files(source)]
        for done in (*gets, *writes):
            done.result()


if __name__ == "__main__":
    main()
