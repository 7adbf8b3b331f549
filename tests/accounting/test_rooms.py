"""The rooms of ``accounting``: which may know which, that no file knows itself, and how far a total travels."""

import ast
import sys
from functools import cache
from pathlib import Path

from tabled import tabled

import accounting
from accounting import Gaussian, PoissonSubsampled, epsilon

ROOT = Path(accounting.__file__).parent
# What no file of a room imports, not even inside a function.
NEVER = {
    "loss": {"releases", "notions", "compose", "adaptive", "lower", "ledger", "audit"},
    "compose": {"adaptive", "lower", "ledger", "audit"},
    "notions": {"adaptive", "lower", "ledger", "audit"},
    "amplification": {"loss", "notions", "compose", "adaptive", "lower", "ledger", "audit"},
    "adaptive": {"lower", "ledger", "audit"},
    "lower": {"ledger", "audit"},
}


def imported(path):
    """Modules that a file imports anywhere but for the sake of types."""
    found = set()

    def visit(node):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("accounting"):
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & FILES.keys()
            found.update(inner or {node.module})
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name.startswith("accounting."))
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found & FILES.keys()


def name_of(path):
    parts = ("accounting", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


@cache  # every process of a run collects these tests, and few run them
def arrows():
    return {name: imported(path) - {name} for name, path in FILES.items()}


@tabled("room", NEVER)
def test_a_room_knows_what_is_below_it(room):
    found = arrows()
    inside = [name for name in found if name.startswith(f"accounting.{room}.") or name == f"accounting.{room}"]
    up = {(name, other) for name in inside for other in found[name] if other.split(".")[1] in NEVER[room]}
    assert len(inside) > 1
    assert not up


def test_no_file_imports_itself_by_way_of_others_even_inside_functions():
    """Files without arrows to any that are left are taken away, until none are: a circle would stay."""
    left = dict(arrows())
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]
    assert not left


def test_a_total_of_samples_passes_through_few_files():
    release, files = 1000 * PoissonSubsampled(Gaussian(1.1), 0.01), set()

    def seen(frame, event, arg):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT) and frame.f_code.co_name != "<module>":
            files.add(path.relative_to(ROOT).as_posix())

    sys.setprofile(seen)
    try:
        epsilon(release, 1.234e-6)
    finally:
        sys.setprofile(None)
    assert "compose/convolution.py" in files
    assert len(files) <= 12, sorted(files)
