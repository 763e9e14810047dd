"""Run every check on the tree in the current folder; print each finding and exit 1 if there is one.

Reads the files that git tracks and those that it neither tracks nor ignores, so a new file is checked before its
commit. Writes nothing.
"""

import subprocess
import sys
from pathlib import Path

from tests.checks.documents import check_documents
from tests.checks.tree import check_tree


def read_texts(root: Path) -> dict[str, str]:
    """Return the text of every file of the tree by its path; a binary file has none."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    texts = {}
    for name in sorted({name.decode() for name in listing.split(b"\0") if name}):
        path = root / name
        if path.is_file():  # a deleted file is still listed until its commit
            raw = path.read_bytes()
            texts[name] = "" if b"\0" in raw else raw.decode("utf-8", "replace")
    return texts


def main() -> int:
    """Print the findings and return the exit code."""
    texts = read_texts(Path.cwd())
    findings = check_tree(texts) + check_documents(texts)
    for finding in findings:
        print(finding)
    print(f"checks: {len(texts)} files, {len(findings)} findings")
    return 1 if findings or not texts else 0


if __name__ == "__main__":
    sys.exit(main())
