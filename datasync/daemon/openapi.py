"""docs/openapi.json (OpenAPI 3.1), made from the routes and types of the code: `python -m datasync.daemon.openapi`."""

import json
import sys
from typing import Any

import msgspec

from datasync import __version__
from datasync.daemon import answers
from datasync.daemon.routes import JSON, OPEN, ROUTES, Route

ERRORS = {
    400: "The request is wrong",
    401: "No token, certificate or peer that is known",
    403: "Known, and not allowed; or the request came from another site's page",
    404: "There is no such thing",
    405: "Not this method",
    408: "The request did not come in time",
    409: "Not now: something holds it",
    413: "The body is too large",
    415: "The body is not JSON",
    421: "Host is not a name of this daemon",
    429: "Too many requests: wait",
    500: "Unexpected",
    502: "The store's bytes are not what was written",
    503: "Not now: try again later",
    504: "It took too long",
}
ALWAYS = (400, 403, 408, 413, 421, 429)


def document() -> dict[str, Any]:
    """Return the whole description."""
    types: list[type[msgspec.Struct]] = [answers.Error]
    for route in ROUTES:
        types += [item for item in (route.body, route.answer) if item is not None and item not in types]
    _, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "datasync daemon",
            "version": __version__,
            "description": "See docs/daemon.md. Over the socket the peer's user counts, over TCP a token.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}, "certificate": {"type": "mutualTLS"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": route.name, "summary": route.summary, "responses": _responses(route)}
    if route.right != OPEN:
        found["security"] = [{"bearer": []}, {"certificate": []}]
    if "{dataset}" in route.path:
        schema = {"type": "string", "minLength": 1, "maxLength": 255}
        found["parameters"] = [{"name": "dataset", "in": "path", "required": True, "schema": schema}]
    if route.body is not None:
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": _ref(route.body)}}}
    return found


def _responses(route: Route) -> dict[str, Any]:
    schema = _ref(route.answer) if route.answer is not None else {"type": "string"}
    if route.answer is None and route.content == JSON:
        schema = {"type": "object"}
    found: dict[str, Any] = {
        str(route.status): {"description": route.summary, "content": {route.content: {"schema": schema}}}
    }
    codes = {*ALWAYS, *route.errors, *(() if route.right == OPEN else (401,)), *((415,) if route.body else ())}
    for code in sorted(codes):
        if route.name == "ready" and code == 503:
            found["503"] = {"description": "Not yet", "content": {JSON: {"schema": _ref(answers.Health)}}}
            continue
        found[str(code)] = {"description": ERRORS[code], "content": {JSON: {"schema": _ref(answers.Error)}}}
    return found


def _ref(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def text() -> str:
    """Return the document as the file holds it."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
