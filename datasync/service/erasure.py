"""Erasure: destroy every slot of a dataset, prove that nothing here opens it, and certify what was done.

The last keyset names nobody. Then every older keyset goes, all stored versions of it where the store keeps versions,
this machine's copies and records of the dataset, and (when asked) its packs. The certificate is signed with the owner's
key: JSON for machines, the same as a page for people. It says what could not be reached: copies that others made.
"""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from datasync.cache.layout import Cache
from datasync.crypto.signatures import SigningKey, parse_signer, signer_text, verify
from datasync.errors import DatasyncError, FormatError, IntegrityError, NotFound, StorageUnavailable, WrongKey
from datasync.format.keyset import Keyset
from datasync.format.names import dataset_prefix
from datasync.repository import amend, succession
from datasync.repository.amend import Proposal
from datasync.repository.keysets import Shredded
from datasync.repository.repository import OpenDataset
from datasync.repository.succession import Change
from datasync.service.record import recorded
from datasync.service.session import TOOL, Session
from datasync.storage.extras import Versions
from datasync.storage.protocol import ObjectStore

FORMAT = "datasync-erasure-certificate"
KIND = "erasure"
TOLD = ("dataset", "dataset_id", "time")  # texts that every certificate has
STYLE = "body{font:14px sans-serif;margin:2em} th{text-align:left;vertical-align:top} td{word-break:break-all}"
OUT_OF_REACH = (
    "keys and data that readers copied while they had access",
    "views and caches on other machines",
    "backups or replicas of the bucket that the storage provider or others made",
)


@dataclass(frozen=True, slots=True)
class Erased:
    """What a certificate certifies."""

    certificate: dict[str, Any]
    text: str
    page: str


def propose_shred(dataset: OpenDataset, signer: SigningKey) -> Proposal:
    """Return the last keyset of *dataset*, signed by *signer*; `NotAuthorized` unless this identity owns it."""
    succession.require_owner(dataset)
    return amend.propose(dataset, Change(succession.shredded(dataset), None), signer)


def shred(
    session: Session, dataset: OpenDataset, proposal: Proposal, signer: SigningKey, *, delete_data: bool, reason: str
) -> Erased:
    """Destroy the keys of *dataset* by a proposal that has all its signatures; return the certificate."""
    keyset = dataset.keyset.keyset
    doomed = _Doomed(dataset.id, dataset.name, keyset.version + 1, keyset.epoch, len(keyset.slots))
    return _shred(session, doomed, signer, lambda: amend.store(dataset, proposal, lambda: dataset), delete_data, reason)


def finish_shred(
    session: Session, name: str, last: Keyset, signer: SigningKey, *, delete_data: bool, reason: str
) -> Erased:
    """Go on with a shredding that was interrupted after the *last* keyset was stored; return the certificate."""
    doomed = _Doomed(last.dataset, name, last.version, last.epoch, None)
    return _shred(session, doomed, signer, lambda: None, delete_data, reason)


@dataclass(frozen=True, slots=True)
class _Doomed:
    """The dataset whose keys go; `slots` is None where they may be gone already."""

    id: bytes
    name: str
    last_keyset: int
    epochs: int
    slots: int | None


def _shred(
    session: Session,
    dataset: _Doomed,
    signer: SigningKey,
    close: Callable[[], object],
    delete_data: bool,
    reason: str,
) -> Erased:
    with recorded(
        session, "key.shred", security=True, dataset=dataset.name, dataset_id=dataset.id.hex(), purpose=reason
    ) as event:
        close()
        destroyed, kept = _destroy(session, dataset, delete_data=delete_data)
        _check_closed(session, dataset)
        event.note(slots=dataset.slots, objects=sum(destroyed.values()))
        certificate = _certificate(session, dataset, destroyed, kept, reason)
    return _signed(certificate, signer)


def _destroy(session: Session, dataset: _Doomed, *, delete_data: bool) -> tuple[dict[str, int], list[str]]:
    """Remove what holds or held keys, and what this machine knows; return counts, and what was not removed."""
    store, prefix = session.store, dataset_prefix(dataset.id)
    newest = f"{prefix}keyset/"
    names = [item.name for item in store.list(newest)]
    last, older = names[:1], names[1:]
    destroyed = {"keysets": len(older)}
    for name in older:
        store.delete(name)
    kept: list[str] = []
    destroyed["old versions of keysets"] = _purge_versions(session.driver, newest, set(last), kept)
    if delete_data:
        destroyed["packs"] = _delete_all(store, f"{prefix}packs/")
        destroyed["old versions of packs"] = _purge_versions(session.driver, f"{prefix}packs/", set(), kept)
    else:
        kept.append("the sealed packs, which nothing opens any more (`--delete-data` removes them)")
    destroyed["local records"] = session.repository.forget_dataset(dataset.id, dataset.name)
    return destroyed, kept + _views_here(session, dataset.name)


