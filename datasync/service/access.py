"""Who may read, write, own and audit a dataset: grant, revoke, list, rotate, owners, co-signing.

Each change is signed by this identity and stored when that is enough; with a threshold above one it is a proposal,
a file that the other owners sign. Grants and revocations are recorded before they are stored (design, section 8.7).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasync.crypto import slots
from datasync.crypto.kms.protocol import KMS_KINDS
from datasync.crypto.kms.resolve import resolve
from datasync.crypto.recipients import Recipient
from datasync.crypto.signatures import SigningKey, parse_signer
from datasync.errors import NotAuthorized, NotFound, UsageError, WrongKey
from datasync.format.labels import HolderLabel
from datasync.format.trust import AUDITOR, OWNER, PUSH_ONLY, TAGGER, WRITER, Principal
from datasync.model.limits import LABEL_NAME_BYTES
from datasync.repository import amend, reseal, succession
from datasync.repository.amend import Proposal
from datasync.repository.holders import Grantee
from datasync.repository.keysets import Shredded
from datasync.repository.proposed import describe
from datasync.repository.relocate import newest_epoch
from datasync.repository.repository import OpenDataset
from datasync.repository.reseal import Resealed
from datasync.repository.settle import renew, settle_removals
from datasync.repository.snapshots import KeysMoved
from datasync.repository.succession import Change, Holding
from datasync.service.authorize import authorize
from datasync.service.erasure import Erased, finish_shred, propose_shred, shred
from datasync.service.record import recorded, refusals
from datasync.service.references import open_dataset
from datasync.service.session import Session

TRIES = 8  # other owners who were first
HOLDER_CHARACTERS = 64 * 1024  # of a file with public lines; two lines have 2 KiB
ROLES = {
    "reader": 0,
    "writer": WRITER,
    "push-only": PUSH_ONLY,
    "tagger": TAGGER,
    "owner": OWNER | WRITER,
    "auditor": AUDITOR,
}
"""What each role signs in the trust root; a reader signs nothing."""
WITHOUT_SLOT = ("push-only",)
METADATA_ONLY = ("auditor",)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whom a grant is for, as a person gave it: public keys, a passphrase, or a key of a key service."""

    name: str
    recipient: Recipient | None = None
    signer: bytes = b""
    passphrase: bool = False
    kms: str | None = None


@dataclass(frozen=True, slots=True)
class Changed:
    """A change that is `stored`, or a proposal that other owners have to sign, or both; the dataset as it is now."""

    dataset: OpenDataset
    proposal: Proposal | None
    missing: int
    erased: Erased | None = None
    stored: bool = False


def parse_holder(texts: tuple[str, ...], name: str | None) -> Wanted:
    """Return whom *texts* mean: recipient and signer lines, a file that holds them, `passphrase`, or a KMS URI."""
    words: dict[str, set[str]] = {"recipient": set(), "signer": set(), "kms": set(), "passphrase": set()}
    for text in texts:
        found = [(kind, word) for word in _words(text) if (kind := _meaning(word))]
        if not found:
            raise UsageError(
                f"recipient {text[:32]!r}: expected a line that starts with dsr1 (and one with dss1 for who signs), a "
                "file that holds them (`datasync key show --output FILE`), `passphrase`, or a KMS URI"
            )
        for kind, word in found:
            words[kind].add(word)
    keys = [kind for kind in ("recipient", "kms", "passphrase") if words[kind]]
    if len(keys) > 1 or any(len(found) > 1 for found in words.values()):
        raise UsageError("recipient: expected one holder with one key, found several: grant to each of them alone")
    recipient, signer, kms = (next(iter(words[kind]), "") for kind in ("recipient", "signer", "kms"))
    key = Recipient.parse(recipient) if recipient else None
    public = parse_signer(signer) if signer else b""
    return Wanted(_name(name, key, public, kms or None), key, public, bool(words["passphrase"]), kms or None)


