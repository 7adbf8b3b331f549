"""Certificates of seeded random releases: are all accepted, and are all mutants of them refused?

``python -m benchmarks.certificates`` makes and checks 500 certificates, then mutants of three kinds, and prints how
many were accepted and the times. Every one of these mutants must be noticed:

* *values*: the same description and δ with an end that is false, by the other end: an upper end below what was proved
  to be lower, and the other way round; or a description with less noise, or more releases, and the old upper end. Only
  brackets narrower than what is moved are taken, so that a mutant's claim is certainly false.
* *proofs*: constants of a proof by which nothing is proved any more, or that are no proof.
* *code*: one operator, comparison or number of the checker's own file is changed. Such a mutant is noticed if it takes
  one of the claims of :mod:`benchmarks.claims` for false that is true, or for true that is false. Some change nothing
  (a limit of work, a message, where a sum is cut): the share that is not noticed is printed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import random
import statistics
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from accounting import (
    ZCDP,
    ApproxDP,
    Certificate,
    DiscreteGaussian,
    DiscreteLaplace,
    FixedSizeSubsampled,
    Gaussian,
    Laplace,
    LocalShuffled,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    Release,
    TreeAggregation,
    UnaryEncoding,
    certify,
    parallel,
    verify,
)
from benchmarks.claims import CASES, claims

__all__ = ["certificates", "code_mutants", "false_values", "worthless_proofs"]

DELTAS = (1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
CHECKER = Path(__file__).parents[1] / "accounting" / "checker.py"


def certificates(seed: int, many: int) -> Iterator[Certificate]:
    """Certificates of random releases, about as often as they are met."""
    draw = random.Random(seed)
    for _ in range(many):
        yield certify(*_release(draw))


def _release(draw: random.Random) -> tuple[Release, float]:
    def log_uniform(low: float, high: float) -> float:
        return float(f"{low * (high / low) ** draw.random():.4g}")

    delta = draw.choice(DELTAS)
    n = round(log_uniform(1, 300))
    sampled_gaussian = PoissonSubsampled(Gaussian(log_uniform(0.7, 4)), log_uniform(1e-3, 0.05))
    kinds: list[tuple[int, Callable[[], Release]]] = [
        (12, lambda: n * Gaussian(log_uniform(0.5, 30))),
        (4, lambda: n * Gaussian(log_uniform(2, 60)) + TreeAggregation(log_uniform(2, 30), n)),
        (10, lambda: n * Laplace(log_uniform(2, 40))),
        (8, lambda: n * PureDP(log_uniform(0.01, 0.5))),
        (6, lambda: n * RandomizedResponse(log_uniform(0.05, 0.8), draw.randint(2, 12))),
        (3, lambda: n * ApproxDP(log_uniform(0.01, 0.3), 1e-3 * delta / n)),
        (3, lambda: n * UnaryEncoding(log_uniform(0.05, 0.8), 10)),
        (8, lambda: n * Gaussian(log_uniform(5, 60)) + draw.randint(1, 20) * Laplace(log_uniform(3, 40))),
        (4, lambda: n * Laplace(log_uniform(10, 60)) + draw.randint(1, 9) * PureDP(log_uniform(0.01, 0.2))),
        (14, lambda: round(log_uniform(16, 10_000)) * sampled_gaussian),
        (3, lambda: sampled_gaussian),
        (3, lambda: draw.randint(20, 400) * sampled_gaussian + draw.randint(1, 5) * Gaussian(log_uniform(5, 30))),
        (2, lambda: draw.randint(2, 6) * PoissonSubsampled(Gaussian(log_uniform(0.8, 3)), log_uniform(0.02, 0.2))),
        (4, lambda: n * PoissonSubsampled(PureDP(log_uniform(0.1, 1.5)), log_uniform(0.01, 0.2))),
        (3, lambda: draw.randint(1, 40) * DiscreteGaussian(log_uniform(2, 12), shift=draw.randint(1, 3))),
        (3, lambda: n * DiscreteLaplace(log_uniform(3, 40), shift=draw.randint(1, 6))),
        (3, lambda: NoisyMax(log_uniform(0.05, 3), draw.choice(("gumbel", "exponential")))),
        (3, lambda: draw.randint(1, 20) * ZCDP(log_uniform(1e-3, 0.3))),
        (2, lambda: LocalShuffled(log_uniform(0.5, 3), draw.randint(1_000, 50_000))),
        (1, lambda: LocalShuffled(RandomizedResponse(log_uniform(0.5, 3), draw.randint(3, 20)), 10_000)),
        (2, lambda: FixedSizeSubsampled(Gaussian(log_uniform(0.7, 4)), draw.randint(1, 50), 1_000)),
        (2, lambda: parallel(Gaussian(log_uniform(0.7, 4)), n * Laplace(log_uniform(2, 40)))),
    ]
    made = draw.choices([make for _, make in kinds], [weight for weight, _ in kinds])[0]()
    pure = draw.random() < 0.04
    return (draw.randint(1, 9) * Laplace(log_uniform(0.5, 9)) + PureDP(0.1), 0.0) if pure else (made, delta)


def false_values(certificate: Certificate) -> Iterator[Certificate]:
    """Claims about the same release that are certainly false, and nearly true."""
    lower, upper, delta = certificate.lower, certificate.upper, certificate.delta
    if lower is not None and lower > 0 and upper - lower < 0.01 * upper:
        for share in (1e-4, 3e-3):
            yield replace(certificate, lower=None, upper=lower * (1 - share))
            yield replace(certificate, lower=upper * (1 + share), upper=upper * (1 + 2 * share))
        yield replace(certificate, lower=None, upper=0.99 * lower)
        if delta > 0:
            yield replace(certificate, lower=None, upper=lower, delta=0.99 * delta)


def worthless_proofs(certificate: Certificate, draw: random.Random) -> Iterator[Certificate]:
    """The same claims with proofs that prove nothing any more, or that are none."""
    for name in _numbers(certificate.proof):
        for change in _WORTHLESS.get(name, ()):
            proof = copy.deepcopy(certificate.proof)
            _change(proof, name, change)
            yield replace(certificate, proof=proof)
    if certificate.proof and _needs_line(certificate):
        yield replace(certificate, proof={})
        yield replace(certificate, proof={"present": [draw.random()]})


def _needs_line(certificate: Certificate) -> bool:
    return any("tilt" in json.dumps(line) for lines in certificate.proof.values() for line in lines)


#: What is done to a number of a line of integration: so much finer or coarser that it must fail, or no number.
_WORTHLESS: dict[str, tuple[Callable[[float], Any], ...]] = {
    "tilt": (lambda t: -t, lambda t: 1e4 * t, lambda t: str(t), lambda t: None),
    "step": (lambda h: 30 * h, lambda h: -h, lambda h: 0.0, lambda h: None),
    "width": (lambda w: 3e3 * w, lambda w: -w, lambda w: 0.0),
    "beyond": (lambda s: 0.0, lambda s: -s, lambda s: None),
}


def _numbers(proof: Any) -> list[str]:
    text = json.dumps(proof)
    return [name for name in _WORTHLESS if f'"{name}"' in text and '"bottom"' not in text]


def _change(value: Any, name: str, change: Callable[[float], Any]) -> None:
    if isinstance(value, dict):
        for key in value:
            if key == name and isinstance(value[key], float):
                value[key] = change(value[key])
            else:
                _change(value[key], name, change)
    elif isinstance(value, list):
        for item in value:
            _change(item, name, change)


_SWAPS: dict[Any, Any] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.GtE: ast.Lt,
}  # fmt: skip


class _Mutation(ast.NodeTransformer):
    """One operator, comparison or number is changed: the one of a given index."""

    def __init__(self, index: int) -> None:
        self.left = index

    def _is_it(self) -> bool:
        self.left -= 1
        return self.left == -1

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if type(node.op) in _SWAPS and self._is_it():
            node.op = _SWAPS[type(node.op)]()
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if type(node.ops[0]) in _SWAPS and self._is_it():
            node.ops[0] = _SWAPS[type(node.ops[0])]()
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is int and self._is_it():
            return ast.copy_location(ast.Constant(node.value + 1), node)
        return node


def code_mutants(seed: int, many: int) -> Iterator[types.ModuleType]:
    """The checker's file with one place changed, as modules."""
    source = CHECKER.read_text(encoding="utf-8")
    whole = _Mutation(sys.maxsize)
    whole.visit(ast.parse(source))
    for index in random.Random(seed).sample(range(sys.maxsize - whole.left), many):
        tree = ast.fix_missing_locations(_Mutation(index).visit(ast.parse(source)))
        module = types.ModuleType(f"mutant_{index}")
        sys.modules[module.__name__] = module
        try:
            exec(compile(tree, module.__name__, "exec"), module.__dict__)
        except Exception:
            continue  # that does not even load
        yield module


