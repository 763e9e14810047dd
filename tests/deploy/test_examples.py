"""The files in deploy/ are what `datasync jobs render` prints, and Kubernetes takes the manifests."""

from typing import Any

import pytest

from datasync.integrations.jobs import Job, render
from tests.deploy.examples import DEPLOY, EXAMPLES

KUBERNETES = ("1.29", "1.37")  # the first release with native sidecars, and the newest known


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_is_current(name: str) -> None:
    kind, job, variant = EXAMPLES[name]
    assert (DEPLOY / name).read_text(encoding="utf-8") == render(kind, job, variant), (
        "run: python -m tests.deploy.examples"
    )


def test_nothing_else_is_called_an_example() -> None:
    found = {str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*") if path.is_file()}
    units = {f"systemd/datasync-{kind}.service" for kind in ("system", "user")}  # tests/daemon has theirs
    assert found == {*EXAMPLES, *units, "README.md", "docker/Dockerfile"}


def _accepted(document: dict[str, Any], version: str) -> None:
    validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate, which has the schemas, is missing"
    )
    validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("variant", ["init", "sidecar"])
@pytest.mark.parametrize("cache", [None, "/mnt/nvme"])
@pytest.mark.parametrize("nodes", [1, 3])
def test_the_schemas_accept_every_manifest(version: str, variant: str, cache: str | None, nodes: int) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is missing")
    job = Job("imagenet:prod", repository="s3://bucket/x", trust=("a1",), cache=cache, nodes=nodes)
    documents = list(yaml.safe_load_all(render("k8s", job, variant)))
    assert [item["kind"] for item in documents] == (["Job"] if nodes == 1 else ["Service", "Job"])
    for document in documents:
        _accepted(document, version)


def test_a_manifest_with_a_mistake_is_noticed() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is missing")
    document = yaml.safe_load(render("k8s", Job("data", repository="s3://bucket/x")))
    document["spec"]["template"]["spec"]["initContainers"][0]["restart"] = "Always"
    with pytest.raises(Exception, match="restart"):
        _accepted(document, KUBERNETES[-1])


def test_secrets_are_named_and_mounted_for_the_warming_container_alone() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is missing")
    pod = yaml.safe_load(render("k8s", Job("data", repository="s3://bucket/x")))["spec"]["template"]["spec"]
    identity = next(volume for volume in pod["volumes"] if volume["name"] == "identity")
    assert identity["secret"]["defaultMode"] == 0o400
    [warm], [train] = pod["initContainers"], pod["containers"]
    assert {item["name"] for item in warm["env"] if "valueFrom" in item} == {
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
    }  # fmt: skip
    assert all("valueFrom" not in item for item in train["env"])
    assert "identity" not in {mount["name"] for mount in train["volumeMounts"]}
    assert next(mount for mount in train["volumeMounts"] if mount["name"] == "datasync")["readOnly"] is True
