"""Job files for schedulers and containers, filled in for one dataset (docs/jobs.md).

Pure: a `Job` in, the text of a file out. The files' fixed text lies in `templates/`; `@name@` in it is replaced once,
so nothing that a value holds is read as a placeholder. Every value is quoted for where it stands. No secret is ever
part of a file: it names where the secret is found. Raises `UsageError` for what can not be a job.
"""

import re
import shlex
import unicodedata
from dataclasses import dataclass
from importlib import resources

from datasync import __version__
from datasync.errors import UsageError
from datasync.integrations import kubernetes
from datasync.integrations.quoting import label, shell, yaml
from datasync.service.references import parse_reference
from datasync.service.warm import variables
from datasync.storage.location import parse_url

VARIANTS = {
    "slurm": ("prolog", "run"),
    "k8s": ("init", "sidecar"),
    "skypilot": ("run",),
    "torchrun": ("run",),
    "docker": ("run",),
    "ssh": ("run",),
}
"""Kinds of files, and the variants of each, the default first."""
_FILES = {
    "slurm": "slurm-{variant}.sh",
    "k8s": "kubernetes.yaml",
    "skypilot": "skypilot.yaml",
    "torchrun": "torchrun.sh",
    "docker": "docker.sh",
    "ssh": "ssh.sh",
}
INHERITS = ("slurm", "torchrun")  # these run with the environment and the configuration of who starts them
WITH_IMAGE = ("k8s", "skypilot", "docker")
DEFAULT_IMAGE = f"gpu-datasync:{__version__}"
NODES = 10_000  # more is a slip of the hand
COMMAND_CHARACTERS = 65_536

_PLACEHOLDER = re.compile(r"^( *)@([a-z_]+)@\n|@([a-z_]+)@", re.MULTILINE)
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}")


@dataclass(frozen=True, slots=True)
class Job:
    """What a job reads and runs. `cache` is a directory of the node; `command` a line for bash."""

    reference: str
    command: str | None = None
    repository: str | None = None
    trust: tuple[str, ...] = ()
    cache: str | None = None
    nodes: int = 1
    image: str | None = None


def render(kind: str, job: Job, variant: str | None = None) -> str:
    """Return the file of *kind* for *job*."""
    chosen = _variant(kind, variant)
    _check(kind, job)
    return fill(_template(_FILES[kind].format(variant=chosen)), _values(kind, job, chosen))


def fill(template: str, values: dict[str, str]) -> str:
    """Return *template* with every placeholder replaced, in one pass.

    One that stands alone on its line takes as many lines as its value has, none if that is empty.
    """

    def replace(found: re.Match[str]) -> str:
        indent, alone, inside = found.groups()
        if inside:
            return values[inside]
        if not values[alone]:
            return ""
        return "".join(f"{indent}{line}\n" for line in values[alone].split("\n")) if indent else values[alone] + "\n"

    return _PLACEHOLDER.sub(replace, template)


def _template(file: str) -> str:
    return (resources.files("datasync.integrations") / "templates" / file).read_text(encoding="utf-8")


def _variant(kind: str, variant: str | None) -> str:
    known = VARIANTS.get(kind)
    if known is None:
        raise UsageError(f"kind of job {kind!r}: expected one of {', '.join(VARIANTS)}")
    if variant is not None and variant not in known:
        raise UsageError(f"--variant {variant!r}: for {kind} expected one of {', '.join(known)}")
    return variant or known[0]


def _check(kind: str, job: Job) -> None:
    for what, value in (("--cache", job.cache), *(("--trust", item) for item in job.trust)):
        if value is not None and (not value or not value.isprintable()):
            raise UsageError(f"{what} {value!r}: expected printable characters")
    if job.cache is not None and not job.cache.startswith("/"):
        raise UsageError(f"--cache {job.cache!r}: expected an absolute path: the job runs in another directory")
    if not 1 <= job.nodes <= NODES:
        raise UsageError(f"--nodes {job.nodes}: expected 1 to {NODES}")
    if job.repository is None and kind not in INHERITS:
        raise UsageError(f"{kind}: expected a repository, found none: pass --repository or set DATASYNC_REPOSITORY")
    _check_command(job.command)
    _check_image(kind, job)


