"""The attack on low-order bits (Mironov 2012): it breaks floating-point noise, and finds nothing in what is released.

One data set has a gradient of zero, its neighbour one of v in every coordinate. In floating point v + noise, where it
comes out smaller than v/2, is a multiple of the last digit of v/2, while noise alone is mostly no such multiple: an
event that has a probability of several percent on one side and none on the other, whatever ε is.
"""

import importlib
import math
from functools import partial

import numpy as np
import pytest

from accounting import Budget
from dpkit import optimize
from dpkit.geometry import LpBall, smat, svec
from dpkit.mechanisms import GaussianMechanism
from dpkit.optimize import glm

BUDGET = Budget(20.0, 0.1)  # little noise, so that the event is frequent
D = 100_000
ROW = np.full(D, 1.0 / math.sqrt(D))

RUNS = {
    "noisy_gradient_descent": {"steps": 1},
    "noisy_sgd": {"steps": 1, "batch": 2},
    "localized_mirror_descent": {"steps": 1, "constraint": LpBall(1.5, D, 1e3)},
    "noisy_stochastic_frank_wolfe": {},
    "phased_sgd": {},
    "implicit_gradient_descent": {"step_scale": 1e-9},
}


@pytest.fixture
def watch(monkeypatch):
    """The values that a module releases, before and after their noise; with exact=False that of floating point."""

    def start(name, **forced):
        seen = []

        class Watched(GaussianMechanism):
            def release(self, value):
                noisy = super().release(value)
                seen.append((np.array(value), np.array(noisy), self.noise_std(noisy.size)))
                return noisy

        module = importlib.import_module(getattr(optimize, name).__module__)
        monkeypatch.setattr(module, "GaussianMechanism", partial(Watched, **forced))
        return seen

    return start


def events(noisy, v):
    """How often the attacker says "noise alone"."""
    small = noisy[np.abs(noisy) < v / 2]
    return int(np.count_nonzero(np.remainder(small, np.spacing(v / 2))))


def first_releases(name, seen):
    """The first release of a run on rows with the gradients (0, 0) and of one on (0, v) or (v, v), n = 2."""
    for labels in ([0.0, 0.0], [9.0, 9.0]):
        more = {"constraint": LpBall(2, D, 1e3), **RUNS[name]}
        getattr(optimize, name)(glm("squared", clip=1.0), np.stack([ROW, ROW]), np.array(labels), budget=BUDGET, **more)
    half = len(seen) // 2
    (zero, alone, _), (value, both, _) = seen[0], seen[half]
    assert not zero.any()
    v = float(np.abs(value).max())
    assert np.allclose(np.abs(value), v, rtol=1e-2)
    return alone, both, v


@pytest.mark.parametrize("name", sorted(RUNS))
def test_low_order_bits_tell_nothing(name, watch):
    alone, both, v = first_releases(name, watch(name))
    assert events(alone, v) == events(both, v) == 0
    # all of it lies on one lattice, the same for both, which is no finer than a thousandth of the noise over √d
    step = min(float(np.abs(part[part != 0]).min()) for part in (alone, both))
    step = 2.0 ** math.floor(math.log2(step))
    while np.remainder(np.concatenate([alone, both]), step).any():
        step /= 2
    assert step > 2.0**-12 * float(alone.std()) / math.sqrt(D)


@pytest.mark.parametrize("name", sorted(RUNS))
def test_low_order_bits_give_floating_point_noise_away(name, watch):
    # at least 60 events are expected of 10⁵ draws, so that none at all has a probability below 1e-20
    alone, both, v = first_releases(name, watch(name, exact=False))
    assert events(alone, v) > 0
    assert events(both, v) == 0


@pytest.mark.parametrize("exact", [True, False])
def test_sufficient_statistics(exact, watch):
    # one row e_1 or none: the first entry of the matrix is 1 or 0. P(|noise| < ½, finer than 2⁻⁵³) is at least 0.1 for
    # each of 200 runs, so that none has it with probability below 1e-9
    seen = watch("sufficient_statistics", exact=exact)
    counts = []
    for X in ([[0.0, 0.0]], [[1.0, 0.0]]):
        seen.clear()
        for _ in range(200):
            optimize.sufficient_statistics(X, [0.0], constraint=LpBall(2, 2), budget=BUDGET, label_bound=1.0)
        counts.append(sum(events(noisy[:1], 1.0) for _, noisy, _ in seen))
    assert counts[1] == 0
    assert (counts[0] == 0) == exact


