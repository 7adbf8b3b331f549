"""The pages' own examples run, their links lead somewhere, and the site shows every page and every package."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
WITH_EXAMPLES = [page for page in PAGES if ">>>" in page.read_text(encoding="utf-8")]
SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
# folders whose names are used through other ones
INSIDE = ("cli", "reproduce", "states", "accountants", "amplification", "mathematics", "simulation")
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.py"))


@pytest.mark.parametrize(
    "page", [page for page in PAGES if ">>>" in page.read_text(encoding="utf-8")], ids=lambda p: p.stem
)
def test_examples_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS, encoding="utf-8")
    assert found.attempted
    assert not found.failed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_a_page_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target


def test_the_site_has_every_page_and_notebook():
    for page in [*PAGES, *NOTEBOOKS]:
        assert str(page.relative_to(DOCS)) in SITE, page.name
    assert len(NOTEBOOKS) >= 8


def test_the_reference_has_every_public_package():
    shown = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    packages = ["accounting", "dpbandits"]
    for package in ("accounting", "dpkit", "dpbandits"):
        packages += [
            f"{package}.{path.parent.name}"
            for path in sorted((ROOT / package).glob("*/__init__.py"))
            if path.parent.name
            not in ("cli", "reproduce", "states", "accountants", "amplification", "mathematics", "simulation")
        ]
    for name in packages:
        exported = getattr(importlib.import_module(name), "__all__", [])
        assert f"::: {name}\n" in shown or not exported or name == "dpbandits", name


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_scripts(notebook):
    compile(notebook.read_text(encoding="utf-8"), str(notebook), "exec")
