"""The arrows of the house: dpbandits → dpkit → accounting, nothing heavy at import, no mechanism imports another."""

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

from benchmarks import house

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("accounting", "dpkit", "dpbandits")
# What each package may import of the three.
ALLOWED = {"accounting": {"accounting"}, "dpkit": {"accounting", "dpkit"}, "dpbandits": set(PACKAGES)}
# Never at module level in the two lower packages: slow to load, or an extra that may be missing.
HEAVY = {"torch", "opacus", "matplotlib", "sklearn", "pandas", "pyarrow", "dp_accounting", "typer", "rich"}
# Modules that only a command line or an extra loads, and that nothing else imports at module level.
COMMANDS = ("dpkit.__main__", "dpkit.cli", "dpkit.sklearn")
# Folders of dpkit with one mechanism per file: the modules that the room's __init__ exports, shared vocabulary aside.
MECHANISMS = ("mechanisms", "continual", "optimize/batch", "optimize/stream", "moments")
VOCABULARY = {"factorization", "sums", "pairs", "people", "shuffled"}
# The most files of a folder.
MOST_FILES = 30
# Rooms whose modules, none of which is in a circle, import each other's: a description says its own loss, and that of a
# choice is composed of the losses of its runs.
CIRCULAR = ("accounting",)


def modules(package: str) -> list[tuple[str, Path]]:
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


ALL = [(package, name, path) for package in PACKAGES for name, path in modules(package)]


def imports(tree: ast.AST, module: str, *, is_package: bool, top_only: bool = False, types: bool = True) -> set[str]:
    """Dotted names that a module imports; with ``top_only`` those that run when it is imported."""
    types = types and not top_only
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: None if is_package and node.level == 1 else -(node.level - is_package)]
                base = ".".join([*parents, *([base] if base else [])])
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            # an expression imports nothing
            if not (
                isinstance(child, ast.expr) or (not types and _type_checking_only(child)) or (top_only and deferred)
            ):
                visit(child)

    visit(tree)
    return found


def _type_checking_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


@cache
def imported_by(name: str, path: Path, *, top_only: bool = False, types: bool = True) -> set[str]:
    return imports(house.parsed(path), name, is_package=path.name == "__init__.py", top_only=top_only, types=types)


def test_arrows_point_down_only():
    up = {}
    for package, name, path in ALL:
        roots = {imported.split(".")[0] for imported in imported_by(name, path)} & set(PACKAGES)
        up[name] = roots - ALLOWED[package]
    assert {name: roots for name, roots in up.items() if roots} == {}


# of one subject all the same: what a ledger is told and asked; more than half is docstrings. And the checker of
# certificates, which imports nothing of the package and is read alone
LONG = {"accounting/ledger/ledger.py", "accounting/checker.py"}


def test_no_file_holds_more_than_a_reader_takes_in():
    """One subject per file, however long its proof is; with more than 600 lines there mostly are two."""
    lines = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n") for *_, path in ALL}
    assert {name for name, count in lines.items() if count > 600} == LONG