def test_sufficient_statistics_are_exact_sums():
    module = importlib.import_module(optimize.sufficient_statistics.__module__)
    rng = np.random.default_rng(0)
    U, c = np.trunc(rng.normal(size=(40, 5)) * 2.0**15), np.rint(rng.normal(size=40) * 2.0**15)
    pair = module._exact_pair(U, c)
    expected = np.concatenate([svec(U.T @ U), 0.9 * (U.T @ c)]) / 2.0**36
    assert np.abs(pair - expected).max() <= 0.5 * 2.0**-27 * (1 + 1e-6)
    assert not np.remainder(pair, 2.0**-27).any()
    np.testing.assert_allclose(smat(pair[:15]), U.T @ U / 2.0**36, atol=2.0**-27)


def test_objective_perturbation_releases_a_lattice_that_is_coarser_than_the_solver():
    released, steps = [], []
    for X in (np.zeros((1, 3)), np.full((1, 3), 0.5)):
        fit = optimize.objective_perturbation(
            glm("squared", clip=1.0), X, [1.0], constraint=LpBall(2, 3, 1e9), budget=BUDGET
        )
        released.append(fit.x)
        steps.append(fit.ridge)
    assert steps[0] == steps[1]  # and with it everything else that the lattice follows from
    # γ/Λ, the solver's error, is 1e-7 over the ridge; a lattice of 2r/1000/√3 or a little more
    step = 2.0 ** (math.floor(math.log2(2e-7 / steps[0] / math.sqrt(3))) - 11)
    for x in released:
        assert not np.remainder(x, step).any()


