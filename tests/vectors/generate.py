"""Make or check the golden vectors of docs/format.md; chunker.json has its own generate_chunker.py.

    python -m tests.vectors.generate            writes the files
    python -m tests.vectors.generate --check    exit code 1 when the code makes other bytes than a file holds

All keys and random values are fixed, so a run makes the same bytes; the HPKE ciphertexts in hpke.json were made once,
are opened by every run and never made anew. A file that differs means that the format changed, and docs/format.md
comes first.
"""

import argparse
import sys

from tests.vectors import sections_forgotten as forgetting
from tests.vectors import sections_keys as keys
from tests.vectors import sections_pages as pages
from tests.vectors import sections_plain as plain
from tests.vectors import sections_policy as policies
from tests.vectors import sections_sealed as sealed
from tests.vectors.fixed import FOLDER, KeptSeals


def documents() -> tuple[dict[str, str], int]:
    """Return every file's text by name, and how many HPKE ciphertexts had to be made."""
    kept = KeptSeals()
    found = {
        "marker": plain.marker(),
        "names": plain.names(),
        "padme": plain.sizes(),
        "text_forms": plain.text_forms(),
        "keys": keys.keys(),
        "box": keys.box(),
        "signed": plain.signed(),
        "plain": plain.plain_object(),
        "trust": plain.trust(),
        "keyset": keys.keyset(kept),
        "slots": keys.slot_section(kept),
        "pack": sealed.pack(kept),
        "ids": pages.ids(),
        "page": pages.page(),
        "chunk_list": pages.chunk_list(),
        "snapshot": sealed.snapshot(kept),
        "head": sealed.head(),
        "tags": sealed.tags(),
        "relocations": sealed.relocations(),
        "condemned": sealed.condemned(),
        "forgotten": forgetting.forgotten(),
        "emptied": forgetting.emptied(),
        "policy": policies.policy(),
        "hpke": keys.hpke(kept),
    }
    return {f"{name}.json": section.document() for name, section in found.items()}, kept.missing


def differing() -> list[str]:
    """Return the names of the files that are not what the code makes now."""
    made, missing = documents()
    if missing:
        return ["hpke.json"]
    return [name for name, text in made.items() if not _is(name, text)]


def _is(name: str, text: str) -> bool:
    path = FOLDER / name
    return path.is_file() and path.read_text(encoding="ascii") == text


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    if not parser.parse_args().check:
        for name, text in documents()[0].items():
            (FOLDER / name).write_text(text, encoding="ascii")
        return 0
    found = differing()
    for name in found:
        print(
            f"{FOLDER / name}: the code makes other bytes; the format is frozen, so the code is wrong", file=sys.stderr
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
