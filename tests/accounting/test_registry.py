"""Which tightenings there are, what they gain, and that a total that none applies to loads none."""

import json
import subprocess
import sys
from collections import Counter

import pytest

import accounting
from accounting import FixedSizeSubsampled, Gaussian, NoisyMax, epsilon
from accounting.adaptive.registry import TIGHTENINGS
from accounting.compose import tightenings
from accounting.compose.pairs import alternatives
from accounting.loss.gaussian import GaussianPair
from accounting.loss.gumbel_maxima import SpanPair
from accounting.loss.sampled import ReplacedPair, SubsampledPair

# by what share ε at δ = 1e-6 of a typical release is larger without a tightening
GAINS = {
    "games of choices": ("20 * NoisyMax(0.1, 'laplace')", 0.56),
    "batches of a fixed size": ("100 * FixedSizeSubsampled(Gaussian(2.0), 10, 100)", 0.07),
    "one long game of choices": ("10_000 * PoissonSubsampled(NoisyMax(8.0), 0.001)", 0.09),
    "moments of the best of runs": ("10 * BestOfRuns(Gaussian(8.0), stop=0.1)", 0.22),
}


def made(text):
    return eval(text, {name: getattr(accounting, name) for name in accounting.__all__})


@pytest.mark.slow
@pytest.mark.parametrize("one", TIGHTENINGS, ids=lambda one: one.name)
def test_each_gains_what_it_says_on_its_typical_release(one, monkeypatch):
    example, gains = GAINS[one.name]
    release = made(example)
    cost = epsilon(release, 1e-6)
    monkeypatch.setattr(tightenings, "registered", [other for other in TIGHTENINGS if other != one])
    assert epsilon(release, 1e-6) / cost - 1 == pytest.approx(gains, abs=0.01)
    assert gains > 0.05


def test_they_apply_by_the_exact_types_of_pairs():
    class Own(SpanPair):
        """Somebody else's."""

    def applying(pair):
        return [one.name for one in TIGHTENINGS if one.applies([pair])]

    assert applying(SpanPair(0.1)) == applying(SubsampledPair(SpanPair(0.1), 0.1, True)) == ["games of choices"]
    assert applying(ReplacedPair(GaussianPair(1.0), 0.1, True)) == ["batches of a fixed size"]
    assert applying(GaussianPair(1.0)) == applying(SubsampledPair(GaussianPair(1.0), 0.1, True)) == []
    assert applying(Own(0.1)) == applying(SubsampledPair(Own(0.1), 0.1, True)) == []
    pairs = Counter({Own(0.1): 9})
    assert tightenings.replaced(pairs) == pairs


def test_each_is_asked_in_order():
    (parts,) = alternatives(9 * FixedSizeSubsampled(Gaussian(1.0), 1, 9) + 9 * NoisyMax(0.1))
    offers = tightenings.in_place(parts)
    assert [offer.__module__.split(".")[-2] for offer in offers] == ["fixed_batches", "choices"]


def loaded(statement):
    code = f"{statement}\nimport json, sys\nprint(json.dumps([m for m in sys.modules if m.startswith('accounting.')]))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout))


@pytest.mark.thorough
def test_plain_gradient_descent_loads_no_adaptive_module():
    names = "from accounting import *\n"
    plain = loaded(f"{names}epsilon(1000 * PoissonSubsampled(Gaussian(1.1), 0.01), 1e-6)")
    assert {name for name in plain if name.startswith("accounting.adaptive.")} == {"accounting.adaptive.registry"}
    assert "accounting.compose.convolution" in plain
    assert not any(name.startswith("accounting.lower.") for name in plain)
    played = loaded(f"{names}epsilon(9 * NoisyMax(0.1), 1e-6)")
    assert "accounting.adaptive.engine" in played
    assert not any(name.startswith("accounting.adaptive.fixed_batches") for name in played)
