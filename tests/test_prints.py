"""What is public prints itself in one line that says what it is: the objects of every public class's examples."""

from __future__ import annotations

import ast
import contextlib
import doctest
import functools
import importlib
import io
import re
import sys
from html import escape
from itertools import islice

import numpy as np
import pytest

from accounting import ApproxDP, Bracket, Budget, Gaussian, compare
from accounting.audit import recompute
from accounting.ledger import Ledger
from accounting.printed import as_html
from dpbandits.lab.environments import world
from dpbandits.policies import OnePassPrivateGLM
from dpkit.optimize import GLM, glm, noisy_gradient_descent, objective_perturbation, softmax

PACKAGES = (
    "accounting",
    "accounting.audit",
    "accounting.ledger",
    "dpkit.continual",
    "dpkit.geometry",
    "dpkit.mechanisms",
    "dpkit.optimize",
    "dpkit.queries",
    "dpkit.shuffle",
    "dpkit.states",
    "dpbandits.lab.environments",
    "dpbandits.lab.evaluate",
)
# an answer is a value over its cost, or a table; what has a number of its own prints that; the others are abstract
LINES = {"Answer": 30, "Plan": 99, "Report": 99, "Marginals": 30}
NOT_MADE = {
    "ConvexSet",
    "Environment",
    "Factorization",
    "LossPair",
    "PolyhedralSet",
    "Release",
    "Bracket",
    "Unrepeatable",
    "Witness",
}
# worlds that read tables; they print themselves as all worlds do
SLOW = {"Films", "Supervised"}
ROUNDS = 20
MORE = (ApproxDP(1.0, 1e-6), Bracket(1.0, 1.5), softmax(3, clip=1.0), world("people"), Ledger(Budget(1.0, 1e-6)))


def public_classes(package: str) -> list[type]:
    module = importlib.import_module(package)
    names = (getattr(module, name) for name in module.__all__)
    return [one for one in names if isinstance(one, type) and not issubclass(one, BaseException)]


CLASSES = list(dict.fromkeys(one for package in PACKAGES for one in public_classes(package)))


class Shortened(ast.NodeTransformer):
    """Loops end after a few rounds, and no cost is found: what is made prints itself as it does without that."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        if isinstance(node.func, ast.Name) and node.func.id in ("delta", "epsilon"):
            node.func.id = "unpriced"
        self.generic_visit(node)
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        few = ast.Call(ast.Name("islice", ast.Load()), [node.iter, ast.Constant(ROUNDS)], [])
        node.iter = ast.copy_location(few, node.iter)
        self.generic_visit(node)
        return ast.fix_missing_locations(node)


def unpriced(*arguments: object, **keywords: object) -> float:
    return 1.0


def check(thing: object) -> None:
    name, shown = type(thing).__name__, repr(thing)
    lines = shown.split("\n")
    assert len(lines) <= LINES.get(name, 1), shown
    assert max(map(len, lines)) < 200, shown
    assert " object at 0x" not in shown
    assert "<function" not in shown
    # a word and a number, or a name of its own
    assert re.search(r"\w", shown)
    assert re.search(r"\d|'", shown), shown


@pytest.fixture
def made(monkeypatch):
    """Whatever of a public class is made while the test runs."""
    found: list[object] = []
    for one in CLASSES:
        if "__init__" in vars(one):
            first = one.__init__

            @functools.wraps(first)
            def recorded(self, *args, _first=first, **keywords):
                _first(self, *args, **keywords)
                found.append(self)

            monkeypatch.setattr(one, "__init__", recorded)
    return found


def test_objects_of_all_examples_print_in_one_line(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kinds: set[type] = set()
    for one in CLASSES:
        if one.__name__ in SLOW:
            continue
        names = vars(sys.modules[one.__module__]) | {"islice": islice, "unpriced": unpriced}
        with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
            for example in doctest.DocTestParser().get_examples(one.__doc__ or ""):
                if not example.exc_msg:
                    tree = Shortened().visit(ast.parse(example.source))
                    exec(compile(tree, one.__name__, "exec"), names)
        for thing in (*made, *names.values()):
            if type(thing) in CLASSES:
                kinds.add(type(thing))
                check(thing)
        made.clear()
    assert {one.__name__ for one in CLASSES if one not in kinds} == NOT_MADE | SLOW


@pytest.mark.parametrize("thing", MORE, ids=lambda thing: type(thing).__name__)
def test_others_do_too(thing):
    check(thing)


def test_the_check_sees_what_it_should():
    class Silent:
        pass

    with pytest.raises(AssertionError):
        check(Silent())
    with pytest.raises(AssertionError):
        check(np.zeros((20, 20)))


def test_a_result_prints_what_is_private_and_nothing_else():
    X = np.random.default_rng(0).normal(size=(50, 3))
    fit = noisy_gradient_descent(
        glm("logistic", clip=0.01),
        X,
        np.ones(50),
        constraint=importlib.import_module("dpkit.geometry").LpBall(2, 3),
        budget=Budget(1.0, 1e-6),
        max_iterations=3,
        rng=np.random.default_rng(0),
    )
    assert fit.clipped > 0
    check(fit)
    for shown in (repr(fit), str(fit), fit._repr_html_()):
        assert "clipped" not in shown
        assert repr(fit.cost) in shown.replace("&#x27;", "'")
    assert fit._repr_html_().startswith('<div style="max-width: 100%; overflow-x: auto">')


def test_what_a_fit_says_is_not_private_is_not_printed():
    X = np.random.default_rng(0).normal(size=(50, 3))
    ball = importlib.import_module("dpkit.geometry").LpBall(2, 3)
    fit = objective_perturbation(
        glm("logistic", clip=1.0),
        X,
        np.ones(50),
        constraint=ball,
        budget=Budget(1.0, 1e-6),
        rng=np.random.default_rng(0),
    )
    assert fit.not_private == ("clipped", "nit", "nfev")
    for name in fit.not_private:
        assert name not in fit._repr_html_() + repr(fit)


def test_names_that_others_gave_are_escaped():
    own = GLM("<b>", lambda eta, y: eta, lambda eta, y: eta, 1.0, 1.0)
    assert "<b>" not in as_html(repr(own), [["a"], [own.name]])
    assert repr(Gaussian(1.0)) == "Gaussian(noise_multiplier=1.0)"


def test_tables_of_notebooks_scroll_within_a_box_of_their_own():
    shown = as_html("a " * 99, [["parameter", "value"], ["groups", "x" * 99], ["dim", "3"]])
    assert shown.startswith('<div style="max-width: 100%; overflow-x: auto"><p style="overflow-wrap: anywhere">a a')
    assert shown.endswith("</table></div>")
    # what is short stays on its line, and what is long does not make the table as wide
    assert '<table style="width: max-content' in shown
    assert shown.count("ch; overflow-wrap: anywhere") == 1
    prices = compare(12 * Gaussian(20.0), 1e-6)._repr_html_()
    assert "ε at δ = 1e-06" in prices
    assert "proved lower bound" in prices


def test_notebooks_show_a_budget_as_it_is_written_and_an_audit_as_a_table():
    budget = Budget(1.0, 1e-6)
    policy = OnePassPrivateGLM(dim=2, budget=budget, horizon=100)
    assert f"<td>budget</td><td>{escape(repr(budget))}</td>" in policy._repr_html_()
    shown = recompute(policy.ledger)._repr_html_()
    assert ">Recomputed: 1 rows, within its budget" in shown
    assert "<td>gdp</td><td>1</td>" in shown
