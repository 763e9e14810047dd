"""What the key commands print: a change that was stored or proposed, and who has access."""

import shlex
import time
from pathlib import Path
from typing import Any

from datasync.cli.output import Output, shown
from datasync.cli.secret import write_secret_file
from datasync.crypto.slots import KIND_NAMES, SCOPE_METADATA
from datasync.errors import UsageError
from datasync.format.trust import Principal
from datasync.repository.amend import Proposal, write_proposal
from datasync.repository.proposed import ROLES
from datasync.repository.repository import OpenDataset
from datasync.repository.succession import Holding
from datasync.service.access import Changed
from datasync.service.erasure import Erased
from datasync.service.session import Session

PAGE_SUFFIX = ".html"


def report_change(
    session: Session, done: Changed, output: Output, target: Path | None, words: str, **fields: Any
) -> None:
    """Print how a change ended, and for a grant the line that its holder runs."""
    dataset = done.dataset
    base = {"dataset": dataset.name, "trust": dataset.id.hex(), "epoch": dataset.keyring.epoch, **fields}
    if done.proposal is not None:
        _report_proposal(done, done.proposal, output, target, words, base)
        return
    if done.erased is not None:
        report_erased(done.erased, output, target)
        return
    output.note(words)
    line = _accept_line(session, dataset) if "role" in fields else None
    if line:
        output.note("the new holder runs:")
        output.line(line)
    output.result(**base, **({"command": line} if line else {}))


def _report_proposal(
    done: Changed, proposal: Proposal, output: Output, target: Path | None, words: str, base: dict[str, Any]
) -> None:
    """Write the proposal's file; with a change that is stored already it is about what came in between."""
    name = done.dataset.name
    if target is None and not done.stored:
        raise UsageError(
            f"dataset {name!r}: {done.missing} more owners have to sign this: pass --output FILE for the "
            "proposal, and let each of them run `datasync key cosign`"
        )
    path = target or Path(f"{name}-settle.json")
    path.write_text(write_proposal(proposal))
    if done.stored:
        output.note(words)
        output.warn(
            f"{name}: a removed signer made snapshots before the removal was stored, and they are refused until "
            f"{done.missing} more owners sign {path} too: datasync key cosign {name} FILE"
        )
    else:
        output.note(f"proposed: {path}: {done.missing} more owners have to sign: datasync key cosign {name} FILE")
    output.result(**base, stored=done.stored, proposal=str(path), missing=done.missing)


def report_erased(erased: Erased, output: Output, target: Path | None) -> None:
    """Write the certificate and its page; print what was and was not destroyed."""
    fields = erased.certificate
    path = target or Path(f"{fields['dataset']}-erasure.json")
    write_secret_file(path, erased.text.encode())
    page = path.with_suffix(PAGE_SUFFIX)
    write_secret_file(page, erased.page.encode())
    output.note(f"{fields['dataset']}: shredded: nothing opens it any more; certificate: {path}, {page}")
    for item in fields["not_destroyed"]:
        output.note(f"not destroyed: {item}")
    output.result(
        dataset=fields["dataset"],
        trust=fields["dataset_id"],
        epoch=fields["epochs"],
        certificate=str(path),
        page=str(page),
        destroyed=fields["destroyed"],
    )


def _accept_line(session: Session, dataset: OpenDataset) -> str:
    url = session.config.repository or ""
    return shlex.join(["datasync", "key", "accept", dataset.name, dataset.id.hex(), "--repository", url])


def show_holdings(dataset: OpenDataset, holders: list[Holding], output: Output) -> None:
    """Print everybody who has access."""
    names = {item.label.signer: item.label.name for item in holders if item.label.signer}
    root = dataset.trusted.root
    output.line(f"{dataset.name}: epoch {dataset.keyring.epoch}, {root.threshold} of its owners sign changes")
    fields = [_holding(item, names) for item in holders]
    for item in fields:
        until = f" until {item['until']}" if item["until"] else ""
        by = f", granted by {shown(item['granted_by'])}" if item["granted_by"] else ""
        who = shown(item["name"]) or f"signer {item['signer'][:16]}"
        output.line(f"  {who}: {', '.join(item['roles'])}, since {item['since']}{until}{by} ({item['kind']})")
    readers = sum("reader" in item["roles"] for item in fields)
    if readers == 1:
        output.warn("one slot only: when it is lost, so is the data: datasync key export-recovery")
    output.result(dataset=dataset.name, epoch=dataset.keyring.epoch, threshold=root.threshold, holders=fields)


def _holding(item: Holding, names: dict[bytes, str]) -> dict[str, Any]:
    slot = item.slots[0] if item.slots else None
    first = slot or item.principal
    assert first is not None
    by = slot.granted_by if slot else b""
    return {
        "name": item.label.name,
        "roles": _roles(item),
        "since": _time(first.since),
        "until": _time(first.until) if first.until else None,
        "granted_by": (names.get(by) or by.hex()[:16]) if by else None,
        "kind": KIND_NAMES.get(slot.kind, str(slot.kind)) if slot else "no slot",
        "fingerprint": slot.fingerprint.hex() if slot else None,
        "slot": slot.id.hex() if slot else None,
        "signer": item.label.signer.hex() or None,
    }


def _roles(item: Holding) -> list[str]:
    found = []
    if item.slots:
        found.append("metadata reader" if all(slot.scope == SCOPE_METADATA for slot in item.slots) else "reader")
    return found + _signing(item.principal)


def _signing(principal: Principal | None) -> list[str]:
    return [name for bit, name in ROLES.items() if principal is not None and principal.roles & bit]


def _time(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))
