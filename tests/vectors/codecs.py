"""Every parser of docs/format.md's structures by the name that vectors use, with what writes the value back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from datasync.crypto.hashing import hash_bytes
from datasync.format import control, keyset, marker, page, signed, snapshot, trust
from datasync.format import pack as packs
from datasync.format.encoding import decode, encode
from datasync.format.labels import read_label

Args = dict[str, Any]
WHAT = "vector"


@dataclass(frozen=True, slots=True)
class Codec:
    """`read` takes bytes and the case's arguments; `write` returns the bytes of what it returned."""

    read: Callable[[bytes, Args], Any]
    write: Callable[[Any, Args], bytes]


def _structure(read: Callable[[bytes], Any]) -> Codec:
    return Codec(lambda data, args: read(data), lambda value, args: encode(value))


def _plain(kind: int) -> Codec:
    return Codec(
        lambda data, args: signed.read_plain(kind, data, WHAT), lambda value, args: signed.write_plain(kind, value)
    )


def _slot(params: bytes) -> keyset.Slot:
    return keyset.Slot(bytes(16), 1, 1, 1, b"", b"", params, b"", 0, 0, bytes(32))


def _footer(rows: list[packs.Row]) -> bytes:
    return packs.write_footer([(row.id, row.form, row.raw, row.stored) for row in rows])


CODECS: dict[str, Codec] = {
    "marker": Codec(
        lambda data, args: marker.read_marker(data, hash_bytes),
        lambda value, args: marker.write_marker(value, hash_bytes),
    ),
    "plain-trust": _plain(signed.TRUST),
    "plain-keyset": _plain(signed.KEYSET),
    "signed": _structure(lambda data: signed.read_signed(data, WHAT)),
    "trust": _structure(lambda data: trust.read_trust(data, WHAT)),
    "keyset": _structure(lambda data: keyset.read_keyset(data, WHAT)),
    "sealed-params": _structure(lambda data: keyset.read_sealed_params(_slot(data), WHAT)),
    "kms-params": _structure(lambda data: keyset.read_kms_params(_slot(data), WHAT)),
    "argon2-params": _structure(lambda data: keyset.read_argon2_params(_slot(data), WHAT)),
    "pack-header": Codec(
        lambda data, args: packs.read_header(data, WHAT),
        lambda value, args: value.encode(),
    ),
    "footer": Codec(
        lambda data, args: packs.read_footer(data, args["header_size"], args["pack_size"], WHAT),
        lambda value, args: _footer(value),
    ),
    "holder-label": _structure(lambda data: read_label(data, WHAT)),
    "page": _structure(lambda data: page.read_page(data, WHAT)),
    "chunk-list": Codec(
        lambda data, args: page.read_chunk_list(data, args["covered"], WHAT), lambda value, args: encode(value)
    ),
    "snapshot": _structure(lambda data: snapshot.read_body(data, WHAT)),
    "page-list": _structure(lambda data: snapshot.read_page_list(data, WHAT)),
    "head": _structure(lambda data: decode(control.Head, data, WHAT)),
    "tag": _structure(lambda data: decode(control.TagAssignment, data, WHAT)),
    "tags": _structure(lambda data: control.read_tags(data, WHAT)),
    "relocations": _structure(lambda data: decode(control.RelocationsHeader, data, WHAT)),
    "relocation-page": _structure(lambda data: control.read_relocation_page(data, WHAT)),
    "emptied-page": _structure(lambda data: control.read_emptied_page(data, WHAT)),
    "forgotten": _structure(lambda data: decode(control.ForgottenHeader, data, WHAT)),
    "forgotten-page": _structure(lambda data: control.read_forgotten_page(data, WHAT)),
    "condemned": _structure(lambda data: control.read_condemned(data, WHAT)),
    "policy": _structure(lambda data: control.read_policy(data, WHAT)),
}
