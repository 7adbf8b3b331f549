"""PLD as a value: what it costs, how it composes, what it proves of tests, and what is stored and handed over."""

import math
import sys
import types

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import accounting
from accounting import (
    PLD,
    ApproxDP,
    BestOfRuns,
    DiscreteGaussian,
    Gaussian,
    Laplace,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    RandomAllocated,
    RandomizedResponse,
    Release,
    ShuffledBinomial,
    UnsupportedRelease,
    delta,
    epsilon,
    parallel,
)
from accounting.compose.many_deltas import deltas
from accounting.compose.pairs import alternatives
from accounting.compose.pld import answers
from accounting.loss import check_pair
from accounting.loss.grid import GridPair

KINDS = {
    "one": Laplace(2.0),
    "Gaussians": 30 * Gaussian(10.0),
    "a sum": 12 * Laplace(5.0) + Gaussian(3.0) + PureDP(0.1),
    "samples": 300 * PoissonSubsampled(Gaussian(1.1), 0.01),
    "parallel": 3 * parallel(Laplace(4.0), Gaussian(5.0)) + Laplace(9.0),
    "failures": ApproxDP(0.2, 1e-8) + 5 * DiscreteGaussian(9.0, shift=1),
    "nothing": 0 * Gaussian(1.0),
    "counts": 2 * ShuffledBinomial(2000, shift_norm=2.0, coordinates=4) + Laplace(9.0, adjacency="replace"),
    "allocated": 3 * RandomAllocated(Laplace(1.0), 9, 2),
    "swapped": 20 * PoissonSubsampled(Gaussian(3.0), 0.1, adjacency="replace"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_costs_what_the_accountant_says(kind):
    held = PLD.of(KINDS[kind])
    assert held.epsilon(1e-6) == epsilon(KINDS[kind], 1e-6, accountant="pld")
    assert held.delta(0.4) == delta(KINDS[kind], 0.4, accountant="pld")


@pytest.mark.parametrize("failing", [0.5, 0.25, 1e-3])
def test_where_failures_are_all_of_delta_it_costs_what_the_accountant_says(failing):
    """Also a little beside that δ, where next to nothing is left for what does not fail."""
    may_fail = ApproxDP(0.3, failing)
    for level in failing * np.array([1 - 1e-9, 1.0, 1 + 1e-9]):
        assert PLD.of(may_fail).epsilon(level) == epsilon(may_fail, level, accountant="pld") >= 0.299


def test_choices_that_follow_each_other_are_played():
    choices = 40 * NoisyMax(0.1)
    assert PLD.of(choices).epsilon(1e-6) == epsilon(choices, 1e-6, accountant="pld")


def test_it_composes_as_descriptions_do():
    a, b = Laplace(5.0), PoissonSubsampled(Gaussian(2.0), 0.1)
    assert 3 * PLD.of(a) + PLD.of(b) * 2 == PLD.of(3 * a, 2 * b) == PLD.of(2 * b + 3 * a)
    assert hash(PLD.of(a, b)) == hash(PLD.of(b, a))
    assert PLD.of(a) != PLD.of(b)
    assert repr(PLD.of(a)) == "PLD.of(Laplace(noise_multiplier=5.0))"
    with pytest.raises(TypeError):
        PLD.of(a) + a
    with pytest.raises(ValueError, match="count"):
        -1 * PLD.of(a)
    with pytest.raises(TypeError, match="at least one"):
        PLD.of()


def test_what_has_no_pair_is_refused_at_once():
    with pytest.raises(UnsupportedRelease, match="PLD accountant"):
        PLD.of(accounting.ObjectivePerturbation(5.0, curvature=0.1))
    for wrong in ({"delta": 0.0}, {"delta": 1.0}):
        with pytest.raises(ValueError, match="delta"):
            PLD.of(Laplace(1.0)).epsilon(**wrong)
    with pytest.raises(ValueError, match="epsilon"):
        PLD.of(Laplace(1.0)).delta(-1.0)
    with pytest.raises(ValueError, match="alphas"):
        PLD.of(Laplace(1.0)).trade_off([0.5, 1.5])


# ----------------------------------------------------------------------------------------------------- trade-off curves


def test_trade_off_curves_touch_the_exact_ones_from_below():
    """Gaussian noise: Φ(Φ⁻¹(1 − α) − μ). Laplace noise: 1 − e^θ·α, e^(−θ)/(4α), and the mirror of the first."""
    alphas = np.array([[1e-4, 0.01, 0.1], [0.3, 0.5, 0.9]])
    found = PLD.of(100 * Gaussian(10.0)).trade_off(alphas)
    exact = ndtr(ndtri(1 - alphas) - 1)
    assert found.shape == exact.shape
    assert np.all(found <= exact)
    assert found == pytest.approx(exact, rel=1e-3)
    a, θ = alphas[1], 1.0
    laplace = np.where(a < math.exp(-θ) / 2, 1 - math.exp(θ) * a, np.where(a <= 0.5, math.exp(-θ) / (4 * a), 0.0))
    laplace = np.where(a > 0.5, math.exp(-θ) * (1 - a), laplace)
    found = PLD.of(Laplace(1 / θ)).trade_off(a)
    assert np.all(found <= laplace + 1e-12)
    assert found == pytest.approx(laplace, rel=1e-3)


def test_trade_off_curves_of_sums_are_those_of_the_whole_and_failures_are_told():
    alphas = np.linspace(0.0, 1.0, 21)
    whole = PLD.of(9 * DiscreteGaussian(30.0, shift=3))
    assert whole.trade_off(alphas) == pytest.approx(ndtr(ndtri(1 - alphas) - 0.1), abs=2e-3)
    failing = PLD.of(ApproxDP(0.0, 0.25))
    assert failing.trade_off(alphas) == pytest.approx(np.maximum(0, 0.75 - alphas), abs=1e-9)
    assert PLD.of(0 * Gaussian(1.0)).trade_off(alphas) == pytest.approx(1 - alphas)


def test_the_curve_of_parallel_branches_is_below_that_of_each():
    """Neither branch is the worst at every α."""
    alphas, branches = np.linspace(0.0, 1.0, 41), (Laplace(1.0), Gaussian(1.0))
    whole, *each = (PLD.of(one).trade_off(alphas) for one in (parallel(*branches), *branches))
    assert np.any(each[0] < each[1] - 1e-3)
    assert np.any(each[1] < each[0] - 1e-3)
    assert whole == pytest.approx(np.minimum(*each), abs=2e-3)


@pytest.mark.thorough
def test_it_is_drawn_and_shown():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = PLD.of(Gaussian(2.0)).plot()
    _, curve = axes.get_lines()
    alpha, beta = curve.get_data()
    assert beta == pytest.approx(PLD.of(Gaussian(2.0)).trade_off(alpha))
    assert PLD.of(Laplace(2.0)).plot(axes) is axes
    matplotlib.pyplot.close("all")
    shown = PLD.of(Gaussian(2.0))._repr_html_()
    assert f"{epsilon(Gaussian(2.0), 1e-6):.6g}" in shown


# ---------------------------------------------------------------------------------------------------- stored and shared


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_back_costs_hardly_more_alone_and_composed(kind, tmp_path):
    held = PLD.of(KINDS[kind])
    held.save(tmp_path / "loss.npz")
    found = PLD.load(tmp_path / "loss.npz")
    assert found == PLD.load(tmp_path / "loss.npz")
    for one, other in (
        (found, held),
        (2 * found, 2 * held),
        (found + PLD.of(Laplace(3.0)), held + PLD.of(Laplace(3.0))),
    ):
        for level in (1e-3, 1e-6):
            assert one.epsilon(level) == pytest.approx(other.epsilon(level), rel=1e-3, abs=1e-6)
            assert one.epsilon(level) >= other.epsilon(level) * (1 - 5e-5)
    for side in found._grids:
        for pair in side:
            check_pair(pair)


@pytest.mark.parametrize(
    "release",
    [Laplace(2.0), 30 * Gaussian(10.0), PoissonSubsampled(Gaussian(1.1), 0.01), 3 * RandomizedResponse(0.4, 9)],
    ids=repr,
)
def test_many_of_what_is_read_back_cost_hardly_more(release, tmp_path):
    """Also what a loss below 0 takes off the others is stored, and Q keeps its mass."""
    held = PLD.of(release)
    held.save(tmp_path / "loss.npz")
    found = PLD.load(tmp_path / "loss.npz")
    assert (100 * found).epsilon(1e-6) == pytest.approx((100 * held).epsilon(1e-6), rel=1e-5)
    for pair in (pair for side in found._grids for pair in side):
        losses = pair.step * (pair.first + np.arange(pair.mass.size))
        assert pair.mass @ np.exp(-losses) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.thorough
def test_a_sum_of_very_many_is_read_back(tmp_path):
    """What rounding errors of its transform may hide is more than nothing, and all together is still 1."""
    held = PLD.of(10**6 * Laplace(2000.0))
    held.save(tmp_path / "loss.npz")
    found = PLD.load(tmp_path / "loss.npz")
    assert held.epsilon(1e-5) <= found.epsilon(1e-5) <= held.epsilon(1e-5) * (1 + 3e-3)


def test_what_loses_nothing_but_by_failing_is_read_back_as_that(tmp_path):
    held = PLD.of(ApproxDP(0.0, 0.25))
    for _ in range(3):  # what was read is written again
        held.save(tmp_path / "loss.npz")
        held = PLD.load(tmp_path / "loss.npz")
        assert (held.epsilon(0.2), held.epsilon(0.26)) == (math.inf, 0.0)
        assert held.delta(1.0) == pytest.approx(0.25, rel=1e-9)


@pytest.mark.parametrize("kind", ["one", "failures", "nothing"])
def test_what_is_written_again_and_again_stays_what_it_is(kind, tmp_path):
    held = PLD.of(KINDS[kind])
    costs = held.epsilon(1e-3), held.delta(0.1)
    for _ in range(2):
        held.save(tmp_path / "loss.npz")
        held = PLD.load(tmp_path / "loss.npz")
        assert (held.epsilon(1e-3), held.delta(0.1)) == pytest.approx(costs, rel=1e-3, abs=1e-12)


def test_what_is_read_back_may_not_be_sampled_nor_is_it_exact(tmp_path):
    PLD.of(5 * Laplace(3.0)).save(tmp_path / "loss.npz")
    stored = PLD.load(tmp_path / "loss.npz").release
    with pytest.raises(UnsupportedRelease, match="symmetric"):
        PLD.of(PoissonSubsampled(stored, 0.1))
    with pytest.warns(UserWarning, match="between 0 and"):
        accounting.bound(stored, 1e-6)
    assert epsilon(BestOfRuns(Laplace(9.0), stop=0.5) + stored, 1e-6) > epsilon(stored, 1e-6)


def test_a_file_of_another_format_is_refused(tmp_path):
    np.savez(tmp_path / "loss.npz", format=np.array(2))
    with pytest.raises(ValueError, match="format"):
        PLD.load(tmp_path / "loss.npz")


def test_what_a_file_lacks_of_a_loss_is_infinite(tmp_path):
    PLD.of(Laplace(2.0)).save(tmp_path / "loss.npz")
    with np.load(tmp_path / "loss.npz") as stored:
        kept = {name: stored[name].copy() for name in stored.files}
    for name in ("present_0", "absent_0"):
        kept[name][3] -= 5e-7
    np.savez(tmp_path / "loss.npz", **kept)
    assert PLD.load(tmp_path / "loss.npz").delta(0.51) == pytest.approx(5e-7, rel=1e-3)


def test_a_file_that_lacks_a_direction_is_refused(tmp_path):
    PLD.of(Laplace(2.0)).save(tmp_path / "loss.npz")
    with np.load(tmp_path / "loss.npz") as stored:
        kept = {name: stored[name] for name in stored.files if name != "absent_0"}
    np.savez(tmp_path / "loss.npz", **kept)
    with pytest.raises(ValueError, match="shorter"):
        PLD.load(tmp_path / "loss.npz")


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"step": 0.0}, "step"),
        ({"mass": [0.5, 0.4]}, "add up to 1"),
        ({"mass": [0.4, 0.6 - 5e-7]}, "add up to 1"),
        ({"mass": [1.2, -0.2]}, "≥ 0"),
        ({"mass": [[1.0]]}, "row"),
        ({"beyond": 1.5}, "beyond"),
    ],
)
def test_a_grid_is_checked(values, match):
    given = {"step": 0.1, "first": -1, "mass": [0.4, 0.6], "beyond": 0.0} | values
    with pytest.raises(ValueError, match=match):
        GridPair(given["step"], given["first"], np.array(given["mass"]), given["beyond"])


