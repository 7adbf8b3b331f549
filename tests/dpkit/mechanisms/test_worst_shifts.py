"""Generalized Gaussian noise against shifts in all directions: hockey-stick divergences over those that are claimed.

In the plane the density and its shifts are summed over a lattice, for 25 directions. In more dimensions the losses of
draws are averaged, from a sampler of this file: directions along an axis, along diagonals of some or all coordinates,
of random signs and of falling size. Largest found over claimed: 1.000 for r = 2 and next to it (Gaussian noise), .98 at
r = 2.05 in R²⁰⁰, .95 at r = 2.2, .89 at 2.5, .82 at 3, .27 at 40; .87 for q = ∞ in R¹⁰⁰⁰; ten releases .83.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from accounting import delta
from dpkit.mechanisms import GeneralizedGaussianMechanism


def normal_divergence(mu, epsilon):
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def worst_in_the_plane(r, q, z, points=181):
    """The largest ratio over directions and ε."""
    made = GeneralizedGaussianMechanism(z, q=q, dimension=2, sensitivity=1.0, r=r)
    line = made.scale * np.linspace(-7.5, 7.5, points)
    x, y = np.meshgrid(line, line)

    def law(a, b):
        found = np.exp(-((np.abs(x - a) ** r + np.abs(y - b) ** r) ** (2 / r)) / (2 * made.scale**2))
        return found / total

    total = 1.0
    total = law(0.0, 0.0).sum()
    base, best = law(0.0, 0.0), 0.0
    for angle in np.linspace(0.0, math.pi / 4, 25):
        shift = np.array([math.cos(angle), math.sin(angle)])
        moved = law(*(shift / np.linalg.norm(shift, q)))
        for epsilon in (0.0, 0.5 / z, 1 / z, 2 / z):
            found = float(np.maximum(moved - math.exp(epsilon) * base, 0.0).sum())
            assert delta(made.cost, epsilon) == pytest.approx(normal_divergence(1 / z, epsilon), rel=1e-9)
            best = max(best, found / normal_divergence(1 / z, epsilon))
    return best


@pytest.mark.parametrize(
    ("r", "q", "least"), [(2.0001, 2.0001, 0.999), (2.01, 3.0, 0.99), (3.0, math.inf, 0.78), (40.0, math.inf, 0.23)]
)
def test_no_direction_in_the_plane_costs_more(r, q, least):
    for z in (0.5, 4.0):
        # the sum over a lattice is off by 1.5 in a thousand at most (and by 0.1 with steps of three quarters)
        assert least < worst_in_the_plane(r, q, z) < 1.002


def worst_in_space(d, q, r, z, *, runs, releases=1, seed=0):
    """The largest ratio less 6.5 standard errors, and the largest ratio."""
    source = np.random.default_rng(seed)
    made = GeneralizedGaussianMechanism(z, q=q, dimension=d, sensitivity=1.0, r=r)
    norm, mu = made.r, math.sqrt(releases) / z
    shifts = [np.eye(d)[0], np.ones(d), source.choice([-1.0, 1.0], d), np.arange(1, d + 1) ** -0.5]
    shifts += [(np.arange(d) < some).astype(float) for some in (2, 4, 16, 64) if some < d]
    shifts = [shift / np.linalg.norm(shift, q) for shift in shifts]
    losses = [np.zeros(runs) for _ in shifts]
    for _ in range(releases):
        x = source.gamma(1 / norm, 1.0, (runs, d)) ** (1 / norm) * source.choice([-1.0, 1.0], (runs, d))
        radius = made.scale * np.sqrt(2 * source.gamma(d / 2, 1.0, runs))
        x *= (radius / np.linalg.norm(x, norm, axis=1))[:, None]
        for loss, shift in zip(losses, shifts, strict=True):
            loss += (np.linalg.norm(x + shift, norm, axis=1) ** 2 - radius**2) / (2 * made.scale**2)
    sure, best = 0.0, 0.0
    for loss in losses:
        for epsilon in (0.0, 0.5 * mu, mu, 2 * mu):
            value = np.maximum(0.0, -np.expm1(np.minimum(epsilon - loss, 0.0))) / normal_divergence(mu, epsilon)
            mean, error = float(value.mean()), 6.5 * float(value.std()) / math.sqrt(runs)
            sure, best = max(sure, mean - error), max(best, mean)
    return sure, best


@pytest.mark.parametrize(("d", "q", "r"), [(3, 2.05, 2.05), (20, math.inf, None), (8, 3.0, 3.0), (8, math.inf, 2.0)])
def test_no_direction_in_space_is_shown_to_cost_more(d, q, r):
    # 6.5 standard errors of each of 32 means: false alarms below 1e-8
    sure, best = worst_in_space(d, q, r, 1.0, runs=6_000)
    assert sure <= 1
    assert best > 0.7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "q", "r", "releases"),
    [(8, math.inf, None, 1), (50, 4.0, 4.0, 1), (200, 2.05, 2.05, 1), (1000, math.inf, None, 1), (8, 3.0, 3.0, 10),
     (20, math.inf, None, 10)],
)  # fmt: skip
@pytest.mark.parametrize("z", [1.0, 4.0])
def test_nor_in_many_draws_and_composed(d, q, r, releases, z):
    runs = 4_000_000 // (d * releases)
    sure, best = worst_in_space(d, q, r, z, runs=min(runs, 100_000), releases=releases, seed=1)
    assert sure <= 1
    assert best > 0.7
