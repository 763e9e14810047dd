"""Each driver imports its own SDK and nobody else's, and none is imported before a URL asks for it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
SDKS = {
    "s3": ("boto3", "botocore", "s3transfer"),
    "gs": ("google.auth", "google_crc32c", "google.cloud"),
    "az": ("azure",),
    "oss": ("oss2", "alibabacloud_oss_v2"),
    "cos": ("qcloud_cos",),
    "sftp": ("fsspec", "paramiko"),
}
URLS = {
    "s3": "s3://bucket/x?region=eu-west-1",
    "gs": "gs://bucket/x",
    "az": "az://bucket/x?account=acme",
    "oss": "oss://bucket/x?region=cn-beijing&endpoint=http://oss-cn-beijing.localhost:1",
    "cos": "cos://bucket-1250000000/x?region=ap-beijing",
    "sftp": "sftp://host/x",
    "file": "/tmp/never-made",
    "memory": "memory://x",
}


def loaded(url: str) -> set[str]:
    """Return whose SDKs are there after a store was opened."""
    code = (
        "import os, sys\n"
        "os.environ.update(AWS_ACCESS_KEY_ID='x', AWS_SECRET_ACCESS_KEY='x')\n"
        "from datasync.storage.location import open_store\n"
        f"open_store({url!r})\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    return {scheme for scheme, names in SDKS.items() if modules & set(names)}


@pytest.mark.parametrize("scheme", URLS)
def test_a_driver_imports_no_others_sdk(scheme: str) -> None:
    own = {scheme} if scheme in SDKS and scheme != "az" else set()  # Azure's is imported for a login only
    assert loaded(URLS[scheme]) == own


def test_the_base_install_brings_no_sdk() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    names = " ".join(project["dependencies"])
    for word in ("boto", "google", "azure", "oss", "cos", "fsspec", "paramiko", "urllib3", "requests"):
        assert word not in names
    extras = project["optional-dependencies"]
    brought = {"s3": "boto3", "gcs": "google", "azure": "azure", "cos": "cos-python", "sftp": "paramiko"}
    for extra, word in brought.items():
        assert any(word in name for name in extras[extra])
        assert not [
            name for other, theirs in brought.items() if other != extra for name in extras[extra] if theirs in name
        ]


def test_a_missing_package_is_named_with_what_installs_it() -> None:
    code = (
        "import sys\n"
        "sys.modules['google_crc32c'] = None\n"
        "from datasync.storage.location import open_store\n"
        "open_store('gs://bucket/x')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert "UsageError" in done.stderr.splitlines()[-1]
    assert "google_crc32c: pip install 'gpu-datasync[gcs]'" in done.stderr
