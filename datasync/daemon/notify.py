"""What systemd wants to know, by hand: sd_notify(3) is one datagram to the socket in $NOTIFY_SOCKET.

Without that variable nothing is sent, so the daemon runs the same in a container.
"""

import contextlib
import os
import socket
import time


def notify(**state: str) -> None:
    """Send the given states, like `READY="1"`."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    text = "".join(f"{key}={value}\n" for key, value in state.items())
    name = "\0" + address[1:] if address.startswith("@") else address
    out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    with out, contextlib.suppress(OSError):  # a manager that is gone is no reason to stop
        out.sendto(text.encode(), name)


def reloading() -> None:
    """Say that a reload begins; systemd wants its time (sd_notify(3))."""
    notify(RELOADING="1", MONOTONIC_USEC=str(time.monotonic_ns() // 1000))


def watchdog_seconds() -> float | None:
    """Return how often systemd wants a sign of life, halved as it recommends; None when it wants none."""
    text = os.environ.get("WATCHDOG_USEC", "")
    return int(text) / 2_000_000 if text.isdigit() and int(text) else None
