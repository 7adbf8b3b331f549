"""Write a client for TypeScript and JavaScript from a service's schema: ``client.mjs``, and its types.

    python examples/serve/typescript.py http://127.0.0.1:8000/openapi.json FOLDER

It needs no packages, here or there: the client uses ``fetch``, as browsers and Node 18 have it. Each operation is a
method of the name that the schema gives it.

    import { Client } from "./client.mjs";
    const website = new Client("http://127.0.0.1:8000", WEBSITE);
    const { decisions } = await website.decide({ decisions: [{ arms }] });
    await website.reward({ rewards: [{ id: decisions[0].id!, reward: 1.0 }] });
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

HEAD = "// Written by examples/serve/typescript.py from a service's openapi.json.\n"
CLIENT = """
/** The service refused a request, and said why. */
export class Refused extends Error {
  constructor(status, problem) {
    super(`${status}: ${problem.error ?? ""} ${(problem.where ?? []).join("; ")}`);
    this.status = status;
    this.problem = problem;
  }
}

/** Requests with one token; one that nobody answers, or that is answered 503, is sent again for `patience` seconds. */
export class Client {
  constructor(url, token, patience = 30) {
    Object.assign(this, { url: url.replace(/\\/$/, ""), token, patience });
  }
  async send(method, path, body) {
    const limit = Date.now() + 1000 * this.patience;
    for (;;) {
      try {
        const answer = await fetch(this.url + path, {
          method,
          headers: { Authorization: `Bearer ${this.token}`, "Content-Type": "application/json" },
          body: body === undefined ? undefined : JSON.stringify(body),
        });
        const text = await answer.text();
        const json = (answer.headers.get("content-type") ?? "").startsWith("application/json");
        const found = json ? JSON.parse(text) : text;
        if (answer.ok) return found;
        const problem = json ? found : { error: text };
        if (answer.status !== 503 || Date.now() > limit) throw new Refused(answer.status, problem);
      } catch (error) {
        if (error instanceof Refused || Date.now() > limit) throw error;
      }
      await new Promise((done) => setTimeout(done, 100));
    }
  }
"""
TYPES = """
export declare class Refused extends Error {
  readonly status: number;
  readonly problem: Problem;
}

export declare class Client {
  constructor(url: string, token: string, patience?: number);
"""


def written(schema: dict[str, Any]) -> tuple[str, str]:
    """The texts of ``client.mjs`` and ``client.d.mts``."""
    parts = schema["components"]["schemas"]
    declared = [f"{_doc(part)}export {_declared(name, part)}\n" for name, part in sorted(parts.items())]
    code, types = [], []
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            names = [one["name"] for one in operation.get("parameters", ())]
            given = [f"{name}: string" for name in names]
            if "requestBody" in operation:
                given.append(f"body: {_media(operation['requestBody'])}")
                names.append("body")
            where = re.sub(r"\{(\w+)\}", r"${encodeURIComponent(\1)}", path)
            body = ", body" if "requestBody" in operation else ""
            told = next(_media(one) for code, one in operation["responses"].items() if code.startswith("2"))
            name = operation["operationId"]
            code.append(f"  {name}({', '.join(names)}) {{ return this.send({method.upper()!r}, `{where}`{body}); }}\n")
            types.append(f"  /** {operation['summary']}. */\n  {name}({', '.join(given)}): Promise<{told}>;\n")
    return HEAD + CLIENT + "".join(code) + "}\n", HEAD + "".join(declared) + TYPES + "".join(types) + "}\n"


def _media(found: dict[str, Any]) -> str:
    (content,) = found["content"].values()
    return typed(content["schema"])


def _doc(part: dict[str, Any]) -> str:
    text = " ".join(part.get("description", "").replace("*/", "* /").split())
    return f"\n/** {text} */\n" if text else "\n"


def _declared(name: str, part: dict[str, Any]) -> str:
    if part.get("type") != "object" or "properties" not in part:
        return f"type {name} = {typed(part)};"
    needed = set(part.get("required", ()))
    lines = [f"  {key}{'' if key in needed else '?'}: {typed(one)};" for key, one in part["properties"].items()]
    if part.get("additionalProperties") is True:
        lines.append("  [further: string]: unknown;")
    return f"interface {name} {{\n" + "\n".join(lines) + "\n}"


def typed(part: dict[str, Any]) -> str:
    """The type of a part of the schema.

    Examples
    --------
    >>> typed({"anyOf": [{"type": "array", "items": {"$ref": "#/components/schemas/Ask"}}, {"type": "null"}]})
    'Ask[] | null'
    """
    if "$ref" in part:
        return str(part["$ref"]).rpartition("/")[-1]
    if "const" in part or "enum" in part:
        return " | ".join(json.dumps(one) for one in part.get("enum", [part.get("const")]))
    if "anyOf" in part:
        return " | ".join(dict.fromkeys(map(typed, part["anyOf"])))
    if part.get("type") == "array":
        inner = typed(part.get("items", {}))
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if part.get("type") == "object":
        values = part.get("additionalProperties")
        return f"Record<string, {typed(values) if isinstance(values, dict) else 'unknown'}>"
    names = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}
    return names.get(part.get("type", ""), "unknown")


def main(address: str, folder: str) -> None:
    """Read the schema of a service and write both files."""
    with urlopen(address) as answer:
        schema = json.load(answer)
    for name, text in zip(("client.mjs", "client.d.mts"), written(schema), strict=True):
        (Path(folder) / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
