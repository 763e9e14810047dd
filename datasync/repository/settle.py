"""What a removed signer leaves behind, settled: its snapshots of meanwhile are accepted, or what is in the way goes.

A revocation is two objects, and writers go on in between; a put that was on its way may even arrive after both.
`settle_removals` accepts what the trust root before the removal allowed. Later on an owner decides: `late` finds
snapshots that `succession.mark_removed` can accept; `refused` finds the newest objects that somebody signed who may
not, and `remove` deletes them, each kept on this machine first. Raises what reading and storing raise.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from datasync.crypto.hashing import hash_bytes
from datasync.crypto.signatures import SigningKey
from datasync.errors import IntegrityError, NotFound, StorageUnavailable
from datasync.format import pack as packs
from datasync.format.control import ForgottenHeader, Head, RelocationsHeader, read_condemned, read_tags
from datasync.format.encoding import decode
from datasync.format.snapshot import read_body
from datasync.format.trust import OWNER, WRITER, TrustRoot
from datasync.model.limits import PACK_BYTES
from datasync.repository import condemned, forgotten, numbered, policies, tags
from datasync.repository.amend import Proposal, Reopen, propose, reissue, store
from datasync.repository.control import ControlObject, open_control
from datasync.repository.evidence import Glance
from datasync.repository.lineage import previous_of
from datasync.repository.repository import OpenDataset
from datasync.repository.snapshots import History, KeysMoved
from datasync.repository.succession import Change, Mark, mark_removed
from datasync.repository.trust import TAGGERS, WRITERS, Trusted, Unlisted

REMARKS = 8  # pushes of a removed writer that slip in between while it is removed
_SERIES = {
    "heads": packs.HEAD,  # first: who goes from a head to its snapshot meets no head of a snapshot that is gone
    "tags": packs.TAGS,
    "condemned": packs.CONDEMNED,
    "relocations": packs.RELOCATIONS,
    "forgotten": packs.FORGOTTEN,
    "snapshots": packs.SNAPSHOT,
}


@dataclass(frozen=True, slots=True)
class Refused:
    """One of the newest objects, signed by somebody who may not sign it."""

    name: str
    why: str
    data: bytes = field(repr=False)


# while a signer is removed


def settle_removals(
    before: OpenDataset, after: OpenDataset, signer: SigningKey, reopen: Reopen
) -> tuple[OpenDataset, Proposal | None]:
    """Accept what a removed writer did while it was being removed: whom the trust root *before* did not say to be
    removed. Its mark moves to the last snapshot that it made, and its head, tags, lists or policy are signed anew.

    Where several owners have to sign, the moved mark is a proposal for them, which is returned.
    """
    gone = {item.signer for item in before.trusted.root.principals if item.removed is None}
    for _ in range(REMARKS):
        marks = {key: mark for key, mark in marks_of(after.trusted.root).items() if key in gone}
        if not marks:
            return after, None
        allowing = replace(after.history, trusted=as_before_removal(after.trusted, gone))
        try:
            late = late_snapshots(allowing, marks)
            proposal = propose(after, Change(None, mark_removed(after, late)), signer) if late else None
            if proposal is not None and proposal.missing(after) > 0:
                reissue(allowing)
                return after, proposal
            if proposal is not None:
                after = store(after, proposal, reopen)
            elif _accepted(after.history):
                return after, None
        except KeysMoved:  # another owner was first; the removal itself is stored
            after = reopen()
            continue
        reissue(replace(after.history, trusted=as_before_removal(after.trusted, gone)))
    raise StorageUnavailable(
        f"dataset {after.name!r}: the removal is stored, but objects of the removed signer kept coming while it was: "
        f"take its storage credentials away, then run `datasync key settle {after.name}`"
    )


def marks_of(root: TrustRoot) -> dict[bytes, Mark]:
    """Return the last accepted snapshot of each removed signer."""
    return {item.signer: item.removed for item in root.principals if item.removed is not None}


def late_snapshots(history: History, marks: Mapping[bytes, Mark]) -> dict[bytes, Mark]:
    """Return the newest snapshot that each signer of *marks* made after its mark, as *history*'s trust root allows;
    what is looked at is not remembered as accepted.
    """
    quiet = replace(history, evidence=Glance(history.evidence))
    newest = quiet.latest() if marks else None
    if newest is None:
        return {}
    found: dict[bytes, Mark] = {}
    seq, digest = newest.body.seq, newest.id
    while seq > min(mark[0] for mark in marks.values()):
        at = quiet.find(seq, expected=digest)  # None: it was forgotten, and nobody asks for it any more
        if at is not None and at.signer in marks and at.signer not in found and seq > marks[at.signer][0]:
            found[at.signer] = (seq, digest)
        digest = at.body.previous if at is not None else previous_of(quiet, seq, digest)
        seq -= 1
    return found


def _accepted(history: History) -> bool:
    """Tell whether the newest head, tags, lists and policy are of who may sign them."""
    try:
        history.head()
        tags.read_all(history)
        condemned.read_list(history)
        forgotten.refresh(history)
        if history.trusted.root.threshold == 1:  # else its owners sign it together, `policy apply`
            policies.newest_policy(history)
    except IntegrityError:
        return False
    return True


# afterwards


def as_before_removal(trusted: Trusted, signers: Collection[bytes]) -> Trusted:
    """Return *trusted* with each removed one of *signers* as it was before."""
    principals = tuple(
        msgspec.structs.replace(item, removed=None) if item.signer in signers else item
        for item in trusted.root.principals
    )
    return replace(trusted, root=msgspec.structs.replace(trusted.root, principals=principals))


def late(dataset: OpenDataset) -> dict[bytes, Mark]:
    """Return the newest snapshots of removed signers that are refused and could be accepted."""
    marks = marks_of(dataset.trusted.root)
    try:
        return late_snapshots(replace(dataset.history, trusted=as_before_removal(dataset.trusted, marks)), marks)
    except Unlisted:
        return {}  # somebody signed the newest who never might: nothing is accepted on top of that


def renew(before: OpenDataset, after: OpenDataset) -> None:
    """Write head, tags, lists and policy of removed signers anew when their later snapshots were accepted
    between *before* and *after*.
    """
    known, now = marks_of(before.trusted.root), marks_of(after.trusted.root)
    if any(known.get(key, mark) != mark for key, mark in now.items()):
        reissue(replace(after.history, trusted=as_before_removal(after.trusted, now)))


def refused(history: History) -> list[Refused]:
    """Return the newest objects of each series, down to the first that holds, which somebody signed who may not; raise
    `IntegrityError` for one that is wrong in any other way.
    """
    found = []
    for kind in _SERIES:
        for item in numbered.entries(history.store, history.prefix(kind)):
            data = numbered.read(history.store, item, limit=PACK_BYTES)
            try:
                _check(history, kind, data, item.name)
            except Unlisted as error:
                found.append(Refused(item.name, str(error), data))
            else:
                break
    return found


def _check(history: History, kind: str, data: bytes, what: str) -> None:
    opened = open_control(history.keyring, _SERIES[kind], data, what)
    if kind == "snapshots":
        history.writer_of(opened, read_body(opened.body, what), hash_bytes(data), what)
        return
    made, roles = _made(kind, opened, what)
    history.trusted.require(opened.signers, roles, what, at=made, removed=kind == "relocations")


def _made(kind: str, opened: ControlObject, what: str) -> tuple[int, int]:
    """Return when the object was made, and the roles that sign its kind."""
    if kind == "heads":
        return decode(Head, opened.body, what).issued, WRITERS
    if kind == "tags":
        return read_tags(opened.body, what).created, TAGGERS
    if kind == "condemned":
        return read_condemned(opened.body, what).created, OWNER | WRITER
    if kind == "forgotten":
        return decode(ForgottenHeader, opened.body, what).created, OWNER
    return decode(RelocationsHeader, opened.body, what).created, OWNER | WRITER


def remove(history: History, found: list[Refused]) -> None:
    """Delete the refused objects, each kept here first and deleted only while it is the same; then write head, tags,
    condemned list and policy anew, so that no number which others may have seen is the newest no more.
    """
    for item in found:
        history.evidence.keep(item.name, item.data)
        try:
            same = history.store.get(item.name, limit=PACK_BYTES) == item.data
        except NotFound:
            continue
        if same:
            history.store.delete(item.name)
    reissue(history)
