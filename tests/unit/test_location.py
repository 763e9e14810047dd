"""Store URLs: what is understood, how it is normalised, what is refused, and that nothing is imported too early."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasync.errors import UsageError
from datasync.storage.local import LocalStore
from datasync.storage.location import StoreUrl, open_store, parse_url
from datasync.storage.memory import MemoryStore


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/srv/data", StoreUrl("file", "/srv/data")),
        ("/srv//data/../x/", StoreUrl("file", "/srv/x")),
        ("file:///srv/data", StoreUrl("file", "/srv/data")),
        ("file://localhost/srv/with%20blank", StoreUrl("file", "/srv/with blank")),
        ("memory://trial", StoreUrl("memory", "trial")),
        ("memory://trial/a/b/", StoreUrl("memory", "trial", "a/b")),
        ("s3://bucket", StoreUrl("s3", "bucket")),
        ("S3://bucket//a//b/", StoreUrl("s3", "bucket", "a/b")),
        ("s3://b1?region=eu-west-1", StoreUrl("s3", "b1", region="eu-west-1")),
        (
            "s3://bucket/p?endpoint=http://127.0.0.1:9000/&addressing=path",
            StoreUrl("s3", "bucket", "p", "http://127.0.0.1:9000", None, "path"),
        ),
        (
            "s3://bucket/p?endpoint=https%3A%2F%2FHost.Example&region=auto&addressing=virtual",
            StoreUrl("s3", "bucket", "p", "https://host.example", "auto", "virtual"),
        ),
        ("gs://bucket/p?project=mine", StoreUrl("gs", "bucket", "p", options=(("project", "mine"),))),
        ("az://box?account=acme", StoreUrl("az", "box", options=(("account", "acme"),))),
        ("sftp://me@host:22/srv/data", StoreUrl("sftp", "me@host:22", "srv/data")),
        ("webdav+https://host/x", StoreUrl("webdav+https", "host", "x")),
        ("hdfs:///data", StoreUrl("hdfs", "", "data")),
        ("s3://bucket?endpoint=http://[::1]:9000", StoreUrl("s3", "bucket", "", "http://[::1]:9000")),
    ],
)
def test_a_url_is_parsed_and_its_text_parses_to_the_same(text: str, expected: StoreUrl) -> None:
    assert parse_url(text) == expected
    assert parse_url(str(expected)) == expected


def test_a_relative_path_and_the_home_directory_are_local() -> None:
    assert parse_url("some/where") == StoreUrl("file", str(Path.cwd() / "some/where"))
    assert parse_url("~/x") == StoreUrl("file", os.path.expanduser("~/x"))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "expected a path or a URL"),
        ("/a\0b", "expected a path or a URL"),
        ("https://host/x", "unknown scheme https://"),
        ("s3://", "bucket"),
        ("s3:///prefix", "bucket"),
        ("s3://b", "bucket"),
        ("s3://-bucket", "bucket"),
        ("s3:bucket/prefix", "write s3://"),
        ("s3://bucket/a/../b", "prefix"),
        ("s3://bucket/a b", "blanks"),
        ("s3://bucket/ä", "prefix"),
        ("s3://bucket/" + "a/" * 200, "prefix"),
        ("s3://bucket?regoin=x", "unknown option 'regoin'"),
        ("s3://bucket?region=", "once and with a value"),
        ("s3://bucket?region=a&region=b", "once and with a value"),
        ("s3://bucket?region=a/b", "region must be"),
        ("s3://bucket?addressing=both", "path, virtual, auto"),
        ("s3://bucket?endpoint=host:9000", "endpoint must be"),
        ("s3://bucket?endpoint=http://host:notaport", "endpoint has an invalid"),
        ("s3://bucket?endpoint=http://host?x=1", "endpoint must be"),
        ("s3://bucket#x", "'#'"),
        ("s3://[bucket", "not a valid"),
        ("file://host/x", "file:///absolute"),
        ("file:///x?region=y", "unknown option"),
        ("memory://", "memory://name"),
        ("gs://bucket?region=x", "unknown option 'region'"),
        ("az://b", "az://bucket/prefix"),
        ("s3://bucket?kms_key=a%20b", "option 'kms_key' must be"),
        ("sftp://host", "no path"),
        ("sftp://ho st/x", "blanks"),
        ("sftp://host:port/x", "sftp://user@host:port/path"),
    ],
)
def test_anything_else_is_one_clear_line(text: str, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_url(text)
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "s3://AKID:hunter2@bucket/x",
        "s3://bucket?endpoint=https://user:hunter2@host",
        "s3://bucket?secret_key=hunter2",
        "https://user:hunter2@host/",
        "memory://user:hunter2@name",
        "file://user:hunter2@host/x",
        "sftp://user:hunter2@host/x",
        "webdav+https://user:hunter2@host/x",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_url(text)
    assert "hunter2" not in str(caught.value)


@given(st.text(max_size=60) | st.text(max_size=60).map(lambda rest: f"s3://{rest}"))
def test_any_text_is_a_location_or_a_usage_error(text: str) -> None:
    try:
        where = parse_url(text)
    except UsageError:
        return
    assert parse_url(str(where)) == where


def test_a_store_opens_by_its_scheme(tmp_path: Path) -> None:
    assert isinstance(open_store(str(tmp_path)), LocalStore)
    assert isinstance(open_store("memory://opened"), MemoryStore)


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_prefix_inside_is_a_store_of_its_own(tmp_path: Path, kind: str) -> None:
    url = str(tmp_path) if kind == "local" else f"memory://{tmp_path.name.replace('[', '-').replace(']', '-')}"
    open_store(url, prefix="a/b").put_if_absent("c", b"x")
    assert [found.name for found in open_store(url).list("")] == ["a/b/c"]
    assert [found.name for found in open_store(url, prefix="a").list("")] == ["b/c"]
    assert open_store(url, prefix="a/b").get("c", limit=1) == b"x"
    with pytest.raises(UsageError):
        open_store(url, prefix="../x")


def test_a_named_memory_store_is_shared_and_an_unnamed_one_is_not() -> None:
    MemoryStore("shared-by-name").put_if_absent("one", b"x")
    assert MemoryStore("shared-by-name").get("one", limit=1) == b"x"
    MemoryStore().put_if_absent("one", b"x")
    assert list(MemoryStore().list("")) == []


def test_importing_the_module_imports_no_sdk() -> None:
    code = (
        "import sys, datasync.storage.location as l\n"
        "l.open_store('/tmp'); l.parse_url('s3://bucket')\n"
        "print([m for m in ('boto3', 'botocore', 'urllib3', 'datasync.storage.s3') if m in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_s3_directory_bucket_is_refused() -> None:
    with pytest.raises(UsageError, match="directory buckets"):
        open_store("s3://name--use1-az4--x-s3/prefix?region=us-east-1")
