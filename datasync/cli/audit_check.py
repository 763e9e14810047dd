"""datasync audit verify, prove and anchor."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from datasync.audit.verify import Verified
from datasync.cli.audit import log_option
from datasync.cli.common import common, session
from datasync.cli.output import Output, plural, shown
from datasync.cli.output_file import write_file
from datasync.cli.span import seconds
from datasync.config import Flags, load_config
from datasync.errors import UsageError
from datasync.service import anchor as anchor_service
from datasync.service import audit, audit_export


@click.command("verify")
@log_option
@click.option("--remote", is_flag=True, help="Verify what was shipped to the repository, of all machines.")
@click.option("--checkpoint", multiple=True, type=click.Path(path_type=Path), metavar="FILE", help="A kept checkpoint.")
@click.option("--key", metavar="KEY", help="The verifier key that the log must have.")
@click.option(
    "--export", "manifest", type=click.Path(path_type=Path), metavar="FILE", help="Check an export by its manifest."
)
@click.option("--witness-key", multiple=True, metavar="KEY", help="Each --checkpoint must be cosigned by this witness.")
@click.option(
    "--tsa-roots",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Each --checkpoint must have a time stamp of an authority beneath these certificates (PEM).",
)
@click.option("--max-silence", metavar="TIME", help="Name times longer than this without any event.")
@common
def verify(
    directory: Path | None,
    remote: bool,
    checkpoint: tuple[Path, ...],
    key: str | None,
    manifest: Path | None,
    witness_key: tuple[str, ...],
    tsa_roots: Path | None,
    max_silence: str | None,
    output: Output,
    flags: Flags,
) -> None:
    """Check that nothing in the log was changed, cut, added or reordered: exit 7 names the first bad event."""
    if sum((directory is not None, remote, manifest is not None)) > 1:
        raise UsageError("audit verify: expected one of --log, --remote and --export")
    if manifest is not None and (checkpoint or max_silence):
        raise UsageError("audit verify --export: expected no --checkpoint and no --max-silence: an export is no log")
    if (witness_key or tsa_roots) and not checkpoint:
        raise UsageError("audit verify: --witness-key and --tsa-roots check a --checkpoint: expected one")
    kept = tuple(audit.read_checkpoint(path) for path in checkpoint)
    for path in checkpoint:
        for text in anchor_service.check(path, tsa_roots, witness_key):
            output.line(text)
    silence = timedelta(seconds=seconds(max_silence)) if max_silence else None
    if manifest is not None:
        _verify_export(manifest, key, output)
        return
    if remote:
        from datasync.service import audit_remote

        with session(flags, output) as opened:
            for shipped in audit_remote.verify(opened, kept, silence, key):
                _tell(shipped.done, output, **shipped.told)
                for text in shipped.locks:
                    output.line(f"  {text}")
        output.result(problems=0)
        return
    for done in audit.verify(load_config(flags), directory, kept=kept, key=key, max_silence=silence):
        _tell(done, output)
    output.result(problems=0)


def _tell(done: Verified, output: Output, **more: Any) -> None:
    count = done.size - done.begins
    since = f" from {done.begins} on" if done.begins else ""
    output.line(f"log {done.log}: {plural(count, 'event')}{since}, {plural(done.checkpoints, 'checkpoint')}: ok")
    for seq, reason in done.gaps:
        output.warn(shown(f"event {seq}: {reason}"))
    for size in done.uncompared:
        output.warn(
            f"the kept checkpoint at {size} was not compared: retention removed the events before {done.begins}"
        )
    for silence in done.silences:
        output.warn(f"event {silence.seq}: nothing was recorded from {silence.since} to {silence.until}")
    output.event(
        "verified",
        log=done.log,
        begins=done.begins,
        size=done.size,
        root=done.root.hex(),
        checkpoints=done.checkpoints,
        first_time=done.first_time,
        last_time=done.last_time,
        gaps=[{"seq": seq, "reason": reason} for seq, reason in done.gaps],
        uncompared=done.uncompared,
        silences=[{"seq": item.seq, "since": item.since, "until": item.until} for item in done.silences],
        **more,
    )


def _verify_export(manifest: Path, key: str | None, output: Output) -> None:
    done = audit_export.check(manifest, key)
    how = "every event is in its log" if done.proved else "the file is the one that was signed"
    output.line(f"export {manifest}: {done.format}, {plural(done.events, 'event')}: {how}")
    output.result(problems=0, format=done.format, events=done.events, proved=done.proved, key=done.signer)


@click.command("prove")
@click.argument("seq", type=click.IntRange(min=0), required=False)
@click.option(
    "--since",
    "old",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Prove that the log continues this checkpoint.",
)
@click.option(
    "--output", "output_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the proof to this file."
)
@log_option
@common
def prove(
    seq: int | None,
    old: Path | None,
    output_file: Path | None,
    directory: Path | None,
    output: Output,
    flags: Flags,
) -> None:
    """Make a proof that event SEQ is in the log; docs/verify_proof.py checks it without datasync."""
    if (seq is None) == (old is None):
        raise UsageError("audit prove: expected an event's number, or --since with a checkpoint")
    config = load_config(flags)
    if old is not None:
        proof = audit.prove_since(config, audit.read_checkpoint(old), directory)
    else:
        proof = audit.prove(config, seq or 0, directory)
    _hand_out(proof, output_file, output)


@click.command("anchor")
@click.option(
    "--output",
    "output_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the checkpoint to this file.",
)
@click.option("--witness", multiple=True, metavar="URL#KEY", help="Have this C2SP witness cosign it; may be repeated.")
@click.option("--tsa", metavar="URL", help="Have this RFC 3161 time stamping authority stamp it.")
@common
def anchor(output_file: Path | None, witness: tuple[str, ...], tsa: str | None, output: Output, flags: Flags) -> None:
    """Print the newest checkpoint and the verifier key, to be kept where nobody on this machine can change it."""
    _hand_out(anchor_service.anchor(load_config(flags), witness, tsa), output_file, output)


def _hand_out(value: dict[str, Any], output_file: Path | None, output: Output) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False)
    if output_file is not None:
        write_file(output_file, text + "\n")
        output.note(f"written to {output_file}")
    else:
        output.line(text)
    output.result(**value)


COMMANDS = {"verify": verify, "prove": prove, "anchor": anchor}
