"""What the site adds to the pages: files outside of this folder, which the pages name, are shown as code."""

from __future__ import annotations

import re
from typing import Any

# README.md, CONTRIBUTING.md, source files: they are not part of the site, but right where the pages are read as files
_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+[^)]+\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links that leave the folder become their text."""
    return _OUTSIDE.sub(r"\1", markdown)