def _views_here(session: Session, name: str) -> list[str]:
    """Return what this machine's caches hold of the dataset, in plain: jobs may be reading it, so it is only named."""
    found = []
    for path in filter(Path.is_dir, session.config.caches):
        try:
            with Cache.open(path) as cache:
                count = sum(1 for _ in cache.views(name))
        except DatasyncError as error:
            found.append(f"views in this machine's cache {path}, which could not be looked at: {error}")
            continue
        if count:
            found.append(f"{count} views in plain in this machine's cache {path} (`datasync cache evict` removes them)")
    return found


def _delete_all(store: ObjectStore, prefix: str) -> int:
    count = 0
    for item in list(store.list(prefix)):
        store.delete(item.name)
        count += 1
    return count


def _purge_versions(driver: ObjectStore, prefix: str, spared: set[str], kept: list[str]) -> int:
    """Remove every stored version under *prefix* but the newest of *spared*; return how many."""
    if not isinstance(driver, Versions):
        return 0
    try:
        if driver.versioning() == "off":
            return 0
        return sum(1 for _ in _removed_versions(driver, prefix, spared, kept))
    except DatasyncError as error:
        kept.append(f"old versions under {prefix} could not be looked for: {error}")
        return 0


def _removed_versions(driver: Versions, prefix: str, spared: set[str], kept: list[str]) -> Iterable[str]:
    for item in list(driver.list_versions(prefix)):
        if item.name in spared and item.newest:
            continue
        try:
            driver.delete_version(item.name, item.version)
        except DatasyncError as error:
            kept.append(f"version {item.version} of {item.name}: {error}")
            continue
        yield item.name


def _check_closed(session: Session, dataset: _Doomed) -> None:
    """Prove that nothing at hand opens the dataset: it is opened anew, from the store."""
    try:
        session.repository.reload(dataset.id)
    except (Shredded, NotFound, WrongKey):
        pass
    else:
        raise IntegrityError(f"dataset {dataset.name!r}: it still opens after it was shredded: do not rely on erasure")
    left = [item.name for item in session.store.list(f"{dataset_prefix(dataset.id)}keyset/")]
    if len(left) != 1:
        raise StorageUnavailable(f"dataset {dataset.name!r}: {len(left)} keysets are still listed: shred it again")


def _certificate(
    session: Session,
    dataset: _Doomed,
    destroyed: dict[str, int],
    kept: list[str],
    reason: str,
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": 1,
        "dataset": dataset.name,
        "dataset_id": dataset.id.hex(),
        "repository": session.repository.marker.repository,
        "url": session.store.url,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "tool": TOOL,
        "reason": reason,
        "last_keyset": dataset.last_keyset,
        "slots_destroyed": dataset.slots if dataset.slots is not None else "all (an earlier run began)",
        "epochs": dataset.epochs,
        "destroyed": destroyed,
        "not_destroyed": kept,
        "out_of_reach": list(OUT_OF_REACH),
        "checked": "the dataset was opened anew with every key that this machine holds: none opens it",
    }


def _signed(certificate: dict[str, Any], signer: SigningKey) -> Erased:
    body = _canonical(certificate)
    signed = certificate | {"signer": signer_text(signer.public), "signature": signer.sign(KIND, body).hex()}
    return Erased(signed, json.dumps(signed, indent=1, sort_keys=True, ensure_ascii=False) + "\n", page(signed))


def _canonical(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def verify_certificate(text: str, what: str) -> dict[str, Any]:
    """Return the fields of the certificate in *text*, whose signature holds; who signed it is the reader's to judge."""
    try:
        fields = json.loads(text)
        signer, signature = parse_signer(fields["signer"]), bytes.fromhex(fields["signature"])
        told = [fields[name] for name in TOLD]
        if fields["format"] != FORMAT or not all(isinstance(value, str) for value in told):
            raise ValueError("another format")
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError, DatasyncError):
        raise FormatError(f"{what}: expected an erasure certificate, found something else") from None
    body = _canonical({key: value for key, value in fields.items() if key not in ("signer", "signature")})
    verify(signer, KIND, body, signature)
    return dict(fields)


def page(fields: dict[str, Any]) -> str:
    """Return the certificate as a page that prints: self-contained HTML."""
    rows = "".join(f"<tr><th>{escape(key)}</th><td>{_cell(value)}</td></tr>" for key, value in fields.items())
    title = f"Erasure certificate: {escape(str(fields['dataset']))}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head><body><h1>{title}</h1><table>{rows}</table></body></html>\n"
    )


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return "<br>".join(f"{escape(str(key))}: {escape(str(item))}" for key, item in value.items())
    if isinstance(value, list):
        return "<br>".join(escape(str(item)) for item in value)
    return escape(str(value))
