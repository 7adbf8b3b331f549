"""What the service says of its requests: to programs as an OpenAPI schema, to people as a page that loads nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from typing import Any

from pydantic.json_schema import models_json_schema

from dpbandits.serve.messages import Problem, Route

__all__ = ["manual", "schema"]

_PARTS = "#/components/schemas/"
_REFUSALS = {
    "400": "not JSON",
    "401": "no valid token",
    "403": "a client without the scope for it",
    "404": "there is no such page, or no such run",
    "405": "not this method",
    "408": "the body did not come in time",
    "409": "it stands against what is there",
    "413": "too large",
    "422": "not as the schema or the policy wants it",
    "429": "this client has had its share of this minute",
    "503": "not ready, or overloaded: ask again",
}
_BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "a client's token",
}
_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; padding: 1.5rem; max-width: 56rem; font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .25rem; overflow-wrap: anywhere; }
code, pre { font: .85rem/1.45 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .75rem; border: 1px solid; border-radius: .3rem; }
table { border-collapse: collapse; } td { padding: .1rem 1rem .1rem 0; vertical-align: top; }
"""


def schema(routes: Sequence[Route]) -> dict[str, Any]:
    """The OpenAPI schema."""
    paths: dict[str, Any] = {}
    for route in routes:
        if route.listed:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    asked = [(route.asked, "validation") for route in routes if route.listed and route.asked]
    told = [(route.told, "serialization") for route in routes if route.told] + [(Problem, "serialization")]
    _, parts = models_json_schema([*asked, *told], ref_template=_PARTS + "{model}")  # type: ignore[list-item]
    components = {"schemas": parts["$defs"], "securitySchemes": {"token": _BEARER}}
    information = {"title": "dpbandits", "version": "1"}
    return {"openapi": "3.1.0", "info": information, "paths": paths, "components": components}


def _operation(route: Route) -> dict[str, Any]:
    media = route.media.partition(";")[0]

    def content(model: type | None) -> dict[str, Any]:
        told = {"type": "string"} if media.startswith("text/") else {}
        return {"content": {media: {"schema": {"$ref": _PARTS + model.__name__} if model else told}}}

    answers = {str(route.status): {"description": "Successful Response", **content(route.told)}}
    media = "application/json"
    answers |= {code: {"description": text, **content(Problem)} for code, text in _REFUSALS.items()}
    operation: dict[str, Any] = {"summary": route.summary, "operationId": _named(route), "responses": answers}
    names = re.findall(r"\{(\w+)\}", route.path)
    if names:
        text = {"type": "string"}
        operation["parameters"] = [{"name": one, "in": "path", "required": True, "schema": text} for one in names]
    if route.asked:
        operation["requestBody"] = {"required": True, **content(route.asked)}
    return operation | ({"security": [{"token": []}]} if route.scopes else {})


def _named(route: Route) -> str:
    """What an operation is called in a client: by what it does, as ``decide`` or ``beginRun``; of a run the same."""
    words = route.answer.__name__.split("_")
    return words[0] + "".join(map(str.capitalize, words[1:]))


def manual(tree: dict[str, Any]) -> str:
    """The page for an OpenAPI schema."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Requests</title><style>{_STYLE}</style></head><body><main><h1>Requests</h1>",
        '<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>',
    ]
    for path, methods in tree["paths"].items():
        for method, operation in methods.items():
            needs = "a token" if operation.get("security") else "no token"
            parts.append(
                f"<section><h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])} "
                f"({needs})</p>{_body(operation)}<details><summary>Answers</summary><table>"
            )
            for code, answer in operation["responses"].items():
                description = escape(answer["description"])
                parts.append(f"<tr><td>{escape(code)}</td><td>{description}</td><td>{_link(answer)}</td></tr>")
            parts.append("</table></details></section>")
    parts.append("<h1>Bodies, answers and their parts</h1>")
    for name, part in tree["components"]["schemas"].items():
        text = escape(json.dumps(part, indent=2))
        parts.append(f'<h2 id="{escape(name)}">{escape(name)}</h2><pre>{text}</pre>')
    return "".join([*parts, "</main></body></html>"])


def _body(operation: dict[str, Any]) -> str:
    return f"<p>Body: {_link(operation['requestBody'])}</p>" if "requestBody" in operation else ""


def _link(told: dict[str, Any]) -> str:
    """To the part that describes it."""
    name = escape(told["content"].get("application/json", {}).get("schema", {}).get("$ref", "").removeprefix(_PARTS))
    return f'<a href="#{name}">{name}</a>' if name else ""
