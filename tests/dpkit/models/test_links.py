"""Links against numerical differentiation and integration, and their constants against a grid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpkit.models import get_link

NAMES = ("linear", "logistic", "poisson", "probit")
points = st.floats(-6.0, 6.0)


@given(name=st.sampled_from(NAMES), z=points)
def test_the_integral_and_the_mean_differentiate_to_the_mean_and_the_derivative(name, z):
    link, h = get_link(name), 1e-5
    scale = 1.0 + abs(float(link.integral(z)))
    assert (link.integral(z + h) - link.integral(z - h)) / (2 * h) == pytest.approx(link.mean(z), abs=1e-9 * scale / h)
    assert (link.mean(z + h) - link.mean(z - h)) / (2 * h) == pytest.approx(link.derivative(z), rel=1e-5, abs=1e-7)


@given(name=st.sampled_from(NAMES), S=st.floats(0.1, 6.0))
def test_constants_bound_the_link_on_its_interval(name, S):
    link, z, h = get_link(name), np.linspace(-S, S, 401), 1e-4
    slope = np.broadcast_to(link.derivative(z), z.shape)
    low, high = link.derivative_range(S)
    assert slope.min() == pytest.approx(low, rel=1e-9)
    assert slope.max() == pytest.approx(high, rel=1e-9)
    curvature = np.abs(link.derivative(z + h) - link.derivative(z - h)) / (2 * h)
    assert (curvature <= link.self_concordance(S) * slope + 1e-6 * high).all()
    assert link.kappa(S) == pytest.approx(1 / low)
    assert link.kappa_star(S) == pytest.approx(1 / high)


def test_links_work_elementwise_on_arrays_and_on_floats():
    for name in NAMES:
        link, z = get_link(name), np.array([[-1.0, 0.0], [0.5, 2.0]])
        for function in (link.mean, link.derivative, link.integral):
            assert np.shape(function(z)) == z.shape
            assert float(function(0.5)) == function(z)[1, 0]
