"""What a push signs: the body of the snapshot that it commits (docs/format.md, section 11). Does no requests."""

from datasync.crypto.hashing import hash_bytes
from datasync.format.snapshot import Body, Root, Source, Totals
from datasync.model.ids import ZERO_ID
from datasync.push.options import PushOptions
from datasync.push.source import SourceTree
from datasync.push.xattrs import read_xattrs
from datasync.repository.repository import OpenDataset


def root_of(tree: SourceTree, *, xattrs: bool) -> Root:
    """Return the metadata of the source's root directory."""
    status = tree.root_stat
    found = read_xattrs(tree.directory(b"").fd) if xattrs else ()
    return Root(status.st_mode & 0o7777, status.st_mtime_ns, found)


def body_of(
    dataset: OpenDataset,
    source: Source,
    options: PushOptions,
    root: Root,
    totals: Totals,
    manifest: bytes,
    lists: list[bytes],
) -> Body:
    """Return the body; number, previous hash and time are set when it is committed."""
    trusted, keyset = dataset.trusted, dataset.keyset
    return Body(
        dataset.id,
        1,
        ZERO_ID,
        0,
        dataset.keyring.epoch,
        (keyset.keyset.version, keyset.digest),
        (trusted.root.version, trusted.digest),
        source,
        options.tool,
        options.message,
        "cdc" if options.chunker == "cdc" else "fixed",
        dataset.keyring.sealed_id_key(),
        root,
        totals,
        manifest,
        tuple(hash_bytes(item) for item in lists),
    )
