"""How batches are made, that their prices hold, and that a shuffled run quoted as Poisson samples is caught."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binom, chi2, norm
from tabled import tabled

from accounting import (
    ApproxDP,
    Budget,
    Gaussian,
    Ledger,
    PoissonSubsampled,
    RandomAllocated,
    audit,
    delta,
    epsilon,
)
from dpkit.geometry import LpBall
from dpkit.optimize import glm, noisy_sgd
from dpkit.training.batches import Batches, checked_batches

REPLACE, COME = Budget(2.0, 1e-5), Budget(2.0, 1e-5, adjacency="add_remove")


def batches_of(sampling, source, **more):
    return list(Batches(sampling, units=50, batch=10, **more).epoch(source, 50))


def test_an_epoch_sees_every_unit_once_but_for_poisson_samples():
    source = np.random.default_rng(3)
    for sampling in ("balls_in_bins", "shuffle"):
        found = batches_of(sampling, source)
        assert len(found) == 5
        assert sorted(np.concatenate(found).tolist()) == list(range(50))
    assert {batch.size for batch in batches_of("shuffle", source)} == {10}
    assert [batch.size for batch in Batches("shuffle", 7, 3).epoch(source, 7)] == [3, 2, 2]
    many = [batches_of("poisson", source) for _ in range(40)]
    assert len({np.concatenate(found).size for found in many}) > 1


@pytest.mark.parametrize("sampling", ["poisson", "balls_in_bins", "shuffle"])
def test_no_batch_is_likelier_for_a_unit_than_another(sampling):
    """Two units' batches of 2,000 epochs are even and independent, by χ² with a false alarm in 10⁹."""
    source, runs = np.random.default_rng(5), 2000
    counts = np.zeros((5, 5))
    alone = np.zeros(5)
    for _ in range(runs):
        found = batches_of(sampling, source)
        holds = [[i for i, batch in enumerate(found) if unit in batch] for unit in (0, 1)]
        for i, j in itertools.product(*holds):
            counts[i, j] += 1
        alone[holds[0]] += 1
    assert np.sum((alone - runs / 5) ** 2 / (runs / 5)) < chi2.isf(1e-9, 5)
    # shuffled batches have room for nine others: who has a place leaves fewer
    same = 9 / 49 if sampling == "shuffle" else 1 / 5
    expected = np.full((5, 5), runs * (1 - same) / 20)
    np.fill_diagonal(expected, runs * same / 5)
    assert np.sum((counts - expected) ** 2 / expected) < chi2.isf(1e-9, 25)


def test_prices():
    inner = Gaussian(1.5, adjacency="add_remove")
    price = Batches("balls_in_bins", 100, 30).price(1.5, steps=9, adjacency="add_remove")
    assert price == 3 * RandomAllocated(inner, 4)  # a third epoch was begun
    assert Batches("poisson", 100, 25).price(1.5, steps=9, adjacency="replace") == 9 * PoissonSubsampled(
        inner, 0.25, adjacency="replace"
    )
    assert Batches("shuffle", 100, 25).price(1.5, steps=9, adjacency="replace") == 3 * Gaussian(
        0.75, adjacency="replace"
    )
    capped = Batches("balls_in_bins", 100, 25, max_batch=40).price(1.5, steps=4, adjacency="replace")
    (fails,) = [part for part, _ in capped.parts if isinstance(part, ApproxDP)]
    assert fails.delta == pytest.approx(4 * binom.sf(39, 99, 0.25), rel=2e-6)
    assert fails.delta >= 4 * binom.sf(39, 99, 0.25)
    assert Batches("poisson", 10, 5, max_batch=10)._overflow(10) == 0.0


@pytest.mark.parametrize(("sampling", "cap"), [("poisson", 1), ("poisson", 2), ("balls_in_bins", 3)])
def test_a_cap_costs_no_more_than_its_price(sampling, cap):
    """All batches of four units, capped, with noise 0.9: sums of one step, or of both steps of an epoch."""
    z, others = 0.9, (1.0, -1.0, 1.0)
    y = np.linspace(-9.0, 9.0, 721)
    steps = 1 if sampling == "poisson" else 2
    chance = 1 / 2

    def law(value):
        values = np.array([value, *others])
        found = np.zeros((y.size,) * steps)
        for where in itertools.product(range(2), repeat=4):  # the batch of each, or whether it is in it
            sums = []
            for step in range(steps):
                inside = [i for i in range(4) if where[i] == step]
                kept = list(itertools.combinations(inside, min(cap, len(inside))))
                sums.append(np.mean([norm.pdf(y, values[list(some)].sum(), z) for some in kept], axis=0))
            found += math.prod([chance] * 4) * (sums[0] if steps == 1 else np.multiply.outer(*sums))
        return found * (y[1] - y[0]) ** steps

    one, other = law(1.0), law(-1.0)
    price = Batches(sampling, 4, 2, max_batch=cap).price(z, steps=steps, adjacency="replace")
    for at in (0.0, 0.5, 1.0, 2.0):
        for p, q in ((one, other), (other, one)):
            assert np.maximum(p - math.exp(at) * q, 0.0).sum() <= float(delta(price, at)) + 1e-9