def _meaning(word: str) -> str:
    """Return what *word* gives of a holder, empty for nothing."""
    if word.partition("://")[0] in KMS_KINDS:
        return "kms"
    starts = {"dsr1": "recipient", "dss1": "signer"}
    return "passphrase" if word == "passphrase" else starts.get(word[:4], "")


def _words(text: str) -> list[str]:
    path = Path(text)
    try:
        if _meaning(text) or not path.is_file():
            return [text.strip()]
    except (OSError, ValueError):  # no name of a file: too long, or with a NUL
        return [text.strip()]
    with path.open(errors="replace") as file:
        lines = [line.partition("#")[0] for line in file.read(HOLDER_CHARACTERS).splitlines()]
    return [word.strip("\"'") for line in lines for word in line.replace("=", " ").split()]


def _name(name: str | None, recipient: Recipient | None, signer: bytes, kms: str | None) -> str:
    if name:
        if len(name.encode()) > LABEL_NAME_BYTES or not name.isprintable():
            raise UsageError(f"name: expected at most {LABEL_NAME_BYTES} printable bytes, found {name[:32]!r}")
        return name
    if kms is not None:
        return kms.partition("?")[0][:LABEL_NAME_BYTES]
    if recipient is not None:
        return recipient.fingerprint.hex()[:16]
    return signer.hex()[:16] if signer else "passphrase"


def grant(session: Session, name: str, wanted: Wanted, role: str, until: int) -> Changed:
    """Give *wanted* the *role* in the dataset, until that time (ms, 0 for ever)."""
    if role not in ROLES:
        raise UsageError(f"role {role!r}: expected one of {', '.join(ROLES)}")
    if ROLES[role] and not wanted.signer:
        raise UsageError(
            f"role {role}: it signs, so its signer has to be known too (a line that starts with dss1): "
            "ask for the file of `datasync key show --output FILE`"
        )

    def change(dataset: OpenDataset, me: bytes) -> Change:
        grantee = _grantee(session, wanted, role, until)
        roles = ROLES[role]
        principal = None
        if roles:
            label = dataset.keyring.seal_label("principal", wanted.signer, _label(wanted))
            principal = Principal(wanted.signer, roles, label, dataset.history.now(), until, None)
        return succession.grant(dataset, grantee, principal, me)

    fields: dict[str, Any] = {"dataset": name, "target": wanted.name, "role": role, "until": until}
    return _apply(session, name, change, "key.grant", fields)


def _label(wanted: Wanted) -> HolderLabel:
    return HolderLabel(wanted.name, wanted.recipient.public if wanted.recipient else b"", wanted.signer)


def _grantee(session: Session, wanted: Wanted, role: str, until: int) -> Grantee | None:
    if role in WITHOUT_SLOT:
        return None
    scope = slots.SCOPE_METADATA if role in METADATA_ONLY else slots.SCOPE_ROOT
    passphrase = None
    if wanted.passphrase:
        passphrase = session.config.passphrase or _new_passphrase(session)
    elif wanted.recipient is None and wanted.kms is None:
        raise UsageError(f"role {role}: it reads, so its recipient has to be known (a line that starts with dsr1)")
    service = resolve(wanted.kms) if wanted.kms is not None else None
    return Grantee(wanted.name, wanted.recipient, passphrase, service, wanted.signer, scope, until)


def _new_passphrase(session: Session) -> str:
    """Ask twice: a slot of a mistyped passphrase opens for nobody."""
    found = session.secret("New passphrase for the dataset")
    if not found:
        raise UsageError("passphrase: set DATASYNC_PASSPHRASE to the new one")
    if session.secret("The same once more") != found:
        raise UsageError("passphrase: expected the same one twice, found two: nothing was done")
    return found


def revoke(session: Session, name: str, who: str) -> Changed:
    """Take every slot and role of *who* away; a new epoch begins."""

    def change(dataset: OpenDataset, me: bytes) -> Change:
        gone = succession.find_holdings(dataset, who)
        if any(item.label.signer == me for item in gone):
            raise UsageError("an owner does not revoke itself: another owner has to do it")
        return succession.revoke(dataset, gone, me, session.secrets)

    return _apply(session, name, change, "key.revoke", {"dataset": name, "target": who})


