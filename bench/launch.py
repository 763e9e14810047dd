"""Run one command, and write what it used to the file descriptor that is the first argument: a process for `measure`.

    python -S -E bench/launch.py FD COMMAND…

A process inherits the peak memory of the one that it was forked from; this one has next to none of its own.
"""

import os
import sys
import time

os.set_inheritable(int(sys.argv[1]), False)
started = time.monotonic()
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
wall = time.monotonic() - started
used = f"{wall} {usage.ru_utime + usage.ru_stime} {usage.ru_maxrss / 1024} {os.waitstatus_to_exitcode(status)}"
os.write(int(sys.argv[1]), used.encode())
