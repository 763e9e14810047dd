"""Tags: movable names for snapshots, each signed by who set it (docs/format.md, section 12)."""

from datasync.crypto.signatures import SigningKey
from datasync.errors import AlreadyExists, IntegrityError, NotAuthorized
from datasync.format import pack as packs
from datasync.format.control import TagAssignment, Tags, read_tags
from datasync.format.encoding import decode, encode
from datasync.format.names import check_name
from datasync.format.signed import Signature, read_signed, write_signed
from datasync.model.ids import ZERO_ID
from datasync.model.limits import PACK_BYTES
from datasync.repository import numbered
from datasync.repository.control import open_control, seal_control
from datasync.repository.snapshots import COMMIT_TRIES, History, Snapshot
from datasync.repository.trust import TAGGERS, check_signatures


def read_all(history: History) -> dict[str, TagAssignment]:
    """Return the tags that are set, by name."""
    return {name: item for name, item in _table(history)[3].items() if item.seq}


def _table(history: History) -> tuple[int, bytes, dict[str, bytes], dict[str, TagAssignment]]:
    item = numbered.newest(history.store, history.prefix("tags"))
    if item is None:
        return 0, ZERO_ID, {}, {}
    opened = open_control(history.keyring, packs.TAGS, numbered.read(history.store, item, limit=PACK_BYTES), item.name)
    table = read_tags(opened.body, item.name)
    history.trusted.require(opened.signers, TAGGERS, item.name, at=table.created)
    if table.number != item.number or table.dataset != history.dataset:
        raise IntegrityError(f"{item.name}: it says table {table.number} of dataset {table.dataset.hex()[:16]}")
    assignments = {name: _assignment(history, name, data, item.name) for name, data in table.tags}
    return item.number, opened.digest, dict(table.tags), assignments


def _assignment(history: History, name: str, data: bytes, table: str) -> TagAssignment:
    what = f"{table}: tag {name!r}"
    signed = read_signed(data, what)
    signers = check_signatures(signed, "tag", what)
    found = decode(TagAssignment, signed.body, what)
    history.trusted.require(signers, TAGGERS, what, at=found.created)
    if found.name != name or found.dataset != history.dataset:
        raise IntegrityError(f"{what}: the assignment is for tag {found.name!r} of dataset {found.dataset.hex()[:16]}")
    return found


def assign(history: History, name: str, snapshot: Snapshot | None) -> None:
    """Point the tag *name* at *snapshot*, or remove it with None; nothing is written when it points there already."""
    signer = require_tagger(history, name)
    for _ in range(COMMIT_TRIES):
        number, digest, raw, assignments = _table(history)
        seq, target = (snapshot.body.seq, snapshot.id) if snapshot else (0, ZERO_ID)
        current = assignments.get(name)
        if (current.seq, current.snapshot) == (seq, target) if current else not seq:
            return
        body = encode(TagAssignment(history.dataset, name, seq, target, history.now()))
        raw[name] = write_signed(body, [Signature(signer.public, signer.sign("tag", body))])
        if _write(history, signer, number + 1, digest, raw):
            return
    raise IntegrityError(f"tag {name!r}: lost {COMMIT_TRIES} races for the next table of tags")


def require_tagger(history: History, name: str) -> SigningKey:
    """Return this identity's key, which may set the tag *name*; refuse a name that no tag can have."""
    check_name(name, "tag")
    signer = history.signer
    if signer is None or signer.public not in history.trusted.root.with_role(TAGGERS, at=history.now()):
        raise NotAuthorized(f"tag {name!r}: this identity may not set tags of the dataset: ask the owner")
    return signer


def _write(history: History, signer: SigningKey, number: int, previous: bytes, raw: dict[str, bytes]) -> bool:
    table = Tags(history.dataset, number, previous, history.now(), tuple(sorted(raw.items())))
    data = seal_control(history.keyring.sealing(packs.TAGS), packs.TAGS, encode(table), signer)
    try:
        numbered.create(history.store, history.prefix("tags"), number, data, hashed=history.hashed)
    except AlreadyExists:
        return False
    return True


def reissue(history: History) -> None:
    """Write the table anew, each tag signed by this identity: in the present epoch, by nobody who was removed."""
    signer = history.signer
    if signer is None:
        raise NotAuthorized("tags: setting them anew needs an identity")
    for _ in range(COMMIT_TRIES):
        number, digest, raw, assignments = _table(history)
        if not number:
            return
        for name, item in assignments.items():
            body = encode(item)
            raw[name] = write_signed(body, [Signature(signer.public, signer.sign("tag", body))])
        if _write(history, signer, number + 1, digest, raw):
            return
    raise IntegrityError(f"tags: lost {COMMIT_TRIES} races for the next table of tags")
