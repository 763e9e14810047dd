"""Counters and gauges in Prometheus' text format 0.0.4 (https://prometheus.io/docs/instrumenting/exposition_formats/).

Base units, names that begin with `datasync_`. A label's value is a dataset, a method, a route or a kind: never a path,
a subject or anything that a stranger chooses. Thread-safe.
"""

import threading
from collections.abc import Mapping

HELP = {
    "datasync_push_total": ("counter", "Pushes that ended, by dataset and outcome."),
    "datasync_push_sent_bytes_total": ("counter", "Bytes sent to the store by pushes."),
    "datasync_push_seconds_total": ("counter", "Time that pushes took."),
    "datasync_mirror_behind_seconds": (
        "gauge",
        "Age of the oldest change that is not pushed yet; 0 when there is none.",
    ),
    "datasync_mirror_held": ("gauge", "1 while a person has to confirm a deletion."),
    "datasync_mirror_degraded": ("gauge", "1 while the folder is scanned because events can not be relied on."),
    "datasync_mirror_seq": ("gauge", "Number of the newest snapshot that this mirror knows."),
    "datasync_warm_total": ("counter", "Warms that ended, by dataset and outcome."),
    "datasync_warm_fetched_bytes_total": ("counter", "Bytes fetched from the store by warms."),
    "datasync_warm_seq": ("gauge", "Number of the snapshot that is ready on this node."),
    "datasync_scrub_total": ("counter", "Rounds of the background scrub, by outcome."),
    "datasync_key_release_total": ("counter", "Keys asked for, by dataset and outcome."),
    "datasync_auth_refused_total": ("counter", "Requests whose token, certificate or peer was refused."),
    "datasync_http_requests_total": ("counter", "Requests answered, by route and status."),
    "datasync_http_request_seconds_total": ("counter", "Time that answering took."),
    "datasync_alerts_total": ("counter", "Alerts sent, by kind and outcome."),
    "datasync_start_time_seconds": ("gauge", "When the daemon started, Unix time."),
    "datasync_resident_memory_bytes": ("gauge", "Resident memory of the daemon."),
}

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """All values, by name and labels."""

    def __init__(self) -> None:
        self._values: dict[str, dict[Labels, float]] = {}
        self._lock = threading.Lock()

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        with self._lock:
            values = self._values.setdefault(name, {})
            key = tuple(sorted(labels.items()))
            values[key] = values.get(key, 0) + amount

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        with self._lock:
            self._values.setdefault(name, {})[tuple(sorted(labels.items()))] = value

    def forget(self, prefix: str, **labels: str) -> None:
        """Drop the values of names that begin with *prefix* and have these labels: what they told of is gone."""
        with self._lock:
            for name in [item for item in self._values if item.startswith(prefix)]:
                self._values[name].pop(tuple(sorted(labels.items())), None)

    def text(self, extra: Mapping[str, float]) -> str:
        """Return all values, with gauges that are measured now."""
        with self._lock:
            found = {name: dict(values) for name, values in self._values.items()}
        found |= {name: {(): value} for name, value in extra.items()}
        lines: list[str] = []
        for name in sorted(name for name, values in found.items() if values):
            kind, words = HELP[name]
            lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_labels(labels)} {value:.17g}" for labels, value in sorted(found[name].items())]
        return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    escaped = (f'{key}="{_escape(value)}"' for key, value in labels)
    return "{" + ",".join(escaped) + "}" if labels else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
