"""Queries over a million rows, against the same answer without privacy, and against OpenDP's mean."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from accounting import Budget
from benchmarks.table import Row
from dpkit import queries

ROWS = 10**6


def opendp_rows(x: np.ndarray) -> list[Row]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    values = x[: ROWS // 10]
    space = dp.vector_domain(dp.atom_domain(bounds=(0.0, 100.0), nan=False), size=values.size), dp.symmetric_distance()
    theirs = dp.m.make_laplace(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), scale=1e-3)
    mean = space >> dp.t.then_mean()

    return [
        Row(
            "mean of 10⁵ rows",
            lambda: queries.mean(values, bounds=(0, 100), budget=Budget(1.0, 0.0)),
            lambda: theirs(mean(values)),
            "OpenDP",
            most=1.0,
        )
    ]


def rows() -> list[Row]:
    rng = np.random.default_rng(0)
    x, bounds, budget = rng.gamma(2.0, 10.0, ROWS), (0.0, 100.0), Budget(1.0, 0.0)
    by_person = Budget(1.0, 0.0, unit="person")
    people = rng.integers(0, ROWS // 5, ROWS)
    q = np.arange(1, 101) / 101
    own = [
        Row(
            "mean of 10⁶ rows",
            lambda: queries.mean(x, bounds=bounds, budget=budget),
            lambda: np.clip(x, *bounds).mean(),
            "numpy",
            most=30.0,
        ),
        Row(
            "mean of 10⁶ rows, five a person",
            lambda: queries.mean(x, bounds=bounds, person=people, max_contributions=5, budget=by_person),
            lambda: np.unique(people, return_inverse=True),
            "numpy.unique of the persons",
        ),
        Row(
            "histogram of 10⁶ rows, 100 bins",
            lambda: queries.histogram(x, bins=100, bounds=bounds, budget=budget),
            lambda: np.histogram(np.clip(x, *bounds), 100, bounds),
            "numpy",
        ),
        Row(
            "100 quantiles of 10⁶ rows",
            lambda: queries.quantile(x, q=q, bounds=bounds, budget=budget),
            lambda: np.quantile(np.clip(x, *bounds), q),
            "numpy",
            most=4.5,
        ),
    ]
    return own + (opendp_rows(x) if find_spec("opendp") else [])