def _check_command(command: str | None) -> None:
    if command is None:
        return
    if not command.strip() or len(command) > COMMAND_CHARACTERS:
        raise UsageError(f"--command: expected 1 to {COMMAND_CHARACTERS} characters, found {len(command)}")
    if any(c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cs") for c in command):
        raise UsageError("--command: expected text without control characters but newline and tab")


def _check_image(kind: str, job: Job) -> None:
    if job.image is not None:
        if kind not in WITH_IMAGE:
            raise UsageError(f"--image: {kind} runs no image: leave it out, or render {', '.join(WITH_IMAGE)}")
        if _IMAGE.fullmatch(job.image) is None:
            raise UsageError(f"--image {job.image!r}: expected an image's name such as registry/name:tag")
    if kind == "docker" and any(c in (job.cache or "") for c in ',"'):
        raise UsageError(f'--cache {job.cache!r}: docker takes no path with , or " for a mount')


def _values(kind: str, job: Job, variant: str) -> dict[str, str]:
    name = parse_reference(job.reference).name
    path, snapshot = variables(name)
    values = {"label": label(name), "path_variable": path, "snapshot_variable": snapshot, "nodes": str(job.nodes)}
    settings = _settings(job)
    command = job.command or "python train.py"
    if kind == "k8s":
        asked = kubernetes.Settings(
            job.reference, command, job.image or DEFAULT_IMAGE, settings, job.cache, job.nodes, values["label"]
        )
        return values | kubernetes.values(asked, sidecar=variant == "sidecar")
    if kind == "skypilot":
        return values | _skypilot(job, settings, command)
    if kind == "docker":
        return values | _docker(job, settings, command)
    values |= {"exports": _exports(job, settings), "reference": shell(job.reference), "command": shell(command)}
    if kind == "torchrun":
        return values | {"rendezvous": _rendezvous(job.nodes), "words": _words(job.command or "train.py")}
    if kind == "ssh":
        values["remote"] = shell(f"bash -c {shell(fill(_template('ssh-remote.sh'), values))} job")
    return values


def _settings(job: Job) -> dict[str, str]:
    """Return the variables that say where the dataset is and which root to trust; nothing in them is secret."""
    settings = {} if job.repository is None else {"DATASYNC_REPOSITORY": str(parse_url(job.repository))}
    return settings | ({"DATASYNC_TRUST": ",".join(job.trust)} if job.trust else {})


def _exports(job: Job, settings: dict[str, str]) -> str:
    known = settings | ({"DATASYNC_CACHE": job.cache} if job.cache else {})
    return "\n".join(f"export {key}={shell(value)}" for key, value in known.items())


def _words(command: str) -> str:
    """Return what torchrun starts, each word quoted anew."""
    try:
        return shlex.join(shlex.split(command))
    except ValueError as error:
        raise UsageError(f"--command {command!r}: expected words as a shell reads them: {error}") from None


def _docker(job: Job, settings: dict[str, str], command: str) -> dict[str, str]:
    return {
        "environment": "".join(f"  --env {shell(f'{key}={value}')} \\\n" for key, value in settings.items()),
        "cache": shell(job.cache) if job.cache else "${XDG_CACHE_HOME:-$HOME/.cache}/datasync-docker",
        "image": shell(job.image or DEFAULT_IMAGE),
        "reference": shell(job.reference),
        "command": shell(command),
    }


def _rendezvous(nodes: int) -> str:
    if nodes == 1:
        return "--standalone"
    return f'--nnodes {nodes} --rdzv-backend c10d --rdzv-endpoint "${{MASTER_ADDR:?}}:${{MASTER_PORT:-29500}}"'


def _skypilot(job: Job, settings: dict[str, str], command: str) -> dict[str, str]:
    cache = {"DATASYNC_CACHE": job.cache} if job.cache else {}
    lines = settings | cache | {"JOB_REFERENCE": job.reference, "JOB_COMMAND": command}
    image = f"resources:\n  image_id: {yaml(f'docker:{job.image}')}" if job.image else ""
    return {
        "resources": image,
        "environment": "\n".join(f"{key}: {yaml(value)}" for key, value in lines.items()),
        "version": __version__,
    }
