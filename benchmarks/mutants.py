"""Do the tests notice a fault? Small faults are planted in the source of a room, one at a time, and tests are run.

``python -m benchmarks.mutants accounting/compose --tests tests/accounting --mutants 200`` draws so many of all possible
mutants by a seed: a comparison, an operator, a number, a condition or min and max changed, or a statement left out.
What only changes messages, types or how objects print is not touched; nor are numbers of which other values are as
valid: those of a module's private constants in capitals, which are sizes and limits of a search or a table, and numbers
below 10⁻⁶, by which results are rounded to the safe side. First every test is run once, and it is noted
which functions it calls, and for how long it runs; then each mutant meets the tests that call its function (or, outside
of functions, one of its file), quickest first, until one fails or takes far too long. Which ones survive is printed:
some of them compute the same, more slowly or with another rounding, and are no fault; a reader must say which.

A mutant is a fork of a process that has loaded what tests need, but nothing of the three packages.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis  # noqa: F401  (loaded once, for all forks)
import numpy as np  # noqa: F401
import pytest
import scipy.optimize
import scipy.special  # noqa: F401

ROOT = Path(__file__).resolve().parent.parent
SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.Pow: ast.Mult, ast.FloorDiv: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "floor": "ceil", "ceil": "floor",
         "any": "all", "all": "any", "log1p": "log", "expm1": "exp"}  # fmt: skip
QUIET = {"__repr__", "__str__", "_repr_html_"}


class Mutant:
    """One change of one file: ``change`` edits a fresh tree's node that is number ``at`` in the order of a walk."""

    def __init__(self, path: Path, at: int, kind: str, line: int, function: int | None) -> None:
        self.path, self.at, self.kind, self.line, self.function = path, at, kind, line, function

    def source(self) -> ast.Module:
        """The changed file, as a tree."""
        tree = ast.parse(self.path.read_text(encoding="utf-8"))
        node = list(ast.walk(tree))[self.at]
        change(node, self.kind)
        return ast.fix_missing_locations(tree)

    def __str__(self) -> str:
        before, after = (
            ast.unparse(statement(tree, self.line)).split("\n")[0] for tree in (self._tree(), self.source())
        )
        shown = self.path.relative_to(ROOT)
        return f"{shown}:{self.line} {self.kind}: {before[:110]}  →  {after[:110]}"

    def _tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))


def statement(tree: ast.Module, line: int) -> ast.AST:
    """The smallest statement that is on a line."""
    on = [n for n in ast.walk(tree) if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or n.lineno)]
    return min(on, key=lambda n: (n.end_lineno or n.lineno) - n.lineno, default=tree)


def kinds(node: ast.AST) -> Iterator[str]:
    """What can be changed in a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield "compare"
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPS:
        yield "operator"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield "sign"
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float) and not 0 < node.value < 1e-6:
        yield "number"
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield "condition"
    if isinstance(node, ast.Call) and name_of(node.func) in NAMES:
        yield "name"
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield "left out"


def name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def change(node: Any, kind: str) -> None:
    """Make it, in place."""
    match kind:
        case "compare":
            node.ops[0] = SWAPS[type(node.ops[0])]()
        case "operator":
            node.op = SWAPS[type(node.op)]()
        case "sign":
            node.op = ast.UAdd()
        case "number":
            value = node.value
            whole = isinstance(value, int)
            node.value = (not value) if isinstance(value, bool) else value + 1 if whole else 2 * value or 1.0
        case "condition":
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case "name":
            new = NAMES[name_of(node.func)]
            if isinstance(node.func, ast.Attribute):
                node.func.attr = new
            else:
                node.func.id = new
        case "left out":
            node.__class__ = ast.Pass
        case _:
            raise ValueError(kind)


def _is_chosen(statement: ast.AST) -> bool:
    """Whether it sets private constants of a module."""
    if not isinstance(statement, ast.Assign):
        return False
    names = [node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)]
    return bool(names) and all(name.startswith("_") and name.isupper() for name in names)


def mutants(path: Path) -> Iterator[Mutant]:
    """All of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    order = {id(node): i for i, node in enumerate(ast.walk(tree))}

    def visit(node: ast.AST, function: int | None) -> Iterator[Mutant]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Raise | ast.JoinedStr | ast.Assert | ast.Import | ast.ImportFrom | ast.arg):
                continue
            if isinstance(child, ast.If) and name_of(child.test) == "TYPE_CHECKING":
                continue
            if node is tree and _is_chosen(child):
                continue
            inside = function
            if isinstance(child, ast.FunctionDef):
                if child.name in QUIET:
                    continue
                decorated = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                inside = decorated if function is None else function
            if isinstance(child, ast.AnnAssign):
                if child.value is not None:
                    yield from found(child.value, inside)
                    yield from visit(child.value, inside)
                continue
            yield from found(child, inside)
            if isinstance(child, ast.FunctionDef):
                for part in [*child.body, *child.args.defaults, *(d for d in child.args.kw_defaults if d)]:
                    yield from found(part, inside)
                    if not isinstance(part, ast.Raise):
                        yield from visit(part, inside)
            else:
                yield from visit(child, inside)

    def found(node: ast.AST, function: int | None) -> Iterator[Mutant]:
        if isinstance(node, ast.Raise):
            return
        for kind in kinds(node):
            if hasattr(node, "lineno"):
                yield Mutant(path, order[id(node)], kind, node.lineno, function)

    yield from visit(tree, None)


