"""The page at ``/docs``: the service's OpenAPI schema as one page of HTML, which loads nothing from anywhere."""

from __future__ import annotations

import json
from html import escape
from typing import Any

__all__ = ["manual"]

_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; padding: 1.5rem; max-width: 56rem; font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .25rem; overflow-wrap: anywhere; }
code, pre { font: .85rem/1.45 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .75rem; border: 1px solid; border-radius: .3rem; }
table { border-collapse: collapse; } td { padding: .1rem 1rem .1rem 0; vertical-align: top; }
"""


def manual(schema: dict[str, Any]) -> str:
    """The page for an OpenAPI schema."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Requests</title><style>{_STYLE}</style></head><body><main><h1>Requests</h1>",
        '<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>',
    ]
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            parts += _operation(path, method, operation)
    parts.append("<h1>Answers and their parts</h1>")
    for name, part in schema["components"].get("schemas", {}).items():
        parts.append(f'<h2 id="{escape(name)}">{escape(name)}</h2>{_json(part)}')
    return "".join([*parts, "</main></body></html>"])


def _operation(path: str, method: str, operation: dict[str, Any]) -> list[str]:
    needs = "a token" if operation.get("security") else "no token"
    parts = [
        f"<section><h2><code>{method.upper()} {escape(path)}</code></h2>",
        f"<p>{escape(operation.get('summary', ''))} ({needs})</p>",
    ]
    if "requestBody" in operation:
        body = operation["requestBody"]["content"]["application/json"]["schema"]
        parts.append(f"<details><summary>Body</summary>{_json(body)}</details>")
    parts.append("<details><summary>Answers</summary><table>")
    for code, answer in operation["responses"].items():
        found = answer.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
        name = escape(found.rpartition("/")[-1])
        link = f'<a href="#{name}">{name}</a>' if name else ""
        parts.append(f"<tr><td>{escape(code)}</td><td>{escape(answer['description'])}</td><td>{link}</td></tr>")
    return [*parts, "</table></details></section>"]


def _json(tree: Any) -> str:
    return f"<pre>{escape(json.dumps(tree, indent=2))}</pre>"
