"""Bounds on three laws of Laplace noise: against triples, and against what they stand for."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.accountants.laplace_cells import curves
from accounting.accountants.laplace_triples import Arms, Weights, apart, loose, opposed, tied
from accounting.accountants.replaced_laplace import deviation


def cells(*points):
    """What noise around points of a line has between them, beyond them and halfway: what is seen of it, no more."""
    ends = np.unique(np.round([0.0, *points], 9))
    edges = np.unique(np.concatenate([np.linspace(a, b, 7) for a, b in itertools.pairwise(ends)] or [ends]))
    found = []
    for point in points:
        tail = 0.5 * np.exp(-np.abs(edges - point))
        found.append(np.diff(np.where(edges < point, tail, 1 - tail), prepend=0.0, append=1.0))
    return found


def triple(s, r, other, parts=(1.0, 1.0)):
    """R's, S's and S′'s masses; where they move: (with S′, with R), (with S, with S′), (with S, with R).

    Two coordinates move S and R, of which the first has these ``parts`` of what S and R have there.
    """
    found, (u, v) = np.ones((3, 1)), parts
    both = (-v * r[0], u * s[1], 0.0), ((v - 1) * r[0], (1 - u) * s[1], 0.0)
    for points in ((0.0, s[0], -other[0]), *both, (r[1], 0.0, -other[1])):
        found = np.array([np.outer(x, y).ravel() for x, y in zip(found, cells(*points), strict=True)])
    return found


def most(weights, laws):
    """max over A of w·x_S − a·x_R − b·x_S′."""
    absent, one, other = laws
    return np.array([np.maximum(w * one - a * absent - b * other, 0.0).sum() for w, a, b in zip(*weights, strict=True)])


share = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0))
weight = st.floats(0.02, 1.0)


def split(whole, part):
    return whole * part, whole * (1 - part)


@settings(max_examples=30, deadline=None)
@given(
    arms=st.tuples(*[st.floats(0.05, 2.0)] * 3),
    parts=st.tuples(share, share, share),
    weights=st.tuples(weight, weight, weight),
)
def test_no_triple_passes_the_theorem(arms, parts, weights):
    s, r, other = (split(*of) for of in zip(arms, parts, strict=True))
    weights = Weights(*(np.array([x]) for x in weights))
    found = most(weights, triple(s, r, other)) - 1e-12
    assert found <= opposed(weights, s, sum(other), r[0], r[1])
    assert found <= opposed(weights, s, sum(other), sum(r))
    assert found <= apart(weights, sum(s), other, r)
    near, far = split(r[0], parts[2])
    halves = most(weights, triple(s, r, other, (parts[1], parts[2]))) - 1e-12
    assert halves <= loose(weights, (s[0], *split(s[1], parts[1])), sum(other), (near, far, r[1]))
    # S and S′ exchanged
    mirrored = most(weights, triple(s, r, other)[[0, 2, 1]]) - 1e-12
    assert mirrored <= tied(weights, sum(other), max(s[0], r[1]), (s[1], 0.0), (r[0], 0.0))


@settings(max_examples=15, deadline=None)
@given(arms=st.tuples(*[st.floats(0.05, 1.5)] * 5), weights=st.tuples(weight, weight, weight))
def test_the_two_means_are_what_they_say(arms, weights):
    w, a, b = weights
    edges = np.concatenate([[-40.0], np.linspace(-1.6, 1.6, 129), [40.0]])

    def law(at):
        tail = 0.5 * np.exp(-np.abs(edges - at))
        return np.diff(np.where(edges < at, tail, 1 - tail))

    def mean(of, against, more):
        # a cell of the first coordinate in the rows, and of the others, R's and S′'s, in the columns
        return np.maximum(w * of - a * against - b * more, 0.0).sum()

    one, two, other, near, alone = arms
    weights = Weights(*(np.array([x]) for x in weights))
    middle = law(0.0)
    tau, sigma, flat = np.outer(law(one), law(two)), np.outer(law(-other), middle), np.outer(middle, law(-near))
    assert opposed(weights, (one, two), other, near)[0] == pytest.approx(mean(tau, flat, sigma), abs=4e-3 * w)
    tau, sigma, flat = np.outer(law(one), middle), np.outer(law(-other), law(two)), np.outer(law(-near), middle)
    assert apart(weights, one, (other, two), (near, 0.0))[0] == pytest.approx(mean(tau, flat, sigma), abs=4e-3 * w)
    tau, sigma, flat = np.outer(law(one), middle), np.outer(law(-other), middle), np.outer(middle, law(alone))
    assert opposed(weights, (one, 0.0), other, 0.0, alone)[0] == pytest.approx(mean(tau, flat, sigma), abs=4e-3 * w)


@settings(max_examples=30, deadline=None)
@given(
    arms=st.tuples(*[st.floats(0.01, 1.0)] * 5),
    weights=st.tuples(weight, weight, weight),
    size=st.floats(0.1, 3),
)
def check_that_arms_grow_and_shrink_as_is_proved(arms, weights, size):
    one, two, other, near, alone = (size * x for x in arms)
    w, a, b = weights
    d = 0.004

    def best(one, two, other, near, alone):
        weights = Weights(*(np.array([x]) for x in (w, a, b)))
        return float(opposed(weights, (one, two), other, near, alone)[0])

    # what pieces of densities may add
    least = best(one, two, other, near, alone) - 1e-3 * (1 + size**2) * w * d
    assert best(one + d, two, other, near, alone) >= least
    assert best(one + d, two, other - d, near, alone) >= least
    assert best(one, two + d, other, near - d, alone) >= least
    limit = (one + two + math.log(w / (a * math.exp(-near - alone) + b * math.exp(-other)))) / 2
    for at_least, (more, less) in ((one >= limit, (d, 0.0)), (two >= limit, (0.0, d))):
        if at_least:
            assert best(one + more - less, two + less - more, other, near, alone) >= least
            assert best(one + more, two + less, other - d, near - d, alone) >= least
            assert best(one + more, two + less, other - d, near, alone - d) >= least


def test_arms_grow_and_shrink_as_is_proved(monkeypatch):
    for name, pieces in (("_PIECES", (60, 0.15)), ("_FEW", (60, 0.15))):
        monkeypatch.setattr(f"accounting.accountants.laplace_triples.{name}", pieces)
    check_that_arms_grow_and_shrink_as_is_proved()


def placed(theta, share_of_t, long):
    """s, r and s′."""
    t = theta * share_of_t
    return (theta - t if point == long else t for point in ("S", "R", "S′"))


@settings(max_examples=30, deadline=None)
@given(
    ends=st.tuples(st.floats(0.0, 0.45), st.floats(0.01, 0.05)),
    place=share,
    long=st.sampled_from(["S", "S′", "R"]),
    of=st.tuples(share, share, share),
    widths=st.tuples(st.floats(0.01, 0.5), st.floats(0.01, 0.5)),
    rate=st.sampled_from([0.01, 0.5]),
)
def test_nothing_in_a_cell_passes_what_is_said_of_it(ends, place, long, of, widths, rate):
    theta, (start, width) = 2.5, ends
    s, r, other = placed(theta, start + place * width, long)
    arms = Arms(theta, theta * start, theta * (start + width), long)
    c = 1 + rate * np.array([0.0, 0.05, 0.5, 2.0, 5.0])
    weights = Weights(np.full(c.size, rate), (1 - rate) * (c - 1), rate * c)
    (low, high), (near, far), (least, largest) = (
        (max(0.0, x - x * wide), min(1.0, x + (1 - x) * wide)) for x, wide in zip(of, (*widths, 0.3), strict=True)
    )
    # as much as pieces of densities may differ
    slack = 1e-3 * rate
    assert np.all(
        opposed(weights, split(s, of[0]), other, *split(r, of[1]))
        <= arms.opposed(weights, (low, high), (near, far)) + slack
    )
    assert np.all(opposed(weights, split(s, of[0]), other, r) <= arms.opposed(weights, (low, high)) + slack)
    found = arms.apart(weights, (largest, 1 - least), (far, 1 - near))
    assert np.all(apart(weights, s, split(other, of[2]), split(r, of[1])) <= found + slack)


@settings(max_examples=60, deadline=None)
@given(
    place=share,
    long=st.sampled_from(["S", "S′", "R"]),
    of=st.tuples(*[st.sampled_from([0.0, 0.02])] * 2, st.sampled_from([0.0, 1.0])),
    parts=st.tuples(*[st.sampled_from([0.0, 0.5, 0.979, 0.981, 1.0])] * 2),
    rate=st.sampled_from([0.01, 0.5]),
)
def test_what_is_tied_and_what_is_not(place, long, of, parts, rate):
    theta, start, width, rest = 4.0, 0.49, 0.001, 0.02
    s, r, other = placed(theta, start + place * width, long)
    arms = Arms(theta, theta * start, theta * (start + width), long)
    laws = triple(split(s, of[0]), split(r, 1 - of[1]), split(other, of[2]), parts)
    k = rate * np.array([0.0, 0.1, 1.0, 8.0, 12.0, 20.0])
    weights = Weights(np.full(k.size, rate), (1 - rate) * k, rate * (1 + k))
    if min(parts) >= 1 - rest:
        found = arms.mirrored().tied(weights, 0.02, rest)
        assert np.all(most(weights, laws[[0, 2, 1]]) <= found)
    elif parts[1] >= 0.5:
        least = arms.opposed(weights, (0.0, 0.02))
        assert np.all(most(weights, laws) <= arms.loose(weights, (0.0, 0.02), 0.02, rest, least))


@pytest.mark.parametrize(("theta", "rate"), [(3.4, 0.02), (1.4, 0.3)])
def test_every_triple_has_a_curve_that_is_worse(theta, rate):
    k, pairs = curves(theta, rate, deviation(theta, rate))
    some = np.arange(0, k.size, 4)
    c = 1 + k[some]
    up = Weights(np.full(c.size, rate), (1 - rate) * (c - 1), rate * c)
    down = Weights(rate / c, (1 - rate) * (c - 1) / c, np.full(c.size, rate))
    above, below = (np.array([pair[side][some] for pair in pairs]) for side in (0, 1))
    images = np.concatenate([above, below * c]), np.concatenate([below, above / c])
    rng = np.random.default_rng(1)
    for long in 40 * ("S", "S′", "R"):
        parts = np.clip(rng.uniform(-0.4, 1.4, 3), 0, 1)
        arms = placed(theta, min(0.5, rng.uniform(0, 0.8)), long)
        halves = np.clip(rng.uniform(0.5, 1.5, 2), 0, 1)
        laws = triple(*(split(*of) for of in zip(arms, parts, strict=True)), halves)
        found = most(up, laws), most(down, laws[[0, 2, 1]])
        passed = np.all((images[0] >= found[0] - 1e-12) & (images[1] >= found[1] - 1e-12), axis=1)
        assert passed.any()
