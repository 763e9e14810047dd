"""Make or check tests/vectors/chunker.json: the cut points that are part of the format (docs/format.md, section 9).

    python tests/vectors/generate_chunker.py            writes the file
    python tests/vectors/generate_chunker.py --check    exit code 1 when the code cuts otherwise

An input is `xof`: the first `bytes` bytes of BLAKE3's extendable output of `label` (ASCII), or `repeat`: `pattern`
(hex) over and over, cut off after `bytes` bytes. `edit` then puts `zeros` zero bytes in at `offset`. `seed` is the u64
in hex. `cuts` are the lengths of all chunks of the input as one extent.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from blake3 import blake3

from datasync.chunker import CDC_MAXIMUM, CDC_MINIMUM, FIXED_LENGTH, Cutter, cdc, fixed

PATH = Path(__file__).with_name("chunker.json")
LABEL = "datasync/v1/vectors/chunker"
MIB = 1 << 20
SEEDS = (1, 0x0123456789ABCDEF, (1 << 63) - 1)


def content(source: dict[str, Any]) -> bytes:
    """Return the input that *source* describes."""
    length = source["bytes"]
    if "label" in source:
        made: bytes = blake3(source["label"].encode("ascii")).digest(length=length)
    else:
        pattern = bytes.fromhex(source["pattern"])
        made = (pattern * (length // len(pattern) + 1))[:length]
    if "edit" in source:
        offset = source["edit"]["offset"]
        made = made[:offset] + bytes(source["edit"]["zeros"]) + made[offset:]
    return made


def cutter(case: dict[str, Any]) -> Cutter:
    """Return the cutter that *case* names."""
    return fixed() if case["chunker"] == "fixed" else cdc(int(case["seed"], 16))


def xof(length: int) -> dict[str, Any]:
    """Describe pseudo-random input."""
    return {"kind": "xof", "label": LABEL, "bytes": length}


def repeat(pattern: str, length: int) -> dict[str, Any]:
    """Describe input that repeats *pattern* (hex)."""
    return {"kind": "repeat", "pattern": pattern, "bytes": length}


def cases() -> list[dict[str, Any]]:
    """Return every case, with the cuts that the code makes now."""
    edited = {**xof(24 * MIB), "edit": {"offset": 12 * MIB + 1, "zeros": 1024}}
    lengths = [0, 1, CDC_MINIMUM - 1, CDC_MINIMUM, CDC_MINIMUM + 1, CDC_MAXIMUM - 1, CDC_MAXIMUM, CDC_MAXIMUM + 1]
    repeated = [repeat("00", 9 * MIB + 3), repeat("ff", CDC_MAXIMUM + 1), repeat("000102030405060708", 9 * MIB)]
    sources = [xof(24 * MIB), edited, *map(xof, lengths), *repeated]
    found: list[dict[str, Any]] = [
        {"chunker": "cdc", "seed": f"{seed:016x}", "input": source} for seed in SEEDS for source in sources[:2]
    ]
    found += [{"chunker": "cdc", "seed": f"{SEEDS[1]:016x}", "input": source} for source in sources[2:]]
    for length in (0, 1, FIXED_LENGTH - 1, FIXED_LENGTH, FIXED_LENGTH + 1, 3 * FIXED_LENGTH + 5):
        found.append({"chunker": "fixed", "input": xof(length)})
    for case in found:
        case["cuts"] = cutter(case).cuts(content(case["input"]), final=True)
    return found


def document() -> str:
    """Return the whole file."""
    head = {"about": "docs/format.md, section 9; the inputs are described in generate_chunker.py", "version": 1}
    lines = ",\n".join(json.dumps(case, sort_keys=True) for case in cases())
    return f'{{{json.dumps(head)[1:-1]}, "cases": [\n{lines}\n]}}\n'


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    if not parser.parse_args().check:
        PATH.write_text(document(), encoding="ascii")
        return 0
    if PATH.is_file() and PATH.read_text(encoding="ascii") == document():
        return 0
    print(f"{PATH}: the code cuts otherwise; the format is frozen, so the code is wrong", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
