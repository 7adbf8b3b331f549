"""How docstrings, which are written for the terminal, are read by the site: roles, tables and examples of modules."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:func|class|meth|mod|attr|data|exc):`~?([^`]+)`")
_RULE = re.compile(r"=+(?: +=+)+")


class Docstrings(griffe.Extension):
    """Turns what is not markdown into markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None and not obj.is_alias:
            obj.docstring.value = _markdown(obj.docstring.value, examples=obj.is_module)


def _markdown(text: str, *, examples: bool) -> str:
    """Roles as code; tables of ``=====``, and (``examples``) doctests outside of a section, as blocks."""
    out: list[str] = []
    lines = _ROLE.sub(r"`\1`", text).split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        if _RULE.fullmatch(line.strip()):
            stop = max(i for i in range(at, len(lines)) if i == at or _inside(lines, at, i))
            out += ["", "```text", *lines[at : stop + 1], "```", ""]
            at = stop + 1
        elif examples and line.lstrip().startswith(">>>"):
            stop = at
            while stop < len(lines) and lines[stop].strip():
                stop += 1
            out += ["", "```python", *lines[at:stop], "```"]
            at = stop
        else:
            out.append(line)
            at += 1
    return "\n".join(out)


def _inside(lines: list[str], start: int, at: int) -> bool:
    """Whether line ``at`` closes the table that begins in line ``start``."""
    closes = _RULE.fullmatch(lines[at].strip()) is not None and at > start
    return closes and all(line.strip() for line in lines[start : at + 1])
