"""Whatever a dataset's name, a repository's URL or a command holds, a job file passes it on as that and no more."""

import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasync.errors import UsageError
from datasync.integrations.jobs import VARIANTS, Job, fill, render
from datasync.integrations.quoting import kubernetes, label, shell, yaml
from datasync.storage.location import parse_url
from tests.deploy.machines import Call, make_stand_ins, read_calls

PLANTED = "planted"
PIECES = (
    "'", '"', "\\", "$", "`", ";", "&&", "|", " ", "#", "{", "}", "[", "]", "!", "*", ">", "<", "(", ")", "~", "%",
    ",", "=", "-", "é", "数", "\U0001f600", "a", "x", "0", "$(touch planted)", "`touch planted`",
    "';touch planted;'", '";touch planted;"', "$AWS_SECRET_ACCESS_KEY", "$(AWS_SECRET_ACCESS_KEY)", "$$",
    "@reference@", "@command@", ": ", " #", "- ", "&a", "*a", "!!python/name:os.system",
)  # fmt: skip
SPACES = ("\n", "\t", "\n\n", "\nPROLOG\n", "\n---\n", "\n#SBATCH --wrap=x\n", "\u2028", "\ufeff")
names = st.lists(st.sampled_from([p for p in PIECES if not set(p) & set("@:/")]), min_size=1, max_size=6).map("".join)
references = st.builds(lambda name, tag: f"d{name}" + (f":t{tag}" if tag else ""), names, st.one_of(st.just(""), names))
lines = st.lists(st.sampled_from(PIECES + SPACES), min_size=1, max_size=8).map("".join).filter(str.strip)
paths = st.lists(st.sampled_from(PIECES + SPACES + ("/", "..")), max_size=6).map(lambda parts: "/srv/" + "".join(parts))
KINDS = [(kind, variant) for kind, variants in VARIANTS.items() for variant in variants]
SECRET = "not-for-the-file"


def run_with_stand_ins(script: str, *arguments: str) -> tuple[list[Call], int]:
    """Run *script* with stand-ins for all it calls; whatever it plants lands in its directory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_stand_ins(folder, "srun", "datasync", "docker", "ssh", "torchrun")
        (folder / "identity").write_text("identity")
        environment = {
            "PATH": f"{folder}:{os.environ['PATH']}", "HOME": name, "TMPDIR": name, "CALLS": f"{folder}/calls",
            "SLURM_SUBMIT_DIR": name, "SLURM_JOB_NUM_NODES": "1", "DATASYNC_IDENTITY": f"{folder}/identity",
            "LANG": "C.UTF-8", "AWS_SECRET_ACCESS_KEY": SECRET,
        }  # fmt: skip
        done = subprocess.run(
            ["bash", "-c", script, "job", *arguments],
            env=environment, cwd=name, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert not (folder / PLANTED).exists(), script
        return read_calls(folder / "calls"), done.returncode


def accepted(kind: str, variant: str, reference: str, line: str, path: str) -> tuple[Job, str] | None:
    job = Job(reference, command=line, repository=path, trust=("t1",), cache=path if path.isprintable() else "/cache")
    try:
        return job, render(kind, job, variant)
    except UsageError:
        return None


@pytest.mark.parametrize("variant", VARIANTS["slurm"])
@settings(max_examples=15, deadline=None)
@given(reference=references, line=lines, path=paths)
def test_slurm_sees_the_values_as_they_are(variant: str, reference: str, line: str, path: str) -> None:
    made = accepted("slurm", variant, reference, line, path)
    assert made is not None
    job, script = made
    assert [text for text in script.splitlines() if text.startswith("#SBATCH")][1:2] == ["#SBATCH --nodes=1"]
    calls, code = run_with_stand_ins(script)
    assert (code, [call.program for call in calls]) == (0, ["srun", "srun"])
    assert calls[0].arguments[-1] == reference
    told = calls[0].variables
    assert (told["JOB_REFERENCE"], told["JOB_COMMAND"], told["DATASYNC_CACHE"]) == (reference, line, job.cache)
    assert told["DATASYNC_REPOSITORY"] == str(parse_url(path))


@settings(max_examples=15, deadline=None)
@given(reference=references, line=lines, path=paths)
def test_docker_sees_the_values_as_they_are(reference: str, line: str, path: str) -> None:
    job = Job(reference, command=line, repository=path, image="registry/name:1")
    script = render("docker", job)
    [call], code = run_with_stand_ins(script)
    assert (code, call.program) == (0, "docker")
    assert call.arguments[-7:] == ["run", "--data", reference, "--", "bash", "-c", line]
    assert call.arguments[-9] == "registry/name:1"
    assert f"DATASYNC_REPOSITORY={parse_url(path)}" in call.arguments
    assert SECRET not in script
    assert all(SECRET not in word for word in call.arguments)


@settings(max_examples=15, deadline=None)
@given(reference=references, line=lines, path=paths)
def test_ssh_sees_the_values_as_they_are(reference: str, line: str, path: str) -> None:
    calls, code = run_with_stand_ins(render("ssh", Job(reference, command=line, repository=path)), "user@host")
    assert code == 0
    assert [call.program for call in calls] == ["ssh"] * 4 + ["datasync"]
    assert calls[-1].arguments == ["run", "--data", reference, "--", "bash", "-c", line]
    assert calls[-1].variables["DATASYNC_REPOSITORY"] == str(parse_url(path))
    assert all(SECRET not in word for call in calls for word in call.arguments)


@settings(max_examples=15, deadline=None)
@given(reference=references, words=st.lists(lines, min_size=1, max_size=3), path=paths)
def test_torchrun_gets_the_words_as_they_are(reference: str, words: list[str], path: str) -> None:
    script = render("torchrun", Job(reference, command=shlex.join(words), repository=path))
    [call], code = run_with_stand_ins(script)
    assert code == 0
    assert call.arguments[:5] == ["run", "--data", reference, "--", "torchrun"]
    assert call.arguments[-len(words) :] == words


def keys_of(value: Any) -> Any:
    """Return the shape of a document: its keys and lengths, without its values."""
    if isinstance(value, dict):
        return {key: keys_of(item) for key, item in value.items()}
    return [keys_of(item) for item in value] if isinstance(value, list) else type(value).__name__


def expanded(text: str) -> str:
    """Return what Kubernetes makes of a container's command or variable."""
    return re.sub(r"\$\$|\$\(AWS_SECRET_ACCESS_KEY\)", lambda found: "$" if found[0] == "$$" else SECRET, text)