def test_grids_of_the_same_numbers_are_equal():
    one, same, other = (GridPair(0.1, -1, np.array(mass), 0.0) for mass in ([0.4, 0.6], [0.4, 0.6], [0.5, 0.5]))
    assert (one, hash(one)) == (same, hash(same))
    assert one != other
    with pytest.raises(ValueError, match="read-only"):
        one.mass[0] = 1.0


def test_the_worse_direction_of_what_is_handed_over_counts():
    mild, strong = (GridPair(0.1, 0, np.array([1 - high, high]), 0.0) for high in (0.3, 0.6))
    for one, other in ((mild, strong), (strong, mild)):
        assert PLD._of_grids([one], [other], 0.0).delta(0.05) == strong.delta(0.05) > mild.delta(0.05)


@pytest.mark.thorough
def test_other_software_says_the_same():
    distribution = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    for kind in ("one", "a sum", "samples", "failures"):
        held = PLD.of(KINDS[kind])
        theirs = held.to_dp_accounting()
        assert theirs.get_epsilon_for_delta(1e-6) == pytest.approx(held.epsilon(1e-6), rel=1e-3)
        assert PLD.from_dp_accounting(theirs).epsilon(1e-6) == pytest.approx(held.epsilon(1e-6), rel=1e-3)
    failing = PLD.of(ApproxDP(0.3, 0.25))
    assert failing.to_dp_accounting().get_delta_for_epsilon(0.0) == pytest.approx(failing.delta(0.0), rel=1e-3)
    theirs = distribution.from_gaussian_mechanism(1.1, sampling_prob=0.01).self_compose(300)
    ours = PLD.from_dp_accounting(theirs)
    assert ours.epsilon(1e-6) == pytest.approx(theirs.get_epsilon_for_delta(1e-6), rel=1e-4)
    both = ours + PLD.of(Laplace(3.0))
    assert both.epsilon(1e-6) == pytest.approx(epsilon(KINDS["samples"] + Laplace(3.0), 1e-6), rel=1e-3)
    with pytest.raises(ValueError, match="pessimistic"):
        PLD.from_dp_accounting(distribution.from_laplace_mechanism(1.0, pessimistic_estimate=False))


