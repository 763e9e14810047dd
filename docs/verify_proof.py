"""Check a proof of datasync's audit log without datasync: python verify_proof.py PROOF.json [VERIFIER-KEY]

Needs Python and the package `cryptography`. Give the verifier key that you got from the log's owner earlier; the one in
the proof is only as good as the proof's own word. RFC 6962 section 2.1, RFC 9162 section 2.1.3.2, C2SP signed-note.
"""

import base64
import hashlib
import json
import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def sha256(data):
    return hashlib.sha256(data).digest()


def open_note(note, key):
    """Return (size, root) that the owner of *key* signed."""
    name, _, public = key.strip().split("+", 2)
    public = base64.b64decode(public)[1:]
    text, signatures = note.split("\n\n")
    key_hash = sha256(name.encode() + b"\n\x01" + public)[:4]
    for line in signatures.strip().split("\n"):
        _, signer, blob = line.split(" ")
        blob = base64.b64decode(blob)
        if signer == name and blob[:4] == key_hash:
            Ed25519PublicKey.from_public_bytes(public).verify(blob[4:], (text + "\n").encode())
            origin, size, root = text.split("\n")
            assert origin == name, "the checkpoint is of another log"
            return int(size), base64.b64decode(root)
    raise ValueError("the checkpoint has no signature of this key")


def root_from(leaf, index, size, path):
    """Return the root hash that the path leads to."""
    number, last = index, size - 1
    for item in path:
        assert last > 0, "the path is too long"
        if number & 1 or number == last:
            leaf = sha256(b"\x01" + item + leaf)
            while not number & 1 and number:
                number, last = number >> 1, last >> 1
        else:
            leaf = sha256(b"\x01" + leaf + item)
        number, last = number >> 1, last >> 1
    return leaf if last == 0 else b"the path is too short"


if __name__ == "__main__":
    proof = json.loads(Path(sys.argv[1]).read_text())
    size, root = open_note(proof["checkpoint"], sys.argv[2] if len(sys.argv) > 2 else proof["key"])
    event, index = proof["event"].encode(), proof["seq"]
    assert json.loads(event)["seq"] == index < size, "the event is not the one that the proof names"
    path = [base64.b64decode(item) for item in proof["path"]]
    if root_from(sha256(b"\x00" + event), index, size, path) != root:
        sys.exit("NOT PROVED: the event is not in the log with this checkpoint")
    print(f"proved: event {index} of {size} is in {json.loads(event)['log']}\n{event.decode()}")