def list_holdings(session: Session, name: str) -> tuple[OpenDataset, list[Holding]]:
    """Return the dataset and everybody who has access to it."""
    dataset = open_dataset(session, name)
    return dataset, succession.holdings(dataset)


def set_owners(session: Session, name: str, threshold: int | None, expires: int | None) -> Changed:
    """Change how many owners have to sign, or until when the trust root is believed."""

    def change(dataset: OpenDataset, me: bytes) -> Change:
        return succession.set_owners(dataset, threshold, expires)

    return _apply(session, name, change, "key.owners", {"dataset": name, "threshold": threshold or 0})


def rotate(session: Session, name: str) -> Changed:
    """Begin a new epoch with the same holders."""

    def change(dataset: OpenDataset, me: bytes) -> Change:
        return Change(succession.new_epoch(dataset, lambda slot: True, session.secrets), None)

    return _apply(session, name, change, "key.rotate", {"dataset": name})


def rotate_full(session: Session, name: str, report: Callable[[Resealed], None]) -> tuple[Changed, Resealed | None]:
    """Begin a new epoch and re-seal everything in it; a run that was interrupted goes on instead of beginning again."""
    with refusals(session, "key.rotate", dataset=name):
        dataset = session.repository.open(name)
        succession.require_owner(dataset)
        authorize(session, "ManageKeys", dataset)
    history = dataset.history
    changed = Changed(dataset, None, 0)
    if not (dataset.keyring.epoch > 1 and _begun(dataset) and reseal.is_unfinished(history)):
        changed = rotate(session, name)
        if changed.proposal is not None:
            return changed, None
    with recorded(session, "key.reseal", security=True, dataset=name, epoch=changed.dataset.keyring.epoch):
        done = reseal.reseal(changed.dataset.history, report)
    return changed, done


def _begun(dataset: OpenDataset) -> bool:
    """Tell whether re-sealing into the present epoch was begun: here, or by anybody who published some of it. Where
    several owners sign, an epoch begins long before: the present one is taken, which nobody has who was removed.
    """
    if dataset.trusted.root.threshold > 1:
        return True
    table = dataset.history.relocations
    here = table is not None and any(pack.epoch == dataset.keyring.epoch for pack in table.packs())
    return here or newest_epoch(dataset.history) == dataset.keyring.epoch


# owners' signatures


def _apply(
    session: Session,
    name: str,
    change: Callable[[OpenDataset, bytes], Change],
    event: str,
    fields: dict[str, Any],
) -> Changed:
    for _ in range(TRIES):
        with refusals(session, event, **fields):
            dataset = session.repository.open(name)
            me = succession.require_owner(dataset)
            authorize(session, "ManageKeys", dataset)
            signer = signer_of(session)
            proposal = amend.propose(dataset, change(dataset, me), signer)
        if proposal.keyset is None and proposal.trust is None:
            return Changed(dataset, None, 0)
        missing = proposal.missing(dataset)
        if missing > 0:
            with recorded(session, "key.propose", security=True, change=event, **fields):
                return Changed(dataset, proposal, missing)
        try:
            with recorded(session, event, security=True, epoch=dataset.keyring.epoch, **fields):
                return store(session, dataset, proposal, signer)
        except KeysMoved:
            continue
    raise KeysMoved(f"dataset {name!r}: other owners were first {TRIES} times: run the same line again")


def signer_of(session: Session) -> SigningKey:
    """Return what this identity signs with; raise `WrongKey` without one."""
    if session.identity is None:
        raise WrongKey("changing who has access needs an identity: set DATASYNC_IDENTITY")
    return session.identity.signing_key