class Mass:
    """What dp-accounting keeps of a loss in one direction: losses that are multiples of a step, rounded up."""

    def __init__(self, step, first, probabilities, infinite, pessimistic):
        self._discretization, self._lower_loss, self._probs = step, first, np.asarray(probabilities)
        self._infinity_mass, self._pessimistic_estimate = infinite, pessimistic

    def to_dense_pmf(self):
        return self


class Distribution:
    def __init__(self, remove, add=None):
        self._pmf_remove, self._pmf_add = remove, remove if add is None else add


@pytest.fixture
def other_software(monkeypatch):
    """As much of dp-accounting as is called, where it is not installed."""
    names = "dp_accounting", "dp_accounting.pld"
    modules = {name: types.ModuleType(name) for name in names}
    modules[names[1]].pld_pmf = types.SimpleNamespace(DensePLDPmf=Mass)
    modules[names[1]].privacy_loss_distribution = types.SimpleNamespace(PrivacyLossDistribution=Distribution)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("kind", ["one", "a sum", "failures", "nothing", "allocated"])
def test_what_is_handed_over_and_back_costs_what_it_did(kind, other_software):
    held = PLD.of(KINDS[kind])
    theirs = held.to_dp_accounting()
    for pmf in (theirs._pmf_remove, theirs._pmf_add):
        assert pmf._pessimistic_estimate
        assert pmf._probs.sum() + pmf._infinity_mass == pytest.approx(1.0, abs=1e-8)
        losses = pmf._discretization * (pmf._lower_loss + np.arange(pmf._probs.size))
        for at in (0.1, 1.0):
            said = pmf._infinity_mass + float(pmf._probs @ np.maximum(-np.expm1(np.minimum(at - losses, 0.0)), 0.0))
            assert said <= held.delta(at) * (1 + 1e-4) + 1e-9
    back = PLD.from_dp_accounting(theirs)
    for at in (0.1, 1.0):
        assert back.delta(at) == pytest.approx(held.delta(at), rel=1e-4, abs=1e-9)
    assert back.epsilon(1e-6) == pytest.approx(held.epsilon(1e-6), rel=1e-3, abs=1e-9)