def test_a_cap_keeps_units_evenly():
    source, runs = np.random.default_rng(11), 3000
    seen = np.zeros(6)
    for _ in range(runs):
        for batch in Batches("balls_in_bins", 6, 3, max_batch=2).epoch(source, 6):
            assert batch.size <= 2
            seen[batch] += 1
    assert np.sum((seen - seen.mean()) ** 2 / seen.mean()) < chi2.isf(1e-9, 6)


@tabled(
    ("sampling", "cap", "budget", "count", "message"),
    [
        ("epochs", None, COME, 1000, "sampling must be one of"),
        ("shuffle", None, COME, 1000, "take 'balls_in_bins' or a budget by 'replace'"),
        ("shuffle", 30, REPLACE, 1000, "shuffled batches have one size"),
        ("poisson", 300, COME, 1000, "max_batch needs the number of units to be public"),
        ("poisson", 0, REPLACE, 1000, "max_batch"),
        ("poisson", 90, REPLACE, 1000, r"at least 1\d\d takes 1% of δ"),
        ("balls_in_bins", 90, REPLACE, 1000, r"at least 1\d\d takes 1% of δ"),
        ("shuffle", None, REPLACE, 999, "public_rows must be the number of units, 999"),
        ("balls_in_bins", None, Budget(51.0, 1e-5), 1000, "sampling must be 'poisson' for a budget by 'replace'"),
    ],
)
def test_what_has_no_price_is_refused(sampling, cap, budget, count, message):
    with pytest.raises(ValueError, match=message):
        checked_batches(sampling, 1000, 80, cap, count=count, steps=50, budget=budget)


@pytest.mark.thorough
def test_noisy_sgd_runs_on_each_and_its_ledger_says_which():
    draw = np.random.default_rng(0)
    X = draw.normal(size=(400, 2)) / 3
    y = (X @ [1.0, -1.0] > 0).astype(float)
    noise, known = {}, {"constraint": LpBall(2, 2, 2.0), "steps": 12, "batch": 100, "public_rows": 400}
    for sampling, cap, budget in (
        ("poisson", None, COME),
        ("poisson", 160, REPLACE),
        ("balls_in_bins", None, COME),
        ("shuffle", None, REPLACE),
    ):
        ledger, more = Ledger(budget), {"sampling": sampling, "max_batch": cap, "budget": budget, **known}
        fit = noisy_sgd(glm("logistic", clip=1.0), X, y, ledger=ledger, **more)
        assert ledger.total == fit.cost
        assert epsilon(fit.cost, 1e-5) <= 2.0
        (row,) = ledger.rows()
        said = {"poisson": "Poisson samples", "balls_in_bins": "balls in bins", "shuffle": "shuffled batches"}[sampling]
        assert row.label == f"noisy SGD, {said}"
        assert said in fit.message
        parts = [part for part, _ in fit.cost.parts if not isinstance(part, ApproxDP)]
        noise[sampling, cap] = getattr(parts[0], "release", parts[0]).noise_multiplier
    # what shuffled batches need is several times as much, z of z/2
    assert noise["balls_in_bins", None] < noise["poisson", None] < noise["poisson", 160]
    assert 2 * noise["shuffle", None] > 1.5 * noise["poisson", 160]


@pytest.mark.thorough
def test_a_shuffled_run_that_is_quoted_as_poisson_is_caught():
    """One unit among 40 in 20 batches: its batch stands out, as all others add up to the same in every batch.

    The noise is that of Poisson samples with the claimed ε. With a confidence of 1 − 1e-9 the audit shows more of the
    shuffled run, and not of what was claimed for balls in bins.
    """
    z, units, batch, level, trials = 0.8, 40, 2, 1e-2, 2500
    claimed = {
        sampling: float(epsilon(Batches(sampling, units, batch).price(z, steps=20, adjacency="replace"), level))
        for sampling in ("poisson", "balls_in_bins")
    }

    def run(sampling, value, source):
        values = np.full(units, -1.0)
        values[0] = value
        made = Batches(sampling, units, batch)
        sums = [[values[some].sum() for some in made.epoch(source, units)] for _ in range(trials)]
        return np.array(sums) + z * source.standard_normal((trials, 20))

    def score(sums):
        # a batch with the unit lies 2 higher, of shuffled ones
        return logsumexp(2 * sums / z**2, axis=1)

    found = {}
    for sampling in ("shuffle", "balls_in_bins"):
        source = np.random.default_rng(23)
        found[sampling] = audit.lower_bound(
            lambda value, count, sampling=sampling, source=source: run(sampling, value, source),
            1.0, -1.0, trials=trials, delta=level, confidence=1 - 1e-9, score=score, batched=True,
        ).epsilon  # fmt: skip
    assert found["shuffle"] > 1.1 * claimed["poisson"]
    assert found["balls_in_bins"] < claimed["balls_in_bins"]