@pytest.mark.parametrize("exact", [True, False])
def test_dp_sgd(exact):
    torch = pytest.importorskip("torch")
    pytest.importorskip("opacus")
    from dpkit.torch.exact_sums import Whole, clipped_totals, lattice
    from dpkit.torch.private_optimizer import PrivateSteps

    weight, on = torch.nn.Parameter(torch.zeros(D)), lattice(1.0)
    mechanism = GaussianMechanism(noise_multiplier=0.3, sensitivity=1.0, adjacency="add_remove", exact=exact)
    found = []
    whole_release, release = mechanism.release_whole, mechanism.release_part

    def recorded(whole, unit, of):
        found.append((whole * unit, whole_release(whole, unit, of=of)))
        return found[-1][1]

    mechanism.release_whole = recorded
    mechanism.release_part = lambda value, of: found.append((value, release(value, of=of))) or found[-1][1]
    private = PrivateSteps(torch.optim.SGD([weight], lr=0.1), [weight], mechanism, on, batch=1, rate=0.5)
    for rows in (0, 1):
        gradients = torch.tensor(np.tile(9.0 * ROW, (rows, 1)), dtype=torch.float32)
        private.step(clipped_totals([Whole([gradients])], on)[0][0]())
        assert weight.grad is None or weight.grad.dtype == torch.float32
    (_, alone), (value, both) = (
        [np.concatenate(parts) for parts in zip(*some, strict=True)]
        for some in (found[: len(found) // 2], found[len(found) // 2 :])
    )
    v = float(value.max())
    assert abs(v - ROW[0]) < 1e-6
    assert events(both, v) == 0
    assert (events(alone, v) == 0) == exact  # of floating point at least 60 are expected


def test_dp_sgd_sums_whole_numbers():
    torch = pytest.importorskip("torch")
    from fractions import Fraction

    from dpkit.torch.exact_sums import Whole, clipped_totals, lattice

    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(30, 50)) * 10.0 ** rng.uniform(-20, 20, size=(30, 1))
    for clip in (0.3, 1.0, 1e-3, 7.7):
        on = lattice(clip)
        sums = [
            on.values(clipped_totals([Whole([torch.tensor(rows)])], on)[0][0]()[0].numpy())
            for rows in [*gradients[:, None], gradients, gradients[::-1].copy()]
        ]
        for single in sums[:30]:  # as real numbers
            assert sum(Fraction(float(x)) ** 2 for x in single) <= Fraction(clip) ** 2
        total = [sum(Fraction(float(x)) for x in column) for column in np.stack(sums[:30]).T]
        # whichever the order, it is the sum of what single rows give
        assert [Fraction(float(x)) for x in sums[30]] == total
        assert np.array_equal(sums[30], sums[31])


def test_a_poisson_sample_is_no_likelier_than_its_price():
    from fractions import Fraction

    from dpkit.training.rows import poisson_sample

    class Grid:
        """Every multiple of 2⁻⁵³ next to the rate."""

        def random(self, count):
            return (math.floor(rate * 2.0**53) + np.arange(-2, 3)[:count]) * 2.0**-53

    for rate in (0.3, 1e-3, 7 / 50, 2.0**-10, 1.0):
        below = math.floor(rate * 2.0**53) - 2 + len(poisson_sample(Grid(), 5, rate))
        assert Fraction(below, 2**53) <= Fraction(rate) < Fraction(below + 1, 2**53)
    assert len(poisson_sample(np.random.default_rng(0), 100, 1.0)) == 100


@pytest.mark.parametrize("unit", [2.0**-12, 2.0**-13, 2.0**-30, 2.0**-72])
def test_whole_numbers_are_released_as_the_numbers_they_stand_for(unit):
    # γ is 2⁻¹⁰: from the same source the same, but that a half is rounded up, and not to even
    given = {"noise_multiplier": 1.0, "sensitivity": 1.0, "granularity": 2.0**-10, "exact": True}
    one, other = (GaussianMechanism(**given, rng=np.random.default_rng(0)) for _ in range(2))
    whole = np.random.default_rng(1).integers(-(2**40), 2**40, 300)
    whole[:2] = -1, 1
    found = one.release_whole(whole.copy(), unit, of=300) * 2**10
    wanted = other.release_part(whole * unit, of=300) * 2**10
    half = (whole * unit * 2**10) % 1 == 0.5
    assert np.array_equal(found - wanted, half & (np.floor(whole * unit * 2**10) % 2 == 0))


@pytest.mark.parametrize(("unit", "exact"), [(2.0**-11, True), (2.0**-73, True), (2.0**-30, False)])
def test_whole_numbers_that_a_shift_does_not_round_are_refused(unit, exact):
    mechanism = GaussianMechanism(noise_multiplier=1.0, sensitivity=1.0, granularity=2.0**-10, exact=exact)
    with pytest.raises(ValueError, match="unit must be at most a quarter of the granularity"):
        mechanism.release_whole(np.zeros(2, np.int64), unit, of=4)


def test_no_whole_number_overflows_and_smaller_types_are_refused():
    # a neighbour 1 away may be one step away, where a sum that wraps is 2⁶² steps away
    given = {"noise_multiplier": 1.0, "sensitivity": 1.0, "granularity": 2.0**-10, "exact": True}
    ends = np.array([2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1])
    found = GaussianMechanism(**given, rng=np.random.default_rng(0)).release_whole(ends, 2.0**-12, of=4)
    assert np.abs(found * 2.0**-51 - [1, 1, -1, -1]).max() < 1e-9
    for kind in (np.int32, np.uint64):
        with pytest.raises(TypeError, match="whole must be an array of int64"):
            GaussianMechanism(**given).release_whole(np.full(2, 2**30, kind), 2.0**-12, of=2)


def test_parts_of_an_array_get_the_noise_of_the_whole():
    size = 4000
    whole = GaussianMechanism(noise_multiplier=1.0, sensitivity=1.0, rng=np.random.default_rng(0))
    parts = GaussianMechanism(noise_multiplier=1.0, sensitivity=1.0, rng=np.random.default_rng(0))
    found = [parts.release_part(part, of=size) for part in np.zeros((4, size // 4))]
    assert np.array_equal(np.concatenate(found), whole.release(np.zeros(size)))
    # on the lattice of the whole, whose step and scale allow for the rounding of all its entries
    exact = GaussianMechanism(noise_multiplier=1.0, sensitivity=1.0)
    granularity, _ = exact._lattice(size)
    assert granularity < exact._lattice(10)[0]
    part = exact.release_part(np.zeros(1000), of=size)
    assert not np.remainder(part, granularity).any()
    assert np.remainder(part, 2 * granularity).any()
    bounded = GaussianMechanism(noise_multiplier=1.0, sensitivity=1.0, norm_bound=1.0)
    with pytest.raises(ValueError, match="does not see the whole"):
        bounded.release_whole(np.zeros(2, np.int64), 2.0**-40, of=4)
    with pytest.raises(ValueError, match="does not see the whole"):
        bounded.release_part(np.zeros(2), of=4)
    # rounding would take values farther apart than the noise allows for
    with pytest.raises(ValueError, match="of must be the number of entries of the whole array, got a part of 5"):
        exact.release_part(np.zeros(5), of=4)
    with pytest.raises(ValueError, match="got a part of 5 and of=4"):
        exact.release_whole(np.zeros(5, np.int64), 2.0**-40, of=4)
