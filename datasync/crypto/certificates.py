"""What is read from an X.509 certificate here. Raises `UsageError` for what is none."""

from cryptography import x509

from datasync.errors import UsageError


def not_after(pem: bytes, what: str) -> float:
    """Return the end of a PEM certificate's life, Unix time in seconds."""
    try:
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
    except ValueError:
        raise UsageError(f"{what}: expected a PEM certificate, found something else") from None
