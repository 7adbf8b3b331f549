"""Estimators for logs of slates: unbiased under their click model, by enumeration of all that can happen."""

from functools import cache
from itertools import pairwise, permutations, product

import numpy as np
import pytest
from tabled import tabled

from dpbandits import evaluate

ITEMS, K = 4, 3
ATTRACTION = np.array([0.7, 0.2, 0.5, 0.1])
LOOKS = np.array([1.0, 0.6, 0.3])
SLATES = list(permutations(range(ITEMS), K))
RNG = np.random.default_rng(5)
LOGGED, TARGET = RNG.dirichlet(np.ones(len(SLATES))), RNG.dirichlet(np.ones(len(SLATES)) / 3)


def shown_at(law: np.ndarray) -> np.ndarray:
    """How probable it is that an item is at a position, of shape (items, k)."""
    found = np.zeros((ITEMS, K))
    for slate, p in zip(SLATES, law, strict=True):
        found[slate, np.arange(K)] += p
    return found


@cache
def given_above(logged: bool, slate) -> list[float]:
    """Of each position, the probability of its item given those above."""
    law = LOGGED if logged else TARGET
    begins = [sum(p for s, p in zip(SLATES, law, strict=True) if s[:j] == slate[:j]) for j in range(K + 1)]
    return [one / before for before, one in pairwise(begins)]


def outcomes(cascade: bool):
    """Every slate with every pattern of clicks, and how probable it is in the log; and the target's value."""
    rows, value = [], 0.0
    for slate, p, pi in zip(SLATES, LOGGED, TARGET, strict=True):
        chance = ATTRACTION[list(slate)] * (1.0 if cascade else LOOKS)
        for pattern in product((0.0, 1.0), repeat=K):
            clicks = np.array(pattern)
            likely = float(np.prod(np.where(clicks == 1.0, chance, 1.0 - chance)))
            if cascade and clicks.any():
                clicks[int(clicks.argmax()) + 1 :] = 0.0  # nobody looks further
            rows.append((slate, clicks, p * likely))
            value += pi * likely * clicks.sum()
    return rows, value


def expected(found: evaluate.Estimate, rows) -> float:
    return float(found.terms @ [likely for _, _, likely in rows])


def test_position_ips_is_unbiased_in_the_position_based_model():
    rows, value = outcomes(cascade=False)
    r = np.array([clicks for _, clicks, _ in rows])
    p, pi = ([shown_at(law)[slate, np.arange(K)] for slate, _, _ in rows] for law in (LOGGED, TARGET))
    assert expected(evaluate.position_ips(r, p, pi), rows) == pytest.approx(value, rel=1e-12)
    p, pi = ([shown_at(law)[list(slate)] for slate, _, _ in rows] for law in (LOGGED, TARGET))
    known = evaluate.position_ips(r, p, pi, examination=LOOKS)
    assert expected(known, rows) == pytest.approx(value, rel=1e-12)
    # with another examination it is not, so that this test can fail
    assert abs(expected(evaluate.position_ips(r, p, pi, examination=LOOKS[::-1]), rows) - value) > 0.05


# every page stands here once, however probable it is, so that the weights have another mean than a log's
@pytest.mark.filterwarnings("ignore:the log contradicts this target")
def test_cascade_ips_is_unbiased_in_a_cascade_and_position_ips_is_not():
    rows, value = outcomes(cascade=True)
    r = np.array([clicks for _, clicks, _ in rows])
    p, pi = ([given_above(logged, slate) for slate, _, _ in rows] for logged in (True, False))
    assert expected(evaluate.cascade_ips(r, p, pi), rows) == pytest.approx(value, rel=1e-12)
    p, pi = ([shown_at(law)[slate, np.arange(K)] for slate, _, _ in rows] for law in (LOGGED, TARGET))
    assert abs(expected(evaluate.position_ips(r, p, pi), rows) - value) > 0.01


def test_known_looks_leave_less_variance():
    rows, _ = outcomes(cascade=False)
    r, likely = np.array([clicks for _, clicks, _ in rows]), np.array([p for _, _, p in rows])
    at = [[shown_at(law)[slate, np.arange(K)] for slate, _, _ in rows] for law in (LOGGED, TARGET)]
    anywhere = [[shown_at(law)[list(slate)] for slate, _, _ in rows] for law in (LOGGED, TARGET)]
    plain, known = evaluate.position_ips(r, *at), evaluate.position_ips(r, *anywhere, examination=LOOKS)
    assert likely @ known.terms**2 < 0.8 * (likely @ plain.terms**2)


def test_intervals_hold_the_value_as_often_as_they_say():
    # 400 logs: fewer than 360 of 95 % intervals would hold it in one of 10⁴ such tests
    rows, value = outcomes(cascade=True)
    rng, held = np.random.default_rng(6), 0
    likely = np.array([p for _, _, p in rows])
    r = np.array([clicks for _, clicks, _ in rows])
    p, pi = (np.array([given_above(logged, slate) for slate, _, _ in rows]) for logged in (True, False))
    for _ in range(400):
        log = rng.choice(len(rows), size=3000, p=likely / likely.sum())
        low, high = evaluate.cascade_ips(r[log], p[log], pi[log]).interval()
        held += low <= value <= high
    assert held >= 360


@tabled(
    ("rewards", "probabilities", "target", "more", "message"),
    [
        ([1.0, 0.0], [[0.5, 0.5]], [[0.5, 0.5]], {}, "rewards must be a finite table"),
        ([[1.0, np.nan]], [[0.5, 0.5]], [[0.5, 0.5]], {}, "rewards must be a finite table"),
        ([[1.0, 0.0]], [[0.5]], [[0.5, 0.5]], {}, r"probabilities must have shape \(1, 2\)"),
        ([[1.0, 0.0]], [[0.5, 0.5]], [[0.5, 1.5]], {}, "target must be in"),
        ([[1.0, 0.0]], [[0.0, 0.5]], [[0.5, 0.5]], {}, "probabilities must be positive wherever"),
        ([[1.0, 0.0]], [[0.5, 0.5]], [[0.5, 0.5]], {"persons": [1, 2]}, "persons must have one entry per row"),
        ([[1.0, 0.0]], [[[0.5] * 2] * 2], [[[0.5] * 2] * 2], {"examination": [1.0]}, "examination must be 2 positive"),
    ],
)
def test_bad_logs_are_refused(rewards, probabilities, target, more, message):
    with pytest.raises(ValueError, match=message):
        evaluate.position_ips(rewards, probabilities, target, **more)