def _main() -> None:
    import signal

    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--many", type=int, default=500)
    reader.add_argument("--seed", type=int, default=1)
    reader.add_argument("--code", type=int, default=150)
    given = reader.parse_args()
    warnings.simplefilter("ignore")
    made, times = [], []
    for certificate in certificates(given.seed, given.many):
        start = time.perf_counter()
        verdict = verify(certificate)
        times.append(time.perf_counter() - start)
        made.append(certificate)
        if not verdict:
            print(f"refused: {certificate.release!r} at {certificate.delta}: {verdict.reason}", flush=True)
    print(
        f"{len(made)} certificates; seconds: median {statistics.median(times):.3f}, largest {max(times):.1f}",
        flush=True,
    )
    quick = [certificate for certificate, seconds in zip(made, times, strict=True) if seconds < 0.3]
    draw = random.Random(given.seed)
    for name, mutants in (
        ("values", [mutant for one in quick for mutant in false_values(one)]),
        ("proofs", [mutant for one in quick for mutant in worthless_proofs(one, draw)]),
    ):
        accepted = [mutant for mutant in mutants if verify(mutant)]
        print(f"mutants of {name}: {len(mutants)}, of which {len(accepted)} were accepted", flush=True)
        for mutant in accepted[:5]:
            print(f"  {mutant!r}", flush=True)
    battery = [claim for kind in CASES for claim in claims(kind)]
    noticed = tried = 0

    def too_long(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, too_long)
    for module in code_mutants(given.seed, given.code):
        tried += 1
        signal.alarm(60)
        try:
            same = all(bool(module.verify(claim.stored)) == claim.true for claim in battery)
        except Exception:
            same = False
        signal.alarm(0)
        noticed += not same
    print(f"mutants of code: {tried}, of which {noticed} were noticed by {len(battery)} claims")


if __name__ == "__main__":
    _main()