def lines_of_code(path: Path) -> int:
    """Lines that hold more than a docstring, a comment or nothing."""
    tree = house.parsed(path)
    silent = tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER
    found = {
        line
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
        if token.type not in silent
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            found -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(found)


def test_a_private_policy_is_read_in_one_page():
    """At most 120 lines of code each: docstrings, comments and empty lines aside."""
    policies = [path for *_, path in ALL if path.parent == ROOT / "dpbandits" / "private" and path.stem != "__init__"]
    sizes = {path.name: lines_of_code(path) for path in policies}
    assert len(sizes) >= 15
    assert {name: size for name, size in sizes.items() if size > 120} == {}


def test_the_map_of_rooms_is_that_of_the_code():
    """CONTRIBUTING.md has the table that ``python -m benchmarks.house`` writes from the imports."""
    assert house.page() == house.PAGE.read_text(encoding="utf-8")


LOWER = [(name, path) for package, name, path in ALL if package != "dpbandits"]


def within(name: str, modules: tuple[str, ...]) -> bool:
    return f"{name}.".startswith(tuple(f"{module}." for module in modules))


def heavy(imported: str) -> bool:
    return imported.split(".")[0] in HEAVY or within(imported, ("scipy.stats", *COMMANDS))


def test_nothing_heavy_at_import():
    found = {
        name: sorted(filter(heavy, imported_by(name, path, top_only=True)))
        for name, path in LOWER
        if not within(name, COMMANDS)
    }
    assert {name: slow for name, slow in found.items() if slow} == {}
    assert heavy("torch.nn")
    assert heavy("scipy.stats.norm")
    assert heavy("dpkit.cli.main")
    assert not heavy("scipy.special")
    assert not heavy("dpkit.clipping")


@pytest.mark.parametrize("folder", MECHANISMS)
def test_no_mechanism_imports_a_sibling(folder):
    room, dotted = folder.partition("/")[0], folder.replace("/", ".")
    exported = (ROOT / "dpkit" / room / "__init__.py").read_text(encoding="utf-8")
    stems = set(re.findall(rf"dpkit\.{dotted}\.(\w+)", exported)) - VOCABULARY
    mechanisms = {f"dpkit.{dotted}.{stem}" for stem in stems if not stem.startswith("_")}
    assert len(mechanisms) > 2
    files = {name: path for name, path in LOWER if name in mechanisms}
    assert files.keys() == mechanisms
    siblings = {name: imported_by(name, path) & mechanisms - {name} for name, path in files.items()}
    assert {name: found for name, found in siblings.items() if found} == {}


def test_the_reader_of_imports_sees_what_it_should():
    source = "import torch.nn\nfrom ..geometry import svec\nfrom . import tree\ndef f():\n    import matplotlib\n"
    everywhere = imports(ast.parse(source), "dpkit.continual.toeplitz", is_package=False)
    assert {"torch.nn", "dpkit.geometry.svec", "dpkit.continual.tree", "matplotlib"} <= everywhere
    top = imports(ast.parse(source), "dpkit.continual.toeplitz", is_package=False, top_only=True)
    assert "torch.nn" in top
    assert "matplotlib" not in top
    inside = imports(ast.parse("from .tree import BinaryTree\n"), "dpkit.continual", is_package=True)
    assert "dpkit.continual.tree" in inside
    assert ALL


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other, by Tarjan's algorithm."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in arrows[name]:
            if other not in order:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == order[name]:
            group = []
            while not group or group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1 or name in arrows[name]:
                found.append(sorted(group))

    for name in arrows:
        if name not in order:
            visit(name)
    return found


@cache
def arrows(*, top_only: bool) -> dict[str, set[str]]:
    names = {name for _, name, _ in ALL}
    found = {name: (imported_by(name, path, top_only=top_only, types=False) & names) - {name} for _, name, path in ALL}
    # what is imported from a package is a module of its own, or a name that its __init__ has from one
    for name, others in found.items():
        modules = {other for other in others if any(other == deeper.rpartition(".")[0] for deeper in others)}
        found[name] = others - modules
    return found


def test_no_module_imports_itself_by_way_of_others():
    assert circles(arrows(top_only=True)) == []


def test_nor_by_way_of_imports_within_functions():
    """Names that are loaded when they are asked for count, too; what only types need does not."""
    assert circles(arrows(top_only=False)) == []


def test_no_room_imports_itself_by_way_of_others():
    """Rooms are the folders and files of a package, whichever of their modules import whichever."""

    def room(name: str) -> str:
        return ".".join(name.split(".")[:2])

    rooms: dict[str, set[str]] = {room(name): set() for _, name, _ in ALL}
    for name, others in arrows(top_only=False).items():
        rooms[room(name)] |= {room(other) for other in others} - {room(name), *PACKAGES}
    found = circles({name: others for name, others in rooms.items() if name not in PACKAGES})
    assert [group for group in found if not all(within(name, CIRCULAR) for name in group)] == []


FOLDERS = sorted({path.parent for *_, path in ALL})


def test_no_folder_is_a_heap():
    folders = {*FOLDERS, *(path.parent for path in (ROOT / "tests").rglob("*.py"))}
    crowded = [folder.relative_to(ROOT).as_posix() for folder in folders if len(list(folder.glob("*.py"))) > MOST_FILES]
    assert crowded == [], "find the rooms in it"


def test_every_folder_says_what_it_is_for():
    """In the first line of its __init__, which is more than a name."""
    for folder in FOLDERS:
        told = ast.get_docstring(house.parsed(folder / "__init__.py")) or ""
        assert len(told.split("\n")[0].split()) > 4, folder


def test_the_finder_of_circles_finds_them():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]
    assert circles({"a": {"b"}, "b": set()}) == []
