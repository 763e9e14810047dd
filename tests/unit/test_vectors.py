"""The code makes and reads the golden vectors to the letter, and refuses what they say must be refused."""

import hashlib
import hmac
import json
import struct
from collections.abc import Iterator
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from datasync import errors
from datasync.crypto import kdf, slots
from datasync.crypto.aead import open_box, seal_box
from datasync.crypto.hashing import hash_bytes, keyed_hash
from datasync.crypto.kdf import Argon2Cost, EpochKeys, FixedKeys, derive
from datasync.crypto.recipients import KeyPair, Recipient
from datasync.crypto.signatures import SigningKey, parse_signer, signer_text
from datasync.crypto.slots import Binding
from datasync.format import pack as packs
from datasync.format import signed as plain
from datasync.format.encoding import padme
from datasync.format.keyset import Argon2Params, SealedParams, read_keyset
from datasync.format.names import check_name, numbered, pack_name, parse_numbered
from datasync.format.signed import Signature, read_signed, write_plain, write_signed
from datasync.model.entries import ChunkRef, Entry
from datasync.pull.fileid import file_id
from datasync.repository.control import SIGN_KINDS, open_control, seal_control
from datasync.repository.keyring import Keyring, key_pair, open_name, public_keys, unchain
from datasync.repository.keysets import ReadKeyset, open_keyset
from datasync.repository.packs import Piece, SealingKeys, check_pack_id, open_pack, seal_pack
from datasync.repository.trust import _next, check_signatures
from tests.vectors import generate
from tests.vectors.codecs import CODECS
from tests.vectors.fixed import FOLDER
from tests.vectors.notation import rebuild, to_bytes, to_json

Case = dict[str, Any]
FILES = sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != "chunker")


@cache
def load(file: str) -> Case:
    found: Case = json.loads((FOLDER / f"{file}.json").read_text(encoding="ascii"))
    return found


def cases(*files: str, kind: str | None = None, part: str = "cases") -> Iterator[Any]:
    """Yield (file, case) of *kind*, or of the structures, as test parameters."""
    for file in files or FILES:
        for case in load(file)[part]:
            base = named(file, case["base"]) if "base" in case else case
            if kind == case.get("kind", base.get("kind", "structure" if "read" in base else None)):
                yield pytest.param(file, case, id=f"{file}: {case.get('base', '')} {case['name']}")


@cache
def named(file: str, name: str) -> Case:
    found: Case = next(case for case in load(file)["cases"] if case["name"] == name)
    return found


def refused(case: Case) -> Any:
    return pytest.raises(_Exactly(getattr(errors, case["error"]), case["message"]).kind, match=_literal(case["message"]))


def _literal(message: str) -> str:
    import re

    return re.escape(message)


def test_every_file_is_made_by_the_generator_and_the_code_makes_the_same_bytes() -> None:
    assert sorted(f"{name}.json" for name in FILES) == sorted(generate.documents()[0])
    assert generate.differing() == []
