"""The coins that permute-and-flip is: the inequality that the proof comes down to, and exact mechanisms."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.accountants.permute_and_flip import FlipKind


def integral(c, p, end):
    """∫(1 − cu)(1 − pu)du from 0 to ``end``."""
    return end - (c + p) * end**2 / 2 + c * p * end**3 / 3


def gap(alpha, beta, w, p, r):
    """6Φ of the proof, and the sum of its terms' sizes."""
    omega, A, B = alpha * beta / w, 1 / (1 - alpha), 1 / (1 - beta)
    before, after = 1 / np.maximum(np.maximum(1, w), p), 1 / np.maximum(np.maximum(1, omega), r)
    needed = w * (1 + B) * integral(1, p, before) + alpha * (1 + A) * integral(1, r, after)
    found = w * A * integral(w, p, before) + alpha * B * integral(omega, r, after)
    return 6 * (needed - found), 6 * (needed + found)


def test_the_inequality_wherever_it_is_claimed():
    rng, size = np.random.default_rng(1), 200_000
    alpha, beta = rng.uniform(size=(2, size)) ** rng.choice([0.05, 0.3, 1, 3], (2, size))
    near = rng.random(size) < 0.5
    w = np.where(near, alpha * np.exp(rng.normal(0, 0.3, size)), np.exp(rng.normal(0, 2, size)))
    omega = alpha * beta / w
    p = np.where(rng.random(size) < 0.1, 0.0, np.exp(rng.normal(0, 2, size)))
    share = np.clip(rng.uniform(-0.3, 1.3, size), 0, 1)
    left, size_of_terms = gap(alpha, beta, w, p, omega * p * (1 / (alpha * beta)) ** share)
    assert np.all(left >= -1e-13 * size_of_terms)
    # and is an equality where the two scores are alone, and so far apart
    left, size_of_terms = gap(alpha, beta, alpha, 0.0, 0.0)
    assert np.all(np.abs(left) <= 1e-13 * size_of_terms)
    # beyond what a neighbour may do it does not hold
    left, size_of_terms = gap(0.5, 0.5, 1.0, 6.0, 0.0)
    assert left < -0.01 * size_of_terms


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-3, 0.999), st.floats(1e-3, 0.999), st.floats(0, 1), st.floats(0, 1))
def test_the_corners_are_what_the_proof_says(alpha, beta, share, part):
    A, B = 1 / (1 - alpha), 1 / (1 - beta)

    def check(w, p, r, value):
        found, size = gap(alpha, beta, w, p, r)
        assert found == pytest.approx(value, abs=1e-11 * size + 1e-13)
        assert value >= -1e-11 * size

    w = alpha * beta + share * (1 - alpha * beta)  # such that ω ≤ 1
    omega, d, k, t = alpha * beta / w, alpha - w, 1 - w, 1 - alpha
    check(w, 0, 0, 3 * d * (A * (1 - w) - B * (1 - omega)))
    check(w, 1, 1, A * (d**2 + d * (1 - 2 * w) + 2 * w * k) + (B - 1) * d * (d - w) / w)
    second = A * (t**2 + t * (1 - 2 * k - 2 * k**2) + 2 * k**3)
    check(w, w, 1, (B - 1) * (d**2 - w * d + w**2 * k) / w + second)
    # p = 1/ω and r = 1, for any w
    ending = alpha * (1 + (A - 1) * (1 + 1 / B) / B + omega / B)
    check(w, 1 / omega, 1, ending)
    w = 1 / (share + 1e-6 * (1 - share))
    omega, d = alpha * beta / w, (1 - alpha * alpha) * B + 1 + alpha**2
    check(w, 0, 0, 3 * (1 + alpha + 2 * B * (1 - alpha) - d / w))
    check(w, w, 1, 1 + 2 * alpha + 3 * B * (1 - alpha) - d / w)
    bracket = (B - 1) * (3 * alpha**2 - 2 * alpha**3 * beta) - 1 - B
    three = 3 * alpha * (1 - alpha) + A * (1 - alpha * beta) + alpha * beta * (1 - alpha) + 3 * B * (1 - alpha) ** 2
    check(w, w, alpha * beta, three + bracket / w)
    least = 4 * alpha**3 - 7 * alpha**2 + 4 * alpha + 2 * B * (1 - alpha) ** 3
    assert three + bracket == pytest.approx(least + (A - 1 - alpha + alpha**2 - 2 * alpha**3) / B, rel=1e-9)
    check(w, 1 / omega, 1, alpha * (1 + (A - 1) * (1 + 1 / B) / B + omega / B))
    # r = ωp = s: the value at ω = s, and where ω → 0
    s = alpha * beta + part * (1 - alpha * beta)
    rho = beta / s
    whole = (A - 1) * ((1 - rho) * (2 - rho) + 1 - s) + 3 * B * (1 - s) ** 2 / s + 6 - 2 * s - 3 / s
    slope = 3 * B - 2 * B * s - (B - 1 / B) / s**2
    for omega in (s, 0.3 * s):
        found, size = gap(alpha, beta, alpha * beta / omega, s / omega, s)
        assert found == pytest.approx(alpha * (whole + omega * slope), abs=1e-11 * size + 1e-13)
    assert whole >= -1e-9 * (A + B)


def permute_and_flip(scores):
    """P(i) = w_i ∫₀¹ Π_{j ≠ i} (1 − w_j v) dv, a polynomial, integrated exactly."""
    w = np.exp(scores - scores.max())
    nodes, mass = np.polynomial.legendre.leggauss(w.size)
    factors = 1 - np.outer((nodes + 1) / 2, w)
    return w * np.array([mass @ np.delete(factors, i, axis=1).prod(axis=1) / 2 for i in range(w.size)])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-2, 2), min_size=2, max_size=6), st.data(), st.floats(0.05, 3.0))
def test_the_losses_lie_between_those_of_a_coin(scores, data, eps):
    moved = data.draw(st.lists(st.sampled_from([0.0, 1.0, 0.4]), min_size=len(scores), max_size=len(scores)))
    scores = eps * np.array(scores)
    losses = np.log(permute_and_flip(scores) / permute_and_flip(scores + eps * np.array(moved)))
    kind = FlipKind(eps)
    after, _ = kind.inverses(np.array([losses.max()]), np.array([losses.max()]))
    high, low = kind.plain(np.maximum(after, 0.0))
    assert losses.max() <= high[0] + 1e-9
    assert losses.min() >= -low[0] - 1e-9
    assert np.ptp(losses) <= kind.longest + 1e-9


@pytest.mark.parametrize("eps", [0.01, 0.5, 3.0])
def test_two_scores_that_change_places_are_that_coin(eps):
    kind, after = FlipKind(eps), np.linspace(0.0, eps, 7)
    high, low = kind.plain(after)
    u = np.exp(-after)
    share, more = kind.chances(u, 1 - u, u - math.exp(-kind.exponent))
    for i, (b, most, least) in enumerate(zip(after, high, low, strict=True)):
        p, q = permute_and_flip(np.array([eps - b, 0.0])), permute_and_flip(np.array([-b, 0.0]))
        assert np.log(p / q) == pytest.approx([most, -least], abs=1e-12)
        assert q[0] == pytest.approx(share[i], abs=1e-13)
        assert p[0] == pytest.approx(share[i] + more[i], abs=1e-13)
    assert high[3] + low[3] == pytest.approx(kind.longest, rel=1e-12)
    assert np.stack(kind.inverses(high, low)) == pytest.approx(np.stack([after, after]), abs=1e-6)