@pytest.mark.parametrize("variant", VARIANTS["k8s"])
@settings(max_examples=50, deadline=None)
@given(reference=references, line=lines, path=paths)
def test_kubernetes_sees_the_values_as_they_are(variant: str, reference: str, line: str, path: str) -> None:
    reader = pytest.importorskip("yaml", reason="PyYAML is missing")
    made = accepted("k8s", variant, reference, line, path)
    plain = accepted("k8s", variant, "d", "x", "/srv")
    assert made is not None
    assert plain is not None
    found = reader.safe_load(made[1])
    assert keys_of(found) == keys_of(reader.safe_load(plain[1]))
    pod = found["spec"]["template"]["spec"]
    [warm], [train] = pod["initContainers"], pod["containers"]
    assert expanded(warm["command"][4]) == reference
    assert expanded(train["command"][-1]) == line
    variables = {item["name"]: expanded(item["value"]) for item in warm["env"] if "value" in item}
    assert variables["DATASYNC_REPOSITORY"] == str(parse_url(path))
    assert pod["volumes"][0]["hostPath"]["path"] == made[0].cache


@settings(max_examples=50, deadline=None)
@given(reference=references, line=lines, path=paths)
def test_skypilot_sees_the_values_as_they_are(reference: str, line: str, path: str) -> None:
    reader = pytest.importorskip("yaml", reason="PyYAML is missing")
    made = accepted("skypilot", "run", reference, line, path)
    plain = accepted("skypilot", "run", "d", "x", "/srv")
    assert made is not None
    assert plain is not None
    found, expected = reader.safe_load(made[1]), reader.safe_load(plain[1])
    assert keys_of(found) == keys_of(expected)
    assert (found["setup"], found["run"]) == (expected["setup"], expected["run"])
    assert found["secrets"] == {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}
    assert (found["envs"]["JOB_REFERENCE"], found["envs"]["JOB_COMMAND"]) == (reference, line)
    assert found["envs"]["DATASYNC_REPOSITORY"] == str(parse_url(path))


@given(st.text())
def test_quoting_has_an_inverse(text: str) -> None:
    reader = pytest.importorskip("yaml", reason="PyYAML is missing")
    assert shlex.split(shell(text)) == [text]
    if not any(0xD800 <= ord(c) < 0xE000 for c in text):
        assert reader.safe_load(yaml(text)) == text
        assert expanded(reader.safe_load(kubernetes(text))) == text
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", label(text))


def test_a_value_is_never_read_as_a_placeholder() -> None:
    assert fill("@a@ @b@\n  @c@\n  @d@\nend\n", {"a": "@b@", "b": "@a@", "c": "@a@\n@b@", "d": ""}) == (
        "@b@ @a@\n  @a@\n  @b@\nend\n"
    )


@pytest.mark.parametrize(("kind", "variant"), KINDS)
@pytest.mark.parametrize(
    "wrong",
    [
        {"repository": "s3://key:secret@bucket/x"},
        {"reference": "a\nb"},
        {"reference": "-rf"},
        {"cache": "/a\nb"},
        {"cache": "relative"},
        {"cache": ""},
        {"trust": ("a\nb",)},
        {"nodes": 0},
        {"nodes": 10_001},
        {"command": " "},
        {"command": "a\0b"},
        {"command": "a\x1b[2Jb"},
        {"command": "a\ud800"},
        {"image": "--privileged"},
        {"image": "a b"},
        {"image": ""},
    ],
)
def test_what_can_not_be_a_job_is_refused(kind: str, variant: str, wrong: dict[str, Any]) -> None:
    good: dict[str, Any] = {"reference": "data", "repository": "s3://bucket/x"}
    render(kind, Job(**good), variant)
    with pytest.raises(UsageError):
        render(kind, Job(**(good | wrong)), variant)
