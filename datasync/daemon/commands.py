"""A command that a client asks for, as a process of its own: it has the daemon's settings and keys, its own memory, and
an end that takes nothing with it. It ends when the client goes.

Only verbs that look are run (`service.verbs`), and nothing in their arguments names another repository, configuration
or file. The process prints one JSON object a line (`--relayed`), which goes to the client as it is; the last one is
`result` or `error`. Raises `UsageError` for what is not run.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Sequence

from datasync.daemon.limits import BEAT_SECONDS
from datasync.errors import UsageError
from datasync.service.verbs import LINE_BYTES, RELAYED, refused_option, verb_of

END_SECONDS = 10.0  # for the process to end when it is told to
KEPT_OUT = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "DATASYNC_DAEMON")


def checked(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return *arguments* when they are a command that may be run here."""
    verb = verb_of(arguments)
    if verb is None:
        raise UsageError(f"{' '.join(arguments[:2])!r}: no command that a daemon runs for others")
    refused = refused_option(arguments)
    if refused is not None:
        raise UsageError(f"{verb} {refused}: the daemon has its own: leave it out")
    return (*verb.split(), RELAYED, *arguments[len(verb.split()) :])


async def run(words: Sequence[str], settings: Sequence[str]) -> AsyncGenerator[bytes, None]:
    """Yield what the command prints, line by line, and an empty line now and then while it prints nothing."""
    at = len(words[: words.index(RELAYED)])
    command = [sys.executable, "-m", "datasync.cli.main", *words[:at], *settings, *words[at:]]
    environment = {name: value for name, value in os.environ.items() if name not in KEPT_OUT}
    null, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *command, stdin=null, stdout=pipe, stderr=null, env=environment, limit=LINE_BYTES, start_new_session=True
    )
    last = b""
    try:
        assert child.stdout is not None
        while True:
            try:
                line = await asyncio.wait_for(child.stdout.readline(), BEAT_SECONDS)
            except TimeoutError:
                yield b""
                continue
            if not line:
                break
            last = line.rstrip(b"\n")
            yield last
        code = await child.wait()
        if not last.startswith((b'{"type": "result"', b'{"type": "error"')):
            told = {"type": "error", "error": "DatasyncError", "message": f"the command ended with {code}", "exit": 1}
            yield json.dumps(told).encode()
    finally:
        await _end(child)


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.returncode is not None:
        return
    child.terminate()
    try:
        await asyncio.wait_for(child.wait(), END_SECONDS)
    except TimeoutError:
        child.kill()
        await child.wait()
