"""datasync daemon."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from datasync.cli.common import CommandGroup, common
from datasync.cli.output import Output, shown
from datasync.config import Config, Flags, load_config
from datasync.errors import UsageError
from datasync.service.client import quoted, require_daemon, require_local
from datasync.service.daemon_settings import read_settings
from datasync.service.sockets import socket_path

UNITS = ("system", "user")


@click.group("daemon", cls=CommandGroup)
def command() -> None:
    """Mirror folders, keep datasets ready, and serve keys, in the background."""


@command.command("run")
@common
def run(output: Output, flags: Flags) -> None:
    """Run the daemon in the foreground; logs are JSON lines on stderr."""
    _require_extra()
    from datasync.daemon.journal import write_to_stderr
    from datasync.daemon.server import serve
    from datasync.daemon.supervisor import Supervisor

    write_to_stderr(verbose=output.verbose > 0)
    serve(Supervisor(lambda: _absolute(load_config(flags)), _arguments(flags, load_config(flags))))


@command.command("start")
@common
def start(output: Output, flags: Flags) -> None:
    """Start the daemon in the background, where there is no systemd."""
    _require_extra()
    from datasync.daemon import process

    config = load_config(flags)
    read_settings(config)
    pid = process.start(config, _arguments(flags, config))
    output.note(f"daemon: process {pid} listens at {socket_path(config)}, its log is {process.log_path(config)}")
    output.result(pid=pid, socket=str(socket_path(config)), log=str(process.log_path(config)))


@command.command("stop")
@common
def stop(output: Output, flags: Flags) -> None:
    """End the daemon; what it was doing goes on with the next start."""
    from datasync.daemon import process

    config = load_config(flags)
    process.stop(require_local(config), config)
    output.note("daemon: ended")
    output.result()


@command.command("reload")
@common
def reload(output: Output, flags: Flags) -> None:
    """Read the settings anew; wrong ones change nothing."""
    restart = require_local(load_config(flags)).call("POST", "/v1/reload")["restart"]
    output.note("daemon: settings are in force" + (", but for those named here" if restart else ""))
    for name in restart:
        output.warn(f"{name}: changed, and read when the daemon starts: restart it")
    output.result(restart=restart)


@command.command("status")
@common
def status(output: Output, flags: Flags) -> None:
    """Show the mirrors, what is kept ready, and what is wrong."""
    found = require_daemon(load_config(flags)).call("GET", "/v1/status")
    output.line(f"daemon {found['pid']}: {found['state']}")
    for item in found["mirrors"]:
        output.line(_mirror_line(item))
        for key in ("held", "error", "degraded"):
            if item[key]:
                output.line(f"  {key}: {shown(item[key])}")
        if item["held"]:
            output.line(f"  if that is meant: datasync daemon confirm {shown(item['dataset'])}")
    for item in found["warms"]:
        seq = f"@{item['seq']}" if item["seq"] else ""
        output.line(f"warm {shown(item['reference'])}{seq}: {item['state']} {shown(item['path'] or '')}".rstrip())
        if item["error"]:
            output.line(f"  error: {shown(item['error'])}")
    for item in found["alerts"]:
        output.line(f"alert {item['kind']} {shown(item['subject'])}: {shown(item['text'])}")
    output.result(**found)


def _mirror_line(item: dict[str, Any]) -> str:
    seq = f"@{item['seq']}" if item["seq"] else ""
    return f"mirror {shown(item['dataset'])}{seq} of {shown(item['path'])}: {item['state']}"


@command.command("confirm")
@click.argument("dataset")
@common
def confirm(dataset: str, output: Output, flags: Flags) -> None:
    """Say that the loss which is held back is meant, and push."""
    require_local(load_config(flags)).call("POST", f"/v1/mirrors/{quoted(dataset)}/confirm")
    output.note(f"{dataset}: confirmed, it is pushed now")
    output.result(dataset=dataset)


@command.command("push")
@click.argument("dataset")
@click.option("--wait", is_flag=True, help="Show how far it is, and end as a push would.")
@common
def push(dataset: str, wait: bool, output: Output, flags: Flags) -> None:
    """Push a mirror now, without waiting for it to be due."""
    if wait:
        from datasync.cli.push_mirror import follow

        follow(dataset, output, flags)
        return
    require_local(load_config(flags)).call("POST", f"/v1/mirrors/{quoted(dataset)}/push")
    output.note(f"{dataset}: it is pushed now")
    output.result(dataset=dataset)


@command.command("events")
@common
def events(output: Output, flags: Flags) -> None:
    """Show what happens, as it happens, until the daemon ends or a signal comes."""
    for event in require_daemon(load_config(flags)).stream("GET", "/v1/events"):
        fields = {key: value for key, value in event.items() if key != "type"}
        output.event(event["type"], **fields)
        output.line(f"{event['type']} " + " ".join(f"{key}={shown(str(value))}" for key, value in fields.items()))
    output.result()


@command.group("mirror", cls=CommandGroup)
def mirror() -> None:
    """Add, remove and list mirrors without editing the configuration."""


@mirror.command("add")
@click.argument("path", type=click.Path(path_type=Path, file_okay=False, exists=True, resolve_path=True))
@click.argument("dataset")
@click.option("--shared", is_flag=True, help="The folder is a copy of a tree that other machines push too.")
@common
def mirror_add(path: Path, dataset: str, shared: bool, output: Output, flags: Flags) -> None:
    """Mirror the folder PATH into DATASET from now on."""
    body = {"path": str(path), "dataset": dataset, "shared": shared}
    require_local(load_config(flags)).call("POST", "/v1/mirrors", body)
    output.note(f"{dataset}: {path} is mirrored")
    output.result(dataset=dataset, path=str(path))


@mirror.command("remove")
@click.argument("dataset")
@common
def mirror_remove(dataset: str, output: Output, flags: Flags) -> None:
    """Stop mirroring into DATASET; what was pushed stays."""
    require_local(load_config(flags)).call("DELETE", f"/v1/mirrors/{quoted(dataset)}")
    output.note(f"{dataset}: no longer mirrored")
    output.result(dataset=dataset)


@mirror.command("list")
@common
def mirror_list(output: Output, flags: Flags) -> None:
    """List the mirrors."""
    found = require_daemon(load_config(flags)).call("GET", "/v1/mirrors")["mirrors"]
    for item in found:
        output.line(_mirror_line(item))
    output.result(mirrors=found)


@command.command("install")
@click.option(
    "--for", "kind", type=click.Choice(UNITS), default="user", help="Whose unit: this user's, or the system's."
)
@click.option("--output", "target", type=click.Path(path_type=Path), metavar="FILE", help="Write it to this file.")
@common
def install(kind: str, target: Path | None, output: Output, flags: Flags) -> None:
    """Print a systemd unit for this installation, or write it to a file."""
    from datasync.daemon.unit import unit_text

    text = unit_text(kind, sys.executable, flags.config)
    if target is None:
        output.line(text.rstrip())
    else:
        if target.exists():
            raise UsageError(f"{target}: expected no file there, found one: it is not overwritten")
        target.write_text(text)
        manager = "systemctl --user" if kind == "user" else "systemctl"
        output.note(f"written: {target}; now: {manager} daemon-reload && {manager} enable --now {target.name}")
    output.result(output=str(target) if target else None, bytes=len(text))


def _require_extra() -> None:
    try:
        import aiohttp
        import watchdog
    except ImportError as error:
        raise UsageError(f"the daemon needs the package {error.name}: pip install 'gpu-datasync[daemon]'") from None
    _ = aiohttp, watchdog


def _arguments(flags: Flags, config: Config) -> list[str]:
    """Return the flags for a daemon that runs in another directory."""
    found: list[str] = []
    configured = flags.config or (Path("datasync.toml") if Path("datasync.toml").is_file() else None)
    if configured is not None:
        found += ["--config", str(configured.resolve())]
    if flags.repository is not None and config.repository is not None:
        found += ["--repository", _absolute(config).repository or ""]
    for item in flags.trust:
        found += ["--trust", item]
    return found


def _absolute(config: Config) -> Config:
    """Return *config* with a repository in a relative directory made absolute: a daemon's directory is its own."""
    text = config.repository
    if text is None or "://" in text:
        return config
    return replace(config, repository=str(Path(text).expanduser().absolute()))
