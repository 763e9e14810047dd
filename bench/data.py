"""Data sets from a seed: many small files, a few big shards. Incompressible, as images and sealed shards are."""

import random
from pathlib import Path

SMALL_BYTES = (5_000, 95_000)
SHARD_BYTES = 256 * 1024 * 1024
_BLOCK_BYTES = 1024 * 1024


def small_files(root: Path, count: int, seed: int) -> None:
    """Make *count* files of 5 to 95 KB in 20 directories."""
    source = random.Random(seed)
    for number in range(count):
        directory = root / f"class-{number % 20:02d}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{number:06d}.bin").write_bytes(source.randbytes(source.randint(*SMALL_BYTES)))


def shards(root: Path, count: int, seed: int) -> None:
    """Make *count* files of 256 MiB."""
    root.mkdir(parents=True, exist_ok=True)
    source = random.Random(seed)
    for number in range(count):
        with (root / f"shard-{number:03d}.tar").open("wb") as file:
            for _ in range(SHARD_BYTES // _BLOCK_BYTES):
                file.write(source.randbytes(_BLOCK_BYTES))
