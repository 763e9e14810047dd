"""The API's routes: what each takes, answers and may be refused with; server and docs/openapi.json come from these."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from datasync.daemon import answers

ADMIN = "admin"
STATUS = "status"
OPEN = "open"
WARM = "warm"
STREAM = "text/event-stream"
TEXT = "text/plain"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Route:
    """One operation; `right` is `open`, `admin` (this machine's user), or the action that a token has to name."""

    method: str
    path: str
    name: str
    summary: str
    right: str
    body: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | None = None
    content: str = JSON
    status: int = 200
    errors: tuple[int, ...] = ()


ROUTES = (
    Route("GET", "/healthz", "health", "The process answers", OPEN, answer=answers.Health),
    Route("GET", "/readyz", "ready", "Its work has begun", OPEN, answer=answers.Health, errors=(503,)),
    Route("GET", "/metrics", "metrics", "Prometheus metrics", STATUS, content=TEXT),
    Route("GET", "/v1/status", "status", "State of everything", STATUS, answer=answers.Status),
    Route("GET", "/v1/events", "events", "What happens, as it happens", STATUS, content=STREAM, errors=(503,)),
    Route("GET", "/v1/mirrors", "mirrors", "State of the mirrors", STATUS, answer=answers.Mirrors),
    Route(
        "POST", "/v1/mirrors", "add_mirror", "Mirror a folder", ADMIN, answers.AddMirror, answers.Done, status=201
    ),
    Route(
        "DELETE", "/v1/mirrors/{dataset}", "remove_mirror", "Forget a mirror that was added", ADMIN,
        answer=answers.Done, errors=(404,),
    ),
    Route(
        "POST", "/v1/mirrors/{dataset}/push", "push_mirror", "Push now", ADMIN, answer=answers.Begun, status=202,
        errors=(404,),
    ),
    Route(
        "POST", "/v1/mirrors/{dataset}/confirm", "confirm_mirror", "The loss that is held back is meant", ADMIN,
        answer=answers.Begun, status=202, errors=(404, 409),
    ),
    Route("GET", "/v1/warm", "warms", "State of the subscriptions", STATUS, answer=answers.Warms),
    Route(
        "POST", "/v1/warm", "warm", "Make a reference ready here; the last event is `ready` or `error`", ADMIN,
        answers.WarmRequest, content=STREAM, errors=(503,),
    ),
    Route(
        "POST", "/v1/commands", "command", "Run a command that looks; the last event is `result` or `error`", ADMIN,
        answers.CommandRequest, content=STREAM, errors=(503,),
    ),
    Route(
        "POST", "/v1/keys", "release_key", "Lend a dataset's key to a node", WARM, answers.KeyRequest,
        answers.KeyAnswer, errors=(404, 409, 500, 502, 503, 504),
    ),
    Route("POST", "/v1/reload", "reload", "Read the settings anew", ADMIN, answer=answers.Reloaded),
    Route("POST", "/v1/stop", "stop", "End", ADMIN, answer=answers.Done, status=202),
    Route("GET", "/v1/openapi.json", "openapi", "This API's description", OPEN),
)  # fmt: skip

Handler = Callable[[web.Request, Any], Awaitable[web.StreamResponse]]
