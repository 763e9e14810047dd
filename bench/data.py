"""Data sets from a seed: many small files, a few big shards. Incompressible, as images and sealed shards are."""

import json
import random
from pathlib import Path

SMALL_BYTES = (5_000, 95_000)
SHARD_BYTES = 256 * 1024 * 1024
_BLOCK_BYTES = 1024 * 1024
SYLLABLES = (
    "ba",
    "ce",
    "di",
    "fo",
    "gu",
    "ha",
    "je",
    "ki",
    "lo",
    "mu",
    "na",
    "pe",
    "ri",
    "so",
    "tu",
    "ve",
    "wi",
    "xo",
    "yu",
    "za",
)


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


def texts(root: Path, count: int, seed: int) -> None:
    """Make *count* JSON files of some 20 KB, which compress to about a quarter."""
    source = random.Random(seed)
    words = [f"{source.choice(SYLLABLES)}{source.choice(SYLLABLES)}" for _ in range(4_000)]
    for number in range(count):
        directory = root / f"part-{number % 20:02d}"
        directory.mkdir(parents=True, exist_ok=True)
        lines = [
            {"id": number * 100 + line, "label": source.randrange(1_000), "text": " ".join(source.choices(words, k=20))}
            for line in range(120)
        ]
        (directory / f"{number:06d}.json").write_text("\n".join(map(json.dumps, lines)) + "\n")


def deep_tree(root: Path, count: int, seed: int) -> None:
    """Make *count* files of up to 4 KB in a tree that is 12 directories deep."""
    source = random.Random(seed)
    for number in range(count):
        directory = root.joinpath(*(f"level-{number // 5**level % 5}" for level in range(12)))
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{number}.bin").write_bytes(source.randbytes(source.randint(0, 4_096)))


def edit(root: Path, turn: int) -> int:
    """Write 1 KiB of new bytes into the middle of one file in a hundred; return how many."""
    source = random.Random(turn)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    chosen = source.sample(files, max(1, len(files) // 100))
    for path in chosen:
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 2)
            file.write(source.randbytes(1_024))
    return len(chosen)