def store(session: Session, dataset: OpenDataset, proposal: Proposal, signer: SigningKey) -> Changed:
    """Store a proposal that has all its signatures; what a signer that it removes did meanwhile is accepted, by a
    further proposal where several owners have to sign.
    """

    def reopen() -> OpenDataset:
        return session.repository.open(dataset.name)

    after, further = amend.store(dataset, proposal, reopen), None
    if proposal.trust is not None:
        renew(dataset, after)
        after, further = settle_removals(dataset, after, signer, reopen)
    return Changed(after, further, further.missing(after) if further else 0, stored=True)


def cosign(
    session: Session,
    name: str,
    text: str,
    what: str,
    confirm: Callable[[list[str], bool], None],
    *,
    delete_data: bool = False,
    reason: str = "",
) -> Changed:
    """Sign the proposal in *text*; store it when it has all its signatures.

    *confirm* is called before anything is signed with lines that say what the proposal changes and whether it shreds
    the dataset, and raises to stop.
    *delete_data* and *reason* are for a proposal that shreds the dataset.
    """
    with refusals(session, "key.cosign", dataset=name):
        dataset = session.repository.open(name)
        succession.require_owner(dataset)
    signer = signer_of(session)
    given = amend.read_proposal(text, what)
    proposal = amend.remaining(dataset, given)
    amend.check_proposal(dataset, proposal, begun=proposal is not given)
    keyset = proposal.change.keyset
    shreds = keyset is not None and keyset.shredded
    confirm(describe(dataset, proposal.change), shreds)
    signed = amend.cosign(proposal, signer)
    authorize(session, "Shred" if shreds else "ManageKeys", dataset, approvers=signed.owners(dataset))
    missing = signed.missing(dataset)
    if missing > 0:
        with recorded(session, "key.cosign", security=True, dataset=name, missing=missing):
            return Changed(dataset, amend.cosign(given, signer), missing)
    if shreds:
        return Changed(
            dataset, None, 0, shred(session, dataset, signed, signer, delete_data=delete_data, reason=reason)
        )
    with recorded(session, "key.cosign", security=True, dataset=name):
        return store(session, dataset, signed, signer)


def shred_dataset(session: Session, name: str, *, delete_data: bool, reason: str) -> Changed | Erased:
    """Destroy every key of the dataset for ever, or propose it where several owners have to sign; a run that was
    interrupted goes on.
    """
    with refusals(session, "key.shred", dataset=name, purpose=reason):
        signer = signer_of(session)
        try:
            dataset = session.repository.open(name)
        except Shredded as error:
            if signer.public not in error.owners:
                raise
            return finish_shred(session, name, error.keyset, signer, delete_data=delete_data, reason=reason)
        proposal = propose_shred(dataset, signer)
        missing = proposal.missing(dataset)
        if missing > 0:
            with recorded(session, "key.propose", security=True, change="key.shred", dataset=name):
                return Changed(dataset, proposal, missing)
        authorize(session, "Shred", dataset, approvers=proposal.owners(dataset))
        done = shred(session, dataset, proposal, signer, delete_data=delete_data, reason=reason)
        return Changed(dataset, None, 0, done)


def accept(session: Session, name: str, trust: str) -> bool:
    """Trust the dataset *trust* under *name* on this machine and with this identity; return whether it can be read."""
    if len(trust) != 64 or set(trust) - set("0123456789abcdef"):
        raise UsageError(f"trust root {trust[:16]!r}: expected the 64 hex digits that the owner's grant printed")
    if session.identity is None:
        raise WrongKey("accepting a grant needs an identity: run `datasync key init`")
    with recorded(session, "key.accept", dataset=name, dataset_id=trust):
        dataset = session.repository.open_known(bytes.fromhex(trust), name)
        if dataset is None:
            raise NotFound(f"dataset {name!r}: {trust[:16]}… is another dataset: take both from the owner's line")
        if trust not in session.identity.trust:
            session.keep_identity(session.identity.trusting(trust))
        if not dataset.history.reads and dataset.history.signer is None:
            raise NotAuthorized(f"dataset {name!r}: nothing was granted to this identity")
        return dataset.history.reads