class Planted(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the changed file in the place of its own; a plugin, too."""

    def __init__(self, mutant: Mutant) -> None:
        parts = mutant.path.relative_to(ROOT).with_suffix("").parts
        self._name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self._mutant = mutant

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        file = str(self._mutant.path)
        return importlib.util.spec_from_file_location(
            name, file, loader=self, submodule_search_locations=[str(Path(file).parent)] if "__init__" in file else None
        )

    def exec_module(self, module: Any) -> None:
        exec(compile(self._mutant.source(), str(self._mutant.path), "exec"), module.__dict__)

    def pytest_configure(self) -> None:
        """Come before pytest's own, which imports files whose doctests are asked for."""
        sys.meta_path.insert(0, self)


class Calls:
    """A plugin: which functions of some files each test calls, and its time."""

    def __init__(self, files: set[str]) -> None:
        self._files = files
        self.of: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        files, calls, start = self._files, self.of[item.nodeid], time.perf_counter()

        def seen(frame: Any, event: str, argument: object) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename in files:
                calls.add((code.co_filename, code.co_firstlineno))

        sys.setprofile(seen)
        yield
        sys.setprofile(None)
        self.seconds[item.nodeid] = time.perf_counter() - start


ARGUMENTS = [
    "-q",
    "-x",
    "-m",
    "not slow",
    "-n",
    "0",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:randomly",
    "--no-header",
    "--tb=no",
]


def forked(work: Any, limit: float) -> int:
    """The exit status of ``work`` in a fork; −1 where it took longer than ``limit``."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            os._exit(int(work()))
        except BaseException:
            os._exit(99)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def looked_at(
    files: list[Path], tests: list[str], cache: Path
) -> tuple[dict[str, set[tuple[str, int]]], dict[str, float]]:
    """Which functions each test calls, and its seconds; kept in a file."""
    if not cache.exists():

        def work() -> int:
            plugin = Calls({str(file) for file in files})
            status = pytest.main([a for a in ARGUMENTS if a != "-x"] + tests, plugins=[plugin])
            kept = {test: [sorted(plugin.of[test]), plugin.seconds[test]] for test in plugin.seconds}
            cache.write_text(json.dumps(kept), encoding="utf-8")
            return int(status)

        print("status of all tests without a fault:", forked(work, 3600), flush=True)
    kept = json.loads(cache.read_text(encoding="utf-8"))
    return (
        {test: {(file, line) for file, line in calls} for test, (calls, _) in kept.items()},
        {test: seconds for test, (_, seconds) in kept.items()},
    )


def main() -> None:
    """Plant, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("room")
    parser.add_argument("--tests", nargs="+", required=True)
    parser.add_argument("--mutants", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, required=True, help="where it is kept which test calls what")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="the most time that tests of one mutant should take"
    )
    parser.add_argument(
        "--only", type=int, nargs="+", help="numbers in the draw: of survivors, which may meet longer tests"
    )
    options = parser.parse_args()
    os.chdir(ROOT)
    room = ROOT / options.room
    files = [room] if room.is_file() else sorted(room.rglob("*.py"))
    calls, seconds = looked_at(files, options.tests, options.cache)
    every = [mutant for file in files for mutant in mutants(file)]
    draw = enumerate(random.Random(options.seed).sample(every, min(options.mutants, len(every))), 1)
    drawn = [(number, mutant) for number, mutant in draw if not options.only or number in options.only]
    survived, uncalled, start = [], 0, time.monotonic()
    for tried, (number, mutant) in enumerate(drawn, 1):
        there = str(mutant.path)
        tests = [
            test
            for test in sorted(calls, key=seconds.__getitem__)
            if any(f == there and (mutant.function is None or line == mutant.function) for f, line in calls[test])
        ]
        taken: list[str] = []
        total = 0.0
        for test in tests:
            total += seconds[test]
            if total > options.seconds and taken:
                break
            taken.append(test)

        def work(mutant: Mutant = mutant, taken: list[str] = taken) -> int:
            planted = Planted(mutant)
            sys.meta_path.insert(0, planted)
            return int(pytest.main(ARGUMENTS + taken, plugins=[planted]))

        status = 0 if not taken else forked(work, 60 + 5 * min(total, options.seconds))
        uncalled += not taken
        if status == 0:
            survived.append(mutant)
            print(f"survived ({len(taken)} of {len(tests)} tests) {number}: {mutant}", flush=True)
        if tried % 10 == 0:
            print(f"{tried}: {len(survived)} survived, {time.monotonic() - start:.0f} s", flush=True)
    share = f"{len(survived)} of {len(drawn)} survived ({len(survived) / max(1, len(drawn)):.1%})"
    print(f"{options.room}: {share}; {uncalled} in code that no test calls; {len(every):,} mutants in all")


if __name__ == "__main__":
    main()
