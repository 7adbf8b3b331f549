"""Every public mechanism and private policy, recorded and replayed on neighbours (``tests/support/replayed.py``)."""

import math
import warnings

import numpy as np
import pytest
import recorded_outputs
from replayed import Tape, replay, share, wrapped
from replayed_programs import PROGRAMS, Program

import dpbandits
from accounting import Gaussian, Laplace, Ledger
from dpbandits import policies
from dpkit import continual, mechanisms, optimize, queries, randomness, samplers, shuffle
from dpkit.mechanisms import GaussianMechanism

# public names that draw no noise for data, and why
NO_MECHANISM = {
    continual: {
        "ContinualSum": "what all streams are",
        "Factorization": "a protocol",
        "inverse_root": "makes a Banded",
    },
    mechanisms: {},
    optimize: {
        "GLM": "an objective",
        "glm": "an objective",
        "Softmax": "an objective",
        "softmax": "an objective",
        "dp_sgd": "with torch: see test_replay_learning.py",
    },
    queries: {
        "Answer": "what a query returns",
        "Ask": "a part of a plan",
        "Marginals": "what marginals returns",
        "Plan": "what plan returns",
        "Report": "what a plan returns",
        "table": "names rows and reads none",
    },
    shuffle: {
        "Frequencies": "an estimate",
        "MessageError": "an error",
        "SumProtocol": "public constants",
        "Tally": "a message",
    },
}
# calibrations that take half a second and more, and what repeats another one's path
SLOW = {
    *(name for name in PROGRAMS if "symmetric" in name or "participations" in name or "honaker" in name),
    "optimize.noisy_sgd",
    "queries.plan",
    "queries.quantile",
    "shuffle.ShuffledRandomizedResponse",
    *(f"policies.{name}" for name in ("AdaPUCB", "DPSE", "ShuffleGLM", "ShuffleLinUCB", "ShuffleOnePassGLM")),
    *(name for name in PROGRAMS if "a learned range" in name),
    *(name for name in PROGRAMS if "another context" in name and "OnePass" not in name),
}


@pytest.fixture(scope="module", autouse=True)
def _on_tape():
    with wrapped(), pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        patch.setattr(recorded_outputs, "rng", lambda: None)  # the streams of ``recorded_outputs``, with secure noise
        yield


def charged(program):
    """With a ledger, whose entries are shown."""
    ledgers = []

    def run(data):
        ledgers.append(Ledger())
        shown = program.run(data, ledgers[-1])
        return shown, [(row.release, row.label, row.scope, row.unit, row.outcome) for row in ledgers[-1].rows()]

    return run, ledgers


