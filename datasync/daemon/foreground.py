"""`datasync push --watch`: one mirror in the foreground, until a signal ends it.

The same thread, states and guards as in the daemon; what its status would say is told as it happens.
"""

import threading
from collections.abc import Callable
from typing import Any

from datasync.config import Config
from datasync.daemon.alerts import Alerts
from datasync.daemon.events import Bus
from datasync.daemon.metrics import Metrics
from datasync.daemon.mirror import MirrorRunner, Outside
from datasync.service.daemon_settings import Mirror, read_settings

TOLD = ("pushed", "held", "failed", "degraded", "push")


def watch(config: Config, mirror: Mirror, tell: Callable[[dict[str, Any]], None]) -> None:
    """Mirror until the process is told to end; *tell* gets each event."""
    bus, metrics, wake = Bus(), Metrics(), threading.Event()
    alerts = Alerts(read_settings(config).alerts, metrics, mirror.dataset)
    runner = MirrorRunner(config, mirror, Outside(bus, metrics, alerts))
    with bus.listen(wake.set) as listener:
        runner.start()
        try:
            while True:
                wake.wait()
                wake.clear()
                for event in listener.take():
                    if event["type"] in TOLD:
                        tell(event)
        finally:
            runner.stop()
            runner.join(5)
            alerts.close()
