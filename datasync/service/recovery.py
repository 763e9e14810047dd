"""The recovery kit: a printed page that brings access back with nothing else: secret, repository, trusted datasets.

`export` makes a recovery identity, makes it an owner of every dataset that this identity owns, and returns the kit; the
identity's file keeps its public halves, so later datasets are recovered by the same kit. `recover` makes an identity
from a kit. The QR code (extra `qr`) holds the same text.
"""

import importlib.util
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from datasync.crypto.identity import RECOVERY_SEED_BYTES, Identity
from datasync.crypto.identity_file import write_identity
from datasync.crypto.kdf import random_bytes
from datasync.crypto.recovery import parse_recovery, recovery_text
from datasync.errors import DatasyncError, NoRepository, UsageError, WrongKey
from datasync.format.trust import OWNER
from datasync.service.access import Wanted, grant
from datasync.service.record import recorded
from datasync.service.session import Session

SCHEME = "datasync-recovery"
QR_DATASETS = 24  # trust roots that the QR code holds; a code of more does not scan well from paper
_HEX = re.compile(r"\b[0-9a-f]{64}\b")


@dataclass(frozen=True, slots=True, repr=False)
class Kit:
    """What the page says."""

    seed: bytes
    repository: str
    datasets: tuple[tuple[str, str], ...]  # name, trust root

    @property
    def text(self) -> str:
        """The page as text."""
        known = "".join(f"  {trust}  {name}\n" for name, trust in self.datasets) or "  none yet\n"
        return (
            "datasync recovery kit\n"
            "=====================\n"
            "Whoever has this page reads and owns the datasets below. Keep it on paper, apart from the machine.\n\n"
            f"repository\n  {self.repository or 'none'}\n\n"
            f"datasets (trust root, name)\n{known}\n"
            f"secret\n  {recovery_text(self.seed)}\n\n"
            "To restore, on any machine with datasync and access to the storage:\n"
            "  datasync key recover --kit THIS-FILE      (or without --kit: it asks for the secret)\n"
        )

    @property
    def link(self) -> str:
        """What the QR code holds."""
        trust = ",".join(trust for _, trust in self.datasets[:QR_DATASETS])
        fields = {"secret": recovery_text(self.seed), "repository": self.repository, "trust": trust}
        return f"{SCHEME}:1?" + urlencode(fields, quote_via=quote)


def qr_png(kit: Kit) -> bytes:
    """Return the kit's QR code as PNG; `UsageError` without the extra."""
    out = io.BytesIO()
    _qr(kit).save(out, kind="png", scale=4)
    return out.getvalue()


def qr_terminal(kit: Kit) -> str:
    """Return the kit's QR code in half blocks, for a terminal."""
    out = io.StringIO()
    _qr(kit).terminal(out, compact=True)
    return out.getvalue()


def check_qr() -> None:
    """Raise `UsageError` when the library that draws QR codes is not installed."""
    if importlib.util.find_spec("segno") is None:
        raise UsageError("QR code: the extra is not installed: pip install 'gpu-datasync[qr]'")


def _qr(kit: Kit) -> Any:
    check_qr()
    return importlib.import_module("segno").make_qr(kit.link, error="m")


def export(session: Session) -> tuple[Kit, list[str]]:
    """Make a new recovery identity and kit; return it and why datasets could not take the recovery identity.

    An earlier kit stays an owner of what it was an owner of: revoke it when it is lost.
    """
    identity = session.identity
    if identity is None:
        raise WrongKey("a recovery kit belongs to an identity: run `datasync key init`, or set DATASYNC_IDENTITY")
    seed = random_bytes(RECOVERY_SEED_BYTES)
    recovery = Identity.from_recovery(seed).public
    with recorded(session, "key.export-recovery", security=True):
        session.keep_identity(identity.recovered_by(recovery))
    wanted = Wanted("recovery", recovery.recipient, recovery.signer)
    datasets, problems = [], []
    for name, trust, owned in _datasets(session):
        if not owned:
            continue
        try:
            changed = grant(session, name, wanted, "owner", 0)
        except DatasyncError as error:
            problems.append(str(error))
            continue
        if changed.proposal is not None:
            problems.append(f"dataset {name!r}: its owners have to sign together: grant the recovery identity by hand")
            continue
        datasets.append((name, trust))
    return Kit(seed, session.config.repository or "", tuple(datasets)), problems


def _datasets(session: Session) -> Iterable[tuple[str, str, bool]]:
    if not session.config.repository or session.identity is None:
        return
    me = session.identity.signing_key.public
    try:
        opened, _ = session.repository.open_all()
    except NoRepository:
        return
    for dataset in opened:
        yield dataset.name, dataset.id.hex(), me in dataset.trusted.root.with_role(OWNER)


def recover(session: Session, text: str) -> Identity:
    """Make this machine's identity from a kit's *text*: the page, the QR code's content, or the secret alone."""
    secret, trust = _parse(text)
    identity = replace(Identity.from_recovery(parse_recovery(secret)), trust=trust)
    with recorded(session, "key.recover", security=True):
        write_identity(session.config.identity, identity)
    return identity


def _parse(text: str) -> tuple[str, tuple[str, ...]]:
    stripped = text.strip()
    if stripped.startswith(f"{SCHEME}:"):
        fields = parse_qs(urlsplit(stripped).query)
        return fields.get("secret", [""])[0], tuple(_HEX.findall(fields.get("trust", [""])[0]))
    lines = [line.strip() for line in stripped.splitlines()]
    secrets = [line for line in lines if line.upper().startswith("DSRK1")] or [stripped]
    return secrets[-1], tuple(dict.fromkeys(_HEX.findall(stripped)))