def check(program, seed):
    """Replay it on one pair of neighbours: how much of what was paid is reached."""
    run, ledgers = charged(program)
    data, neighbour = program.worlds(np.random.default_rng(seed))
    found = replay(run, data, neighbour, absent=program.absent, seed=seed)
    assert found.problems == []
    assert found.shown[0][0] != "raised", found.shown[0]
    assert found.releases() > 0
    reached = share(found.reached(program.besides), ledgers[0].total) if program.priced else 0.0
    assert reached <= 1.0 + 1e-9
    return reached


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - SLOW))
def test_a_neighbour_asks_for_the_same_noise_and_shows_the_same(name):
    check(PROGRAMS[name], 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_many_neighbours_ask_for_the_same_noise_and_show_the_same(name):
    for seed in range(30):
        check(PROGRAMS[name], seed)


def test_what_is_paid_for_is_reached():
    """Or the distance that is measured could be any other one."""
    tight = [
        "mechanisms.LaplaceMechanism, clipped",
        "mechanisms.GaussianMechanism, clipped",
        "mechanisms.report_noisy_max, gumbel noise, 7 scores",
        "continual.BufferedToeplitz",
        "queries.count",
        "queries.top_k",
        "policies.PrivateArms",
        "policies.StandingPrivateGLM",
    ]
    for name in tight:
        assert max(check(PROGRAMS[name], seed) for seed in (0, 1)) > 0.99


@pytest.mark.parametrize("module", NO_MECHANISM, ids=lambda module: module.__name__)
def test_no_public_mechanism_is_missing(module):
    room = module.__name__.rpartition(".")[2]
    played = {part for name in PROGRAMS if name.startswith(room) for part in name[len(room) + 1 :].split(", ")}
    assert set(module.__all__) - played == set(NO_MECHANISM[module])


def test_no_private_policy_is_missing():
    private = {
        name
        for name in policies.__all__
        if isinstance(kind := getattr(policies, name), type) and issubclass(kind, dpbandits.PrivatePolicy)
    }
    assert private == {name[9:] for name in PROGRAMS if name.startswith("policies.") and "," not in name}


REFUSED = [name for name in PROGRAMS if name.partition(".")[0] in ("mechanisms", "continual", "optimize", "shuffle")]


def spoiled(data, value):
    """The same data with a first number that must be refused."""
    if isinstance(data, tuple):
        return spoiled(data[0], value), data[1]
    data = np.array(data, dtype=np.float64)
    data[(0,) * data.ndim] = value
    return data


@pytest.mark.parametrize("name", sorted(set(REFUSED) - SLOW))
def test_what_is_no_number_is_refused_alike(name):
    """Whatever else the data are: by the same type of error, with nothing drawn before it."""
    if "discrete" in name or "response" in name.lower():
        pytest.skip("takes whole numbers")
    run, _ = charged(PROGRAMS[name])
    data, neighbour = PROGRAMS[name].worlds(np.random.default_rng(3))
    found = replay(run, spoiled(data, math.nan), spoiled(neighbour, math.inf))
    assert [shown[:2] for shown in found.shown] == 2 * [("raised", "ValueError")]
    assert found.first.draws == found.second.draws == []


# ------------------------------------------------------------------------------------------ what is known to be broken


def draw(values, ledger, scale=2.0):
    """Sums over rows with noise for an L2 sensitivity of 1, and their entry."""
    ledger.spend(Gaussian(2.0))
    total = np.rint(np.asarray(values) * 2**20).astype(np.int64)
    return total + samplers.rounded_gaussian(scale * 2**20, total.shape, rng=randomness.secure())


def clip(X):
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]


def sound(X, ledger):
    return draw(clip(X).sum(axis=0), ledger)


def unclipped_sum(X, ledger):
    return draw(X.sum(axis=0), ledger)


def noise_before_clipping(X, ledger):
    noisy = draw(X.sum(axis=0), ledger)
    return noisy / max(1.0, np.linalg.norm(noisy))


def scale_from_the_data(X, ledger):
    return draw(clip(X).sum(axis=0), ledger, scale=2.0 * np.linalg.norm(X, axis=1).max())


def half_the_noise(X, ledger):
    return draw(clip(X).sum(axis=0), ledger, scale=1.0)


def another_draw_in_a_branch(X, ledger):
    if X[-1, 0] > 0:
        draw(np.zeros(2), ledger)
    return draw(clip(X).sum(axis=0), ledger)


def other_law_in_a_branch(X, ledger):
    ledger.spend(Laplace(2.0))
    sampler = samplers.rounded_laplace if X[-1, 0] > 0 else samplers.rounded_gaussian
    return np.zeros(2, np.int64) + sampler(2.0**20, 2, rng=randomness.secure())


def error_on_a_private_value(X, ledger):
    if np.linalg.norm(X[-1]) > 2:
        raise ValueError("the row is too long")
    return draw(clip(X).sum(axis=0), ledger)


def size_of_the_answer(X, ledger):
    return draw(clip(X).sum(axis=0), ledger)[: 1 + int(X[-1, 0] > 0)]


def rows_with_noise_of_their_own(X, ledger):
    return draw(clip(X)[X[:, 0] > 0], ledger)


def entry_from_the_data(X, ledger):
    ledger.spend(Gaussian(3.0 + X[-1, 0]))
    return sound(X, ledger)


