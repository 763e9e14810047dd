"""Pack references and their tables (docs/format.md, section 10). Pure: sees no keys."""

from collections.abc import Iterable

from datasync.errors import FormatError
from datasync.format.keyset import EPOCH_MAX
from datasync.format.pack import SEALED_KEY_BYTES, PackHeader
from datasync.model.entries import PackRef
from datasync.model.limits import PACK_BYTES


def check_table(packs: tuple[PackRef, ...], used: Iterable[int], what: str) -> None:
    """Refuse a table that is not in order of first use, names a pack twice, or holds an impossible header."""
    if list(used) != list(range(len(packs))) or len({pack.id for pack in packs}) != len(packs):
        raise FormatError(f"{what}: expected a table of its packs in order of use, each once")
    for pack in packs:
        lengths = len(pack.id), len(pack.salt), len(pack.commitment)
        if (
            lengths != (32, 32, 32)
            or not 0 < pack.size <= PACK_BYTES
            or SEALED_KEY_BYTES.get(pack.source) != len(pack.sealed_key)
            or not 1 <= pack.epoch <= EPOCH_MAX
        ):
            raise FormatError(f"{what}: a pack reference holds an impossible header")


def header_of(pack: PackRef, type_: int, dataset: bytes) -> PackHeader:
    """Return the header that *pack* refers to."""
    return PackHeader(type_, pack.source, pack.epoch, dataset, pack.salt, pack.commitment, pack.sealed_key)


def reference_to(pack_id: bytes, size: int, header: PackHeader) -> PackRef:
    """Return the reference to a pack with *header*."""
    return PackRef(pack_id, size, header.source, header.epoch, header.salt, header.commitment, header.sealed_key)
