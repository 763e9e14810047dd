"""What slots and principals say of their holder, sealed in their `label` (docs/format.md, sections 6 and 7)."""

from datasync.errors import FormatError
from datasync.format.encoding import Record, decode, encode
from datasync.model.limits import LABEL_NAME_BYTES

EPOCH_BYTES = 4


class HolderLabel(Record, frozen=True):
    """A holder's name for people; its public key, so a new epoch can be wrapped for it; its signer, if it has one."""

    name: str
    public: bytes
    signer: bytes


def read_label(data: bytes, what: str) -> HolderLabel:
    """Return the label in *data*."""
    label = decode(HolderLabel, data, what)
    if len(label.name.encode()) > LABEL_NAME_BYTES or len(label.signer) not in (0, 32):
        raise FormatError(f"{what}: a label whose name or signer is too long")
    return label


def write_label(label: HolderLabel) -> bytes:
    """Return the encoding of *label*."""
    return encode(label)
