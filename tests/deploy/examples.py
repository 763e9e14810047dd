"""The files in deploy/ that `datasync jobs render` makes; `python -m tests.deploy.examples` writes them."""

from pathlib import Path

from datasync.integrations.jobs import Job, render

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
REPOSITORY = "s3://acme-datasets/ds?region=eu-central-1"
_BUCKET = Job("imagenet:prod", repository=REPOSITORY, trust=("<DATASET-ID>",))
_ON_NODE = Job("imagenet:prod", repository=REPOSITORY, trust=("<DATASET-ID>",), cache="/mnt/nvme/datasync")
_TWO_NODES = Job("imagenet:prod", repository=REPOSITORY, trust=("<DATASET-ID>",), cache="/mnt/nvme/datasync", nodes=2)

EXAMPLES: dict[str, tuple[str, Job, str | None]] = {
    "slurm/prolog.sh": ("slurm", _TWO_NODES, "prolog"),
    "slurm/run.sh": ("slurm", _TWO_NODES, "run"),
    "kubernetes/init-emptydir.yaml": ("k8s", _BUCKET, "init"),
    "kubernetes/init-hostpath.yaml": ("k8s", _ON_NODE, "init"),
    "kubernetes/init-two-nodes.yaml": ("k8s", _TWO_NODES, "init"),
    "kubernetes/sidecar-hostpath.yaml": ("k8s", _ON_NODE, "sidecar"),
    "skypilot/task.yaml": ("skypilot", _BUCKET, None),
    "docker/run.sh": ("docker", _ON_NODE, None),
    "docker/torchrun.sh": ("torchrun", _BUCKET, None),
    "ssh/run.sh": ("ssh", _BUCKET, None),
}


def write_all() -> None:
    """Write every example."""
    for name, (kind, job, variant) in EXAMPLES.items():
        path = DEPLOY / name
        path.write_text(render(kind, job, variant), encoding="utf-8")
        path.chmod(0o755 if path.suffix == ".sh" else 0o644)


if __name__ == "__main__":
    write_all()
