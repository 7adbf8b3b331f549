"""Every private policy runs on the secure source, which a user gets who says nothing, with every option that draws.

The source refuses distributions that it does not have, and simulations with a seeded generator do not notice.
"""

from __future__ import annotations

from inspect import signature

import numpy as np
import pytest
from private_policies import SMALL, offered, small

from dpbandits import PrivatePolicy, policies
from dpkit import randomness

# what changes which numbers are drawn, and by whom: choices, the noise of sums, replayed contexts
OPTIONS = (
    {"exploration": "inverse_gap"},
    {"discount": 0.95},
    {"release": "every_round"},
    {"sums": "tree"},
    {"algorithm": "DisjointPrivateGLM", "parameters": {"arms": 2, "first_batch": 4}},
    {"algorithm": "ShuffleOnePassGLM", "parameters": {"first_batch": 4}},
)


def takes(name: str, option: dict) -> bool:
    known = signature(getattr(policies, name)).parameters
    return set(option) <= set(known) and ("exploration" not in option or known["exploration"].annotation == EXPLORATION)


# a number, or "inverse_gap"
EXPLORATION = signature(policies.OnePassPrivateGLM).parameters["exploration"].annotation
CASES = [(name, {}) for name in SMALL] + [(name, option) for option in OPTIONS for name in SMALL if takes(name, option)]
# a prior, by which contexts are replayed in the first batch, too
CASES += [(name, {"prior": (np.zeros(3), 1.0)}) for name in ("DisjointPrivateGLM", "DisjointShuffleGLM")]


def test_all_private_policies_are_looked_at():
    private = {name for name in policies.__all__ if issubclass(getattr(policies, name), PrivatePolicy)}
    assert private == set(SMALL)
    assert len([name for name, option in CASES if "exploration" in option]) >= 4


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("name", "option"), CASES, ids=lambda value: value if isinstance(value, str) else "-".join(value) or "plain"
)
def test_forty_rounds_with_the_secure_source(name, option):
    policy = small(name, **option)
    assert not randomness.is_simulation(policy.rng)
    releases = []
    for t in range(40):
        turned = t % 2 == 0 and name != "StandingPrivateGLM"  # whose arms stay as they are
        decision = policy.select(offered(policy) * (-1.0 if turned else 1.0))
        policy.update(decision, float(t % 3 == 0))
        releases.append(policy.releases)
    assert len(set(releases)) >= 3  # none, one and two of them at least
    assert not policy.privacy().simulation
    assert not np.isnan(decision.scores).any()
