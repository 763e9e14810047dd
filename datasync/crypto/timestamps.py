"""RFC 3161 time stamps: a time stamping authority's signed word that some bytes were there at a time.

The request holds the SHA-512 of the bytes and a nonce, never the bytes. A stamp is checked offline against the
authority's root certificates, as of the time that it tells. Needs the extra `timestamps`. Raises `IntegrityError`,
`UsageError`.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cryptography import x509

from datasync.errors import IntegrityError, UsageError

try:
    import rfc3161_client as rfc3161
except ModuleNotFoundError as error:
    if error.name != "rfc3161_client":
        raise
    raise UsageError("time stamps: rfc3161-client is not installed: pip install 'gpu-datasync[timestamps]'") from None

GRANTED = 0  # PKIStatus


@dataclass(frozen=True, slots=True)
class Request:
    """A request, and what the answer has to hold."""

    body: bytes
    nonce: int | None


def make_request(content: bytes) -> Request:
    """Return the request for a stamp of *content*."""
    made = rfc3161.TimestampRequestBuilder().data(content).hash_algorithm(rfc3161.HashAlgorithm.SHA512).build()
    return Request(made.as_bytes(), made.nonce)


def check_answer(answer: bytes, request: Request, authority: str) -> None:
    """Refuse an answer that is no granted stamp for *request*; whose it is only `check_stamp` tells."""
    found = _decode(answer, authority)
    if found.status != GRANTED:
        why = "; ".join(found.status_string) or f"status {found.status}"
        raise UsageError(f"{authority}: it gave no time stamp: {why}")
    if found.tst_info.nonce != request.nonce:
        raise IntegrityError(f"{authority}: it answered another request than this one")


def check_stamp(stamp: bytes, content: bytes, roots: bytes, what: str) -> datetime:
    """Return when *stamp* says that *content* was there, if an authority beneath *roots* (PEM) signed it."""
    found = _decode(stamp, what)
    try:
        builder = rfc3161.VerifierBuilder()
        for root in x509.load_pem_x509_certificates(roots):
            builder = builder.add_root_certificate(root)
        verifier = builder.build()
    except ValueError as error:
        raise UsageError(f"root certificates of the time stamp: expected PEM: {error}") from None
    try:
        verifier.verify_message(found, content)
    except (rfc3161.VerificationError, ValueError) as error:
        raise IntegrityError(f"{what}: the time stamp does not hold: {error}") from None
    when: datetime = found.tst_info.gen_time
    return when


def _decode(data: bytes, what: str) -> Any:
    try:
        return rfc3161.decode_timestamp_response(data)
    except ValueError:
        raise IntegrityError(f"{what}: expected a time stamp of RFC 3161, found something else") from None
