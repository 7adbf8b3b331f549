"""The pages' own examples run, their links lead somewhere, and the site shows every page and every package."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest
from tabled import tabled

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
WITH_EXAMPLES = [page for page in PAGES if ">>>" in page.read_text(encoding="utf-8")]
SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
# folders whose names are used through other ones
INSIDE = (
    "cli",
    "reproduce",
    *("releases", "amplification", "loss", "compose", "notions", "adaptive", "lower"),
    *("moments", "models", "torch"),
    *("policy", "durability", "private", "reference", "arms", "lab"),
)
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.py"))


# Python without prompts, as somebody would put it into a file: the blocks of a page, one after the other
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCKS = [
    (page.stem, [block for block in PYTHON.findall(page.read_text(encoding="utf-8")) if ">>>" not in block])
    for page in PAGES
]
# what a block takes for granted, by a word of it
GIVEN = {
    "head = ledger.backup(": """
from accounting import Budget, Ledger
ledger = Ledger.create("releases.ledger", Budget(3.0, 1e-6))
""",
    "ledger.set_quota(": 'ledger = Ledger.open("releases.ledger")',
    "Ledger.restore(": 'import os; ledger.close(); os.remove("releases.ledger"); noted = head',
    'Ledger.open("releases.ledger", expected_head': """
from accounting import Budget, Gaussian, Ledger
with Ledger.create("releases.ledger", Budget(3.0, 1e-6)) as made:
    made.spend(Gaussian(4.0))
noted, archive = made.head, len
""",
    'LogReplay("log.csv"': """
from dpbandits.policies import Uniform
policies = {"uniform": lambda rng: Uniform(environment.dim, rng=rng)}
lines = "1,tea,0,0.30,0.9 1,coffee,1,0.10,0.7 2,tea,1,0.30,0.8 2,cocoa,0,0.25,0.4 2,coffee,0,0.10,0.6".split()
open("log.csv", "w").write("\\n".join(["round,arm,reward,price,rating", *lines]))
""",
}
# the same in less time
SMALLER = {
    "T = 5000": "T = 200",
    "seeds=10, jobs=2": "seeds=1",
    "persons=4000, rounds=20_000": "persons=40, rounds=200",
}
RAISES = {"bound.check(Laplace(1.0))": "PrivacyViolation"}
# blocks by a word of theirs, and why they do not run here
ELSEWHERE = {
    "postgresql://": "needs a server: tests/accounting/ledger/test_ledger_server.py has one",
    "multiprocessing.Queue()": "a program: tests/dpbandits/policy/test_released.py runs it",
    "cognitiveservices": "needs a service: tests/dpbandits/serve/test_serve_personalizer.py has one",
    "serve.client": "needs a service: tests/dpbandits/serve/test_serve_http.py has one",
    "tcp://scheduler": "needs a cluster: tests/dpbandits/lab/test_simulate_at_scale.py has one",
    "import ray": "no dependency of ours",
    "torch.nn.Sequential": "torch takes longer to load than all of these: tests/dpkit/optimize/test_dp_sgd.py runs it",
}


@pytest.mark.parametrize(("page", "blocks"), [(page, blocks) for page, blocks in BLOCKS if blocks])
def test_blocks_without_prompts_run(page, blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page}
    for block in blocks:
        if any(word in block for word in ELSEWHERE):
            continue
        for word, code in GIVEN.items():
            if word in block:
                exec(code, names)
        for old, new in SMALLER.items():
            block = block.replace(old, new)
        raised = [name for word, name in RAISES.items() if word in block]
        try:
            exec(compile(block, f"{page}.md", "exec"), names)
        except Exception as error:
            if [type(error).__name__] != raised:
                raise
        else:
            assert not raised, block


def test_words_that_stand_for_blocks_are_there():
    everything = "".join(block for _, blocks in BLOCKS for block in blocks)
    for word in (*ELSEWHERE, *GIVEN, *SMALLER, *RAISES):
        assert word in everything, word


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
def test_examples_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS, encoding="utf-8")
    assert found.attempted
    assert not found.failed


@tabled("page", PAGES)
def test_links_of_a_page_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target

    for target, anchor in re.findall(r"\]\(([^)#\s]*\.md)?#([^)\s]+)\)", text):
        assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


def anchors(page):
    """Of headings, as GitHub and the site make them: letters of any alphabet, digits, and a hyphen for every space."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+?)\s*$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\]\(.*?\)", "", title).lower()).replace(" ", "-") for title in titles}


def test_the_site_has_every_page_and_notebook():
    for page in [*PAGES, *NOTEBOOKS]:
        assert str(page.relative_to(DOCS)) in SITE, page.name
    assert len(NOTEBOOKS) >= 8


def public_modules() -> list[str]:
    """The three packages, what they hold that is imported from by its own name, and modules that stand alone."""
    found = ["accounting", "dpbandits", "dpkit.features", "dpkit.hyperparameters"]
    for package in ("accounting", "dpkit", "dpbandits"):
        folders = (path.parent.name for path in sorted((ROOT / package).glob("*/__init__.py")))
        found += [f"{package}.{name}" for name in folders if name not in INSIDE]
    return found


@tabled("name", public_modules())
def test_the_reference_has_every_public_name(name):
    """A page shows what its modules export and say something about."""
    pages = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    shown = {
        id(getattr(module, export))
        for path in re.findall(r"^::: (\S+)$", pages, flags=re.MULTILINE)
        for module in [importlib.import_module(path)]
        for export in module.__all__
    }
    module = importlib.import_module(name)
    for export in getattr(module, "__all__", []):
        thing = getattr(module, export)
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        assert id(thing) in shown, f"{name}.{export}"
        assert (thing.__doc__ or "").strip(), f"{name}.{export}"


def test_a_page_names_every_policy_description_and_factorization():
    page = (DOCS / "what-is-inside.md").read_text(encoding="utf-8")
    for package, kind in (
        ("dpbandits.policies", "dpbandits.Policy"),
        ("accounting", "accounting.Release"),
        ("dpkit.continual", "dpkit.continual.ContinualSum"),
    ):
        module = importlib.import_module(package)
        base = getattr(importlib.import_module(kind.rpartition(".")[0]), kind.rpartition(".")[2])
        things = {name: getattr(module, name) for name in module.__all__}
        named = [
            n for n, thing in things.items() if inspect.isclass(thing) and issubclass(thing, base) and thing is not base
        ]
        assert len(named) > 4
        assert [name for name in named if f"`{name}`" not in page] == [], package


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_scripts_with_a_title(notebook):
    source = notebook.read_text(encoding="utf-8")
    assert re.match(r"# %% \[markdown\]\n# # \w", source)
    assert any(line and not line.startswith("#") for line in source.splitlines())
    compile(source, str(notebook), "exec")
