"""Offline grants: one line of text that an owner signed for one machine (docs/format.md, section 16)."""

import base64
import binascii
from typing import Annotated

import msgspec

from datasync.errors import FormatError
from datasync.format.encoding import U63, Id, Record, decode, encode
from datasync.format.signed import Signature, Signed, read_signed, write_signed

PREFIX = "dsg1"
KIND = "grant"
TEXT_CHARACTERS = 16 * 1024
ACTIONS = 64
NAME_CHARACTERS = 256

Digest = Annotated[bytes, msgspec.Meta(max_length=32)]
Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARACTERS)]


class Grant(Record, frozen=True):
    """What *node* may do with a dataset until then; times in ms, `last` 0: no last snapshot; empty: not said."""

    dataset: Id
    issued: U63
    until: U63
    node: Id
    actions: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=ACTIONS)]
    first: U63
    last: U63
    policy: Digest
    region: Name
    purpose: Name


def read_grant(text: str, what: str) -> tuple[Grant, Signed]:
    """Return the grant in *text* and what was signed; the signature is checked by who has the trust root."""
    body = text.strip()
    if not body.startswith(PREFIX) or len(body) > TEXT_CHARACTERS:
        raise FormatError(f"{what}: expected one line that starts with {PREFIX}, found {body[:16]!r}")
    try:
        data = base64.b64decode(body[len(PREFIX) :], altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise FormatError(f"{what}: the line was not copied whole") from None
    signed = read_signed(data, what)
    if len(signed.signatures) != 1 or write_text(signed) != body:
        raise FormatError(f"{what}: expected one signature and the one encoding of a grant")
    return _checked(decode(Grant, signed.body, what), what), signed


def _checked(grant: Grant, what: str) -> Grant:
    if grant.actions != tuple(sorted(set(grant.actions))):
        raise FormatError(f"{what}: expected actions sorted, each once")
    if grant.until <= grant.issued or (grant.last and grant.last < grant.first) or len(grant.policy) not in (0, 32):
        raise FormatError(f"{what}: its times, snapshots or policy make no sense")
    return grant


def write_grant(grant: Grant) -> bytes:
    """Return the body that is signed."""
    return encode(_checked(grant, KIND))


def write_text(signed: Signed) -> str:
    """Return the line."""
    data = write_signed(signed.body, list(signed.signatures))
    return PREFIX + base64.urlsafe_b64encode(data).decode()


def signed_grant(grant: Grant, signature: Signature) -> str:
    """Return the line of *grant* with its issuer's signature."""
    return write_text(Signed(write_grant(grant), (signature,)))
