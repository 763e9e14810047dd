"""What the Kubernetes manifest needs beyond its fixed text: volumes, environments, the sidecar's and many nodes' parts.

Pure. Values are quoted for YAML and for Kubernetes' own `$(NAME)`.
"""

from dataclasses import dataclass

from datasync.integrations.quoting import kubernetes, yaml

PROBE_SECONDS = 5
WARM_SECONDS = 4 * 3600  # a sidecar that is not ready by then is started again, and resumes


@dataclass(frozen=True, slots=True)
class Settings:
    """A job for Kubernetes; `variables` is what the warming container is told, `cache` the node's directory."""

    reference: str
    command: str
    image: str
    variables: dict[str, str]
    cache: str | None
    nodes: int
    label: str


def values(job: Settings, *, sidecar: bool) -> dict[str, str]:
    """Return the values of the manifest's placeholders."""
    lines = [f"- {{name: {key}, value: {kubernetes(text)}}}" for key, text in job.variables.items()]
    return {
        "image": yaml(job.image),
        "reference": kubernetes(job.reference),
        "command": kubernetes(job.command),
        "environment": "\n".join(lines),
        "volume": f"hostPath: {{path: {yaml(job.cache)}, type: DirectoryOrCreate}}" if job.cache else "emptyDir: {}",
        "stay": " && exec sleep infinity" if sidecar else "",
        "sidecar": _SIDECAR.format(failures=WARM_SECONDS // PROBE_SECONDS, period=PROBE_SECONDS) if sidecar else "",
        **_many_nodes(job),
    }


def _many_nodes(job: Settings) -> dict[str, str]:
    """Return what lets the pods of several nodes find the first one."""
    if job.nodes == 1:
        return {"service": "", "indexed": "", "subdomain": "", "many": ""}
    return {
        "service": _SERVICE.format(name=job.label),
        "indexed": f"completionMode: Indexed\ncompletions: {job.nodes}\nparallelism: {job.nodes}",
        "subdomain": f"subdomain: {job.label}",
        "many": _MANY.format(name=job.label),
    }


_SIDECAR = """\
restartPolicy: Always  # a native sidecar (Kubernetes 1.29): it starts first and ends after the training
startupProbe:  # the training starts when this succeeds
  exec: {{command: [test, -e, /job/ready]}}
  periodSeconds: {period}
  failureThreshold: {failures}"""

_SERVICE = """\
apiVersion: v1
kind: Service
metadata:
  name: {name}
spec:  # gives the first pod the name that the others meet at
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {{batch.kubernetes.io/job-name: {name}}}
---
"""

_MANY = """\
- {{name: MASTER_ADDR, value: {name}-0.{name}}}
- {{name: MASTER_PORT, value: "29500"}}"""