def label_from_the_data(X, ledger):
    ledger.spend(Gaussian(3.0), label=f"{len(X[X[:, 0] > 0])} rows")
    return sound(X, ledger)


def number_of_clipped_rows(X, ledger):
    return sound(X, ledger), int((np.linalg.norm(X, axis=1) > 1).sum())


def low_digits_on_top(X, ledger):
    total = clip(X).sum(axis=0)
    return draw(total, ledger) / 2**20 + (total - np.rint(total * 2**20) / 2**20)


def noise_used_twice(X, ledger):
    ledger.spend(2 * Gaussian(2.0))
    total = np.rint(clip(X).sum(axis=0) * 2**20).astype(np.int64)
    noise = samplers.rounded_gaussian(2.0 * 2**20, 2, rng=randomness.secure())
    return total + noise, -total + noise


def noise_that_hides_nothing(X, ledger):
    draw(np.zeros(2), ledger)
    samplers.rounded_gaussian(2.0 * 2**20, 2, rng=randomness.secure())
    return np.rint(clip(X).sum(axis=0))


def mechanism_of_the_wrong_sensitivity(X, ledger):
    return GaussianMechanism(noise_multiplier=2.0, sensitivity=0.5, ledger=ledger).release(clip(X).sum(axis=0))


def floating_point_noise_of_the_wrong_scale(X, ledger):
    ledger.spend(Gaussian(2.0))
    return clip(X).sum(axis=0) + 0.5 * randomness.secure().standard_normal(2)


BROKEN = {
    unclipped_sum: "share",
    noise_before_clipping: "share",
    half_the_noise: "share",
    mechanism_of_the_wrong_sensitivity: "share",
    floating_point_noise_of_the_wrong_scale: "share",
    scale_from_the_data: "other noise was asked for: draw 0",
    another_draw_in_a_branch: "was not asked for again",
    other_law_in_a_branch: "other noise was asked for: draw 0",
    rows_with_noise_of_their_own: "other noise was asked for: draw 0",
    error_on_a_private_value: "other noise was asked for: draw 0: None",
    size_of_the_answer: "what is shown differs",
    entry_from_the_data: "what is shown differs",
    label_from_the_data: "what is shown differs",
    number_of_clipped_rows: "what is shown differs",
    low_digits_on_top: "what is shown differs",
    noise_used_twice: "hides 4 numbers",
    noise_that_hides_nothing: "hides nothing",
}
ROWS = np.random.default_rng(0).normal(size=(9, 2)) / 4
# the last row is there, long, and is missing; and is another one, so that nothing is seen of the number of rows
WITH, OTHER = np.vstack([ROWS, [[3.0, 4.0]]]), np.vstack([ROWS, [[0.0, 0.0]]])


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_what_is_broken_is_caught(broken):
    run, ledgers = charged(Program(broken, None))
    found = replay(run, WITH, OTHER)
    if BROKEN[broken] == "share":
        assert found.problems == []
        assert share(found.reached(), ledgers[0].total) > 1.9
    else:
        assert any(BROKEN[broken] in problem for problem in found.problems)
        assert broken is noise_that_hides_nothing or len(found.problems) <= 2


def test_noise_for_each_row_is_caught_where_a_row_is_missing():
    run, _ = charged(Program(lambda X, ledger: draw(clip(X), ledger), None))
    found = replay(run, WITH, WITH[:-1], absent=1)
    assert "other noise was asked for: draw 0" in found.problems[0]


def test_its_sound_twin_passes():
    run, ledgers = charged(Program(sound, None))
    found = replay(run, WITH, OTHER)
    assert found.problems == []
    assert 0.999 < share(found.reached(), ledgers[0].total) <= 1.0 + 1e-5  # rounded to 2⁻²⁰
    assert found.releases() == 2


def test_outside_of_a_replay_noise_is_noise():
    assert Tape.now is None
    values = samplers.rounded_gaussian(1e6, 50, rng=randomness.secure())
    assert type(values) is np.ndarray
    assert len(set(values.tolist())) > 40
