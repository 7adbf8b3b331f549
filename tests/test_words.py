"""What people read: the literature's words, pages of a length that is read, and an example for every public object."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

from tabled import tabled

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
# what a page may be as long as it must: proofs, tables, and what commands write
LONG = {"privacy-proofs", "exact-noise", "threat-model", "papers", "errata", "regret", "reproducing", "what-is-inside"}
# a word that a reader of the field stumbles over, and the one that the literature has
RETIRED = {
    r"\bdear(er|est)?\b": "expensive",
    r"\barms? that stands?\b|\bstanding arms\b": "fixed arms",
    r"\b(is|are|was|were) not to be had\b|\bto be had\b|\bcan(not)? be had\b": "is missing; there is no …",
    r"\ba policy that shall\b": "a policy that is about to",
    r"\banother one every time\b": "a different one every time",
}
READ = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted((DOCS / "notebooks").glob("*.py")),
    *sorted((ROOT / "examples").rglob("*.py")),
    *(path for package in ("accounting", "dpkit", "dpbandits") for path in sorted((ROOT / package).rglob("*.py"))),
]


@tabled("path", READ)
def test_no_retired_word(path):
    text = path.read_text(encoding="utf-8")
    for pattern, instead in RETIRED.items():
        found = re.search(pattern, text, flags=re.IGNORECASE)
        assert not found, f"{found[0]!r}: write {instead!r}"


@tabled("page", [page for page in sorted(DOCS.glob("*.md")) if page.stem not in LONG])
def test_a_page_is_read_in_one_sitting(page):
    """At most 1,200 words; long tables are on pages of their own, in docs/measurements and docs/reference."""
    assert len(page.read_text(encoding="utf-8").split()) <= 1210


def public_objects() -> dict[str, object]:
    pages = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    found: dict[int, tuple[str, object]] = {}
    for path in re.findall(r"^::: (\S+)$", pages, flags=re.MULTILINE):
        module = importlib.import_module(path)
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                found.setdefault(id(thing), (f"{path}.{name}", thing))
    return dict(found.values())


def test_every_public_object_has_an_example():
    without = [name for name, thing in public_objects().items() if ">>>" not in (thing.__doc__ or "")]
    assert without == []