def test_what_was_cut_off_as_infinite_is_counted_once(other_software):
    """And what a loss lacks is infinite, too; an estimate from the other side is no bound."""
    more = PLD.from_dp_accounting(Distribution(Mass(0.5, 0, [0.6, 0.3], 0.2, True)))
    assert more.delta(0.25) == pytest.approx(0.2 + 0.3 * -math.expm1(-0.25), rel=1e-9)
    less = PLD.from_dp_accounting(Distribution(Mass(0.5, 0, [0.5, 0.3], 0.1, True)))
    assert less.delta(0.25) == pytest.approx(0.2 + 0.3 * -math.expm1(-0.25), rel=1e-9)
    mild, strong = Mass(0.5, 0, [0.7, 0.3], 0.0, True), Mass(0.5, 0, [0.4, 0.6], 0.0, True)
    for one, other in ((mild, strong), (strong, mild)):
        found = PLD.from_dp_accounting(Distribution(one, other))
        assert found.delta(0.25) == pytest.approx(0.6 * -math.expm1(-0.25), rel=1e-9)
        with pytest.raises(ValueError, match="pessimistic"):
            PLD.from_dp_accounting(Distribution(one, Mass(0.5, 0, [0.4, 0.6], 0.0, False)))


def test_both_directions_are_handed_over_on_one_grid(other_software):
    """The wider one, with losses rounded up."""
    fine, wide = (GridPair(step, -1, np.array([0.4, 0.2, 0.4]), 0.0) for step in (0.1, 0.25))
    theirs = PLD._of_grids([fine], [wide], 0.0).to_dp_accounting()
    assert theirs._pmf_remove._discretization == theirs._pmf_add._discretization
    step = theirs._pmf_add._discretization
    held = PLD._of_grids([fine], [wide], 0.0)
    for at in (0.0, 0.05, 0.15):
        found = []
        for pmf in (theirs._pmf_remove, theirs._pmf_add):
            losses = step * (pmf._lower_loss + np.arange(pmf._probs.size))
            found.append(float(pmf._probs @ np.maximum(-np.expm1(np.minimum(at - losses, 0.0)), 0.0)))
        assert max(found) >= held.delta(at) * (1 - 1e-9)
        # by no more than one step
        assert max(found) <= held.delta(max(0.0, at - step)) + step


