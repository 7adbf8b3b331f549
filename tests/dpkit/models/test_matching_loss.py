"""The loss of a link: its slope is μ − y, and glm has the same of the links that it knows by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tabled import tabled

from dpkit.models import get_link, glm, matching_loss

ETA, Y = np.linspace(-4.0, 4.0, 33), np.linspace(0.0, 1.0, 33)


@given(name=st.sampled_from(["linear", "logistic", "poisson", "probit"]), eta=st.floats(-4.0, 4.0), y=st.floats(0, 1))
def test_the_slope_is_the_derivative(name, eta, y):
    loss, h = matching_loss(name, 4.0), 1e-5
    at = np.array([eta - h, eta + h])
    assert np.diff(loss.loss(at, np.full(2, y)))[0] / (2 * h) == pytest.approx(
        loss.slope(np.array([eta]), np.array([y]))[0], abs=1e-6
    )


@tabled("name", ["logistic", "poisson"])
def test_it_is_the_loss_of_that_name_to_the_last_bit(name):
    one, other = matching_loss(name, 4.0), glm(name)
    assert np.array_equal(one.loss(ETA, Y), other.loss(ETA, Y))
    assert np.array_equal(one.slope(ETA, Y), other.slope(ETA, Y))


def test_what_is_known_of_it_is_what_the_link_says():
    link = get_link("probit").at(0.1)
    loss = matching_loss(link, 2.0, clip=0.5)
    assert loss.name == "probit"
    assert loss.curvature_bound == link.lipschitz(2.0)
    assert loss.lipschitz(1.0) == loss.clip == 0.5
    with pytest.raises(ValueError, match="theta_bound must be positive"):
        matching_loss(link, 0.0)
    with pytest.raises(ValueError, match="clip must be positive"):
        matching_loss(link, 1.0, clip=0.0)
    with pytest.raises(ValueError, match="link must be one of"):
        matching_loss("cauchit", 1.0)