def test_without_other_software_it_says_what_is_missing(monkeypatch):
    for name in ("dp_accounting", "dp_accounting.pld", "matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"dpkit\[pld\]"):
        PLD.of(Laplace(1.0)).to_dp_accounting()
    with pytest.raises(ImportError, match="matplotlib"):
        PLD.of(Laplace(1.0)).plot()


def test_a_description_that_says_its_own_pair_is_held_as_any_other():
    own = type("Own", (Release,), {"pair": lambda self: Laplace(2.0).pair(), "__module__": "elsewhere"})
    assert PLD.of(3 * own()).epsilon(1e-6) == pytest.approx(PLD.of(3 * Laplace(2.0)).epsilon(1e-6))


def test_branches_of_which_none_is_the_worst_at_every_delta_are_not_handed_over_as_one_loss():
    with pytest.raises(UnsupportedRelease, match="must be a bound at every δ"):
        PLD.of(parallel(Laplace(2.0), Gaussian(2.0))).to_dp_accounting()


@pytest.mark.parametrize("level", [0.05, 1e-10])
@pytest.mark.parametrize("kind", ["sampled", "responses", "pure noise"])
def test_the_delta_of_many_epsilons_is_that_of_each(kind, level):
    release = {
        "sampled": 100 * PoissonSubsampled(Gaussian(1.0), 0.02),
        "responses": 3 * RandomizedResponse(1.0, 3),
        "pure noise": 20 * Laplace(3.0),
    }[kind]
    (parts, *_) = alternatives(release)
    ((_, total),) = answers(parts, [level])
    at = np.random.default_rng(1).uniform(0.0, 1.1 * float(total.losses[-1]), 40)
    # on the losses themselves, beyond them, and below the window
    at = np.concatenate([at, np.maximum(total.losses[[0, 1, -2, -1]], 0.0), [0.0, 1e9]])
    np.testing.assert_allclose(deltas(total, at), [total.delta(x) for x in at.tolist()], rtol=1e-10, atol=1e-300)
