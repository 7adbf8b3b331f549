"""DP-SGD: what it charges, what it releases, what it refuses, and what an audit of it finds."""

import copy
import doctest
import importlib
import math
import re
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import white_box
from chi_square import fits
from interrupts import Interrupter
from scipy import stats
from tabled import tabled
from watched import refused

from accounting import (
    AdjacencyMismatch,
    Budget,
    BudgetExceeded,
    Gaussian,
    Ledger,
    PoissonSubsampled,
    RandomAllocated,
    audit,
    calibrate,
    epsilon,
    rdp,
)
from accounting.ledger import from_opacus
from dpkit.optimize import GLM, dp_sgd, glm

torch = pytest.importorskip("torch")
from listed import Listed  # noqa: E402

# Opacus takes seconds to import, in every process that collects tests: the two that call it import it themselves
pytestmark = pytest.mark.skipif(find_spec("opacus") is None, reason="dp_sgd needs Opacus")

nn = torch.nn
source_of = importlib.import_module("dpkit.torch.dp_sgd")
sums_of = importlib.import_module("dpkit.torch.exact_sums")

BUDGET = Budget(2.0, 1e-5, adjacency="add_remove")
# its gradient is −x, whatever θ is: the steps of a run are independent, alike releases of the sum of the rows
CONSTANT = GLM("linear", lambda eta, y: -eta, lambda eta, y: -np.ones_like(eta), 1.0, 0.0, clip=1.0)


def rows(n=40, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) / math.sqrt(d)
    return X, (X[:, 0] > 0).astype(float)


def network(d=3, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(d, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 1))


def loss(outputs, targets):
    return nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], targets)


def uncalibrated(monkeypatch, z):
    """Runs of this noise multiplier, whatever the budget is."""
    monkeypatch.setattr(source_of, "_noise_multiplier", lambda *asked: z)
    monkeypatch.setattr(source_of, "_epsilon", lambda cost, budget: math.nan)


def with_noise(monkeypatch, of):
    """Runs that draw noise of another multiplier than they say."""
    sound = source_of.GaussianMechanism
    monkeypatch.setattr(
        source_of,
        "GaussianMechanism",
        lambda noise_multiplier, **more: sound(noise_multiplier=of(noise_multiplier), **more),
    )


@pytest.fixture
def noiseless(monkeypatch):
    """Nearly no noise, and nothing is calibrated."""
    uncalibrated(monkeypatch, 10.0)
    with_noise(monkeypatch, lambda z: 1e-9)


def train(model=None, X=None, y=None, **more):
    """A short simulated run on 40 rows."""
    if X is None:
        X, y = rows()
    if model is None:
        model = network()
    defaults = {"budget": BUDGET, "epochs": 3, "rng": np.random.default_rng(7)}
    if isinstance(model, nn.Module):
        defaults |= {"loss": loss, "clip": 1.0}
    if more.get("budget", BUDGET).adjacency == "add_remove":
        defaults["public_rows"] = 40
    return dp_sgd(model, X, y, **(defaults | more))


MODELS = pytest.mark.parametrize("model", [network(), glm("logistic", clip=1.0)], ids=["module", "GLM"])


# ------------------------------------------------------------------------------------------------- cost


@MODELS
def test_every_epoch_is_reserved_and_the_sum_is_the_accountants_history(model):
    ledger = Ledger(BUDGET)
    fit = train(model, ledger=ledger)
    assert [row.outcome for row in ledger.rows()] == ["released"] * 3
    assert [row.label for row in ledger.rows()] == [f"DP-SGD, epoch {k} of 3, Poisson samples" for k in (1, 2, 3)]
    assert ledger.total == fit.cost == fit.release == from_opacus(fit.history)
    # ⌈40/6⌉ = 7 steps an epoch
    assert fit.cost == 21 * PoissonSubsampled(Gaussian(fit.noise_multiplier, adjacency="add_remove"), 6 / 40)
    assert (fit.nit, fit.success, ledger.simulation) == (21, True, True)
    assert 0.999999 * BUDGET.epsilon <= fit.epsilon <= BUDGET.epsilon
    assert epsilon(fit.cost, BUDGET.delta) <= BUDGET.epsilon


@pytest.mark.parametrize(("epochs", "batch", "eps"), [(1, 1, 0.1), (2, 40, 20.0), (8, 5, 0.1)])
def test_a_ledger_of_the_same_budget_holds_all_epochs(epochs, batch, eps):
    ledger = Ledger(Budget(eps, 1e-5, adjacency="add_remove"))
    fit = train(glm("logistic", clip=1.0), epochs=epochs, batch=batch, budget=ledger.budget, ledger=ledger)
    assert fit.success
    assert len(ledger.rows()) == epochs
    assert epsilon(ledger.total, 1e-5) <= eps
    # the same epoch once more is refused, whatever filled the budget
    one, left = fit.cost.parts[0][0], math.ceil(40 / batch)
    with pytest.raises(BudgetExceeded):
        ledger.spend(left * one)


@pytest.mark.thorough
def test_noise_is_what_the_numerical_accountant_asks_for():
    # dp-accounting 0.6 calibrates 100 steps at 1 % to 0.9858; the Rényi curve would ask for 1.1844
    for adjacency, z in (("add_remove", 0.986), ("replace", 1.044)):
        known = {"budget": Budget(1.0, 1e-6, adjacency=adjacency), "epochs": 1, "batch": 1, "public_rows": 100}
        fit = train(glm("logistic", clip=1.0), *rows(100), **known)
        assert fit.noise_multiplier == pytest.approx(z, abs=1e-3)
        asked = 100 * PoissonSubsampled(Gaussian(z + 1e-3, adjacency="add_remove"), 0.01, adjacency=adjacency)
        assert epsilon(asked, 1e-6) <= 1.0 < epsilon(asked, 1e-6, accountant="rdp")


@pytest.mark.thorough
def test_a_ledger_with_other_releases_counts_by_its_own_filter():
    ledger = Ledger(Budget(2.0, 1e-5, adjacency="add_remove"))
    ledger.spend(Gaussian(8.0))
    fit = train(glm("logistic", clip=1.0), budget=Budget(1.0, 1e-5, adjacency="add_remove"), ledger=ledger)
    assert fit.success
    assert ledger.accountant == "mixed"
    assert ledger.remaining() > 0


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:divide by zero")  # in Opacus's distribution function
def test_our_accountant_and_that_of_opacus_agree_on_the_history():
    from opacus.accountants import PRVAccountant, RDPAccountant
    from opacus.accountants.analysis.rdp import compute_rdp

    for batch, eps in [(1, 0.5), (20, 2.0)]:
        fit = train(glm("logistic", clip=1.0), batch=batch, budget=Budget(eps, 1e-5, adjacency="add_remove"), epochs=2)
        accountant = RDPAccountant()
        accountant.history = fit.history
        orders = RDPAccountant.DEFAULT_ALPHAS
        ((z, q, steps),) = fit.history
        theirs = compute_rdp(q=q, noise_multiplier=z, steps=steps, orders=orders)
        np.testing.assert_allclose(rdp(fit.cost, orders), theirs, rtol=1e-6)
        # their grid of orders is coarser than the reals, and costs them a little
        ours, found = epsilon(fit.cost, 1e-5, accountant="rdp"), accountant.get_epsilon(1e-5, alphas=orders)
        assert ours <= found * (1 + 1e-9)
        assert ours == pytest.approx(found, rel=5e-3)
        # what is charged is the numerical total, as Opacus has it, too, to the error that it is asked for
        prv = PRVAccountant()
        prv.history = fit.history
        assert fit.epsilon < ours
        assert fit.epsilon == pytest.approx(prv.get_epsilon(1e-5, eps_error=0.02), abs=0.03)


def test_a_swap_of_rows_is_charged_as_what_is_proved_for_it():
    ledger = Ledger(Budget(2.0, 1e-5))
    fit = train(budget=ledger.budget, ledger=ledger)
    inner = Gaussian(fit.noise_multiplier, adjacency="add_remove")
    step = PoissonSubsampled(inner, 6 / 40, adjacency="replace")
    assert ledger.total == fit.cost == 21 * step
    assert [row.outcome for row in ledger.rows()] == ["released"] * 3
    assert fit.epsilon == pytest.approx(2.0)
    # as a removal and an insertion it would cost more, and ask for more noise
    group = Budget(1.0, 1e-5 / (1 + math.e), adjacency="add_remove")
    expensive = calibrate(lambda z: 21 * PoissonSubsampled(Gaussian(z), 6 / 40), group, accountant="rdp")
    assert fit.noise_multiplier < 0.99 * expensive


@MODELS
def test_a_callback_sees_the_epsilon_so_far(model):
    seen = []
    fit = train(model, callback=lambda state: seen.append((state.epoch, state.nit, state.epsilon, state.x)))
    assert [(epoch, nit) for epoch, nit, _, _ in seen] == [(1, 7), (2, 14), (3, 21)]
    spent = [eps for _, _, eps, _ in seen]
    assert spent == sorted(spent)
    assert spent[-1] == fit.epsilon
    each = PoissonSubsampled(Gaussian(fit.noise_multiplier), 6 / 40)
    assert spent[0] == pytest.approx(float(epsilon(7 * each, 1e-5)))
    assert np.array_equal(seen[-1][3], fit.x)


# ----------------------------------------------------------------------------------- endings before the end


@MODELS
def test_an_interrupted_run_keeps_what_was_trained_and_charges_what_was_begun(model, monkeypatch):
    def callback(state):
        if state.epoch == 2:
            raise KeyboardInterrupt

    ledger = Ledger(BUDGET)
    fit = train(model, ledger=ledger, callback=callback)
    assert (fit.success, fit.nit, len(ledger.rows())) == (False, 14, 2)
    assert ledger.total == fit.cost == from_opacus(fit.history)
    assert "interrupted in or after epoch 2 of 3" in fit.message
    monkeypatch.setattr(source_of, "_noise_multiplier", lambda *asked: fit.noise_multiplier)
    np.testing.assert_allclose(fit.x, train(model, epochs=2).x, atol=1e-5)


class Faulty(nn.Module):
    """A linear layer that fails at its ``number``-th call."""

    def __init__(self, error, number):
        super().__init__()
        self.linear, self.error, self.left = nn.Linear(3, 1), error, number

    def forward(self, x):
        self.left -= 1
        if self.left == 0:
            raise self.error
        return self.linear(x)


def test_an_interrupt_within_an_epoch_charges_the_epoch():
    ledger = Ledger(BUDGET)
    fit = train(Faulty(KeyboardInterrupt(), 20), ledger=ledger)
    assert not fit.success
    assert 7 < fit.nit < 18
    assert [row.outcome for row in ledger.rows()] == ["released"] * len(ledger.rows())
    assert fit.nit <= sum(count for _, count in fit.cost.parts) == 7 * len(ledger.rows())
    assert ledger.total == fit.cost


def test_an_interrupt_at_any_line_of_the_run_loses_no_spend():
    ended = set()
    for line in range(1, 500, 3):
        ledger, seen = Ledger(BUDGET), []
        call = partial(train, glm("logistic", clip=1.0), ledger=ledger, batch=20, epochs=2, callback=seen.append)
        try:
            with Interrupter(line, "dpkit/torch/dp_sgd.py"):
                fit = call()
        except KeyboardInterrupt:
            ended.add("before" if not ledger.rows() else "after")
        else:
            ended.add(fit.success)
            epochs = len(ledger.rows())
            # what was begun is charged, and as much is stated: at most an epoch more, which was refused its row
            assert fit.nit <= 2 * epochs
            assert sum(count for _, count in fit.cost.parts) in (2 * epochs, 2 * epochs + 2)
            assert fit.success or fit.message.endswith("what was trained is kept")
            if fit.success:
                break
        assert len(seen) <= len(ledger.rows())
    assert ended == {"before", False, "after", True}


def test_a_crash_leaves_the_epoch_spent_and_noted_as_failed():
    ledger = Ledger(BUDGET)
    # one row is tried three times and looked at before the first epoch, then there is one call a step
    with pytest.raises(RuntimeError, match="broken") as caught:
        train(Faulty(RuntimeError("broken"), 7), ledger=ledger, batch=40, epochs=9)
    assert "DP-SGD, epoch 3 of 9: the epochs that were begun stay spent, ε=" in caught.value.__notes__[0]
    assert [row.outcome for row in ledger.rows()] == ["released", "released", "failed"]


@pytest.mark.thorough
def test_a_ledger_that_refuses_a_later_epoch_ends_the_run():
    """One with other releases, which fit as a list, and by the ledger's filter not to the end."""
    ledger = Ledger(Budget(2.03, 1e-5, adjacency="add_remove"))
    ledger.spend(Gaussian(60.0))
    fit = train(ledger=ledger)
    assert not fit.success
    assert 1 <= len(ledger.rows()) - 1 < 3
    assert fit.nit == 7 * (len(ledger.rows()) - 1)
    assert ledger.total == Gaussian(60.0) + fit.cost
    assert fit.epsilon < 2.0
    assert "stopped after epoch" in fit.message


def test_a_run_that_is_dearer_than_the_ledger_is_not_begun():
    empty = Ledger(Budget(1.7, 1e-5, adjacency="add_remove"))
    with pytest.raises(BudgetExceeded, match=r"'DP-SGD, all 3 epochs, Poisson samples' asks for .* booked 0 of 1\.7"):
        train(ledger=empty)
    assert not empty.rows()
    # a plan of which another run took a part, or all
    ledger = Ledger(BUDGET)
    one = train(ledger=ledger, callback=interrupted_after(2)).cost.parts[0][0]
    with pytest.raises(BudgetExceeded, match=re.escape(f"left of the ledger's plan, {7 * one!r}; spent")):
        train(ledger=ledger)
    assert len(ledger.rows()) == 2


def interrupted_after(epoch):
    def callback(state):
        if state.epoch == epoch:
            raise KeyboardInterrupt

    return callback


# ------------------------------------------------------------------------------------ gradients and steps


def one_step(model, X, y=None, **more):
    """The sum of clipped gradients: −n·Δθ of one step without noise, all rows in its batch."""
    n = more.pop("public_rows", len(X))
    start = [] if isinstance(model, GLM) else [p.detach().double().numpy().ravel() for p in model.parameters()]
    more = {"epochs": 1, "batch": n, "public_rows": n, "learning_rate": 1.0} | more
    fit = train(model, X, np.zeros(len(X)) if y is None else y, **more)
    return -n * (fit.x - (np.concatenate(start) if start else 0.0))


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.usefixtures("noiseless")
@pytest.mark.parametrize("block", [16, 1 << 18])
def test_a_step_is_that_of_opacus_without_noise(block, monkeypatch):
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    monkeypatch.setattr(sums_of, "_BLOCK", block)
    X, y = rows(n=30)
    module = network()
    ours = one_step(module, X, y, clip=0.3, rows_at_once=7)
    theirs = GradSampleModule(copy.deepcopy(module), loss_reduction="sum")
    inner = torch.optim.SGD(theirs.parameters(), lr=1.0)
    optimizer = DPOptimizer(inner, noise_multiplier=0.0, max_grad_norm=0.3, expected_batch_size=30)
    outputs = theirs(torch.tensor(X, dtype=torch.float32))
    nn.functional.binary_cross_entropy_with_logits(
        outputs[:, 0], torch.tensor(y, dtype=torch.float32), reduction="sum"
    ).backward()
    optimizer.clip_and_accumulate()
    expected = np.concatenate([p.summed_grad.numpy().ravel() for p in optimizer.params])
    assert np.linalg.norm(expected) > 1.0
    np.testing.assert_allclose(ours, expected, atol=2e-4)


@pytest.mark.usefixtures("noiseless")
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e6])
def test_no_row_moves_the_sum_by_more_than_the_clip(scale):
    X, y = rows(n=2)
    with_row, without = (one_step(network(), scale * X[:k], y[:k], clip=0.5, public_rows=2) for k in (2, 1))
    # float32 parameters hold a step to 1e-7 of their size
    assert np.linalg.norm(with_row - without) <= 0.5 + 1e-5
    if scale >= 1.0:
        assert np.linalg.norm(with_row - without) >= 0.05


@pytest.mark.usefixtures("noiseless")
@pytest.mark.filterwarnings("ignore:loss is not finite:UserWarning")
def test_a_gradient_that_is_not_finite_counts_as_zero():
    X = np.array([[0.5, 0.0, 0.0], [1e300, -1e300, 1e300]])
    fit = train(glm("squared", clip=1.0), X, np.array([-1.0, 1e300]), epochs=1, batch=40)
    np.testing.assert_allclose(fit.x, [-0.1 * 0.5 / 40, 0.0, 0.0], atol=1e-6)
    assert fit.clipped == 1

    def nan_for_negative_targets(outputs, targets):
        return (outputs * torch.sqrt(targets)[:, None]).sum()

    linear = nn.Linear(1, 1, bias=False)
    step = one_step(linear, np.array([[0.5], [0.25]]), np.array([1.0, -1.0]), loss=nan_for_negative_targets)
    assert step == pytest.approx([0.5], abs=1e-4)


@pytest.mark.usefixtures("noiseless")
@pytest.mark.parametrize("real", [0, 1, 4])
def test_the_public_batch_divides_whatever_the_batch_is(real):
    # θ moves by 0.1·(sum of the rows)/40
    fit = train(CONSTANT, np.tile([[0.6, 0.8]], (real, 1)), np.zeros(real), epochs=1, batch=40)
    np.testing.assert_allclose(fit.x, 0.1 * real / 40 * np.array([0.6, 0.8]), atol=1e-6)


def test_how_many_rows_are_held_at_once_changes_nothing():
    results = [train(rows_at_once=k, batch=20, epochs=1).x for k in (1, 7, 1000)]
    np.testing.assert_allclose(results[0], results[1], atol=1e-5)
    np.testing.assert_allclose(results[0], results[2], atol=1e-5)


def test_arrays_of_every_layout_are_read():
    X, y = rows()
    backwards, readonly = np.asfortranarray(X[::-1])[::-1], X.copy()
    readonly.flags.writeable = False
    for model in (network(), glm("logistic", clip=1.0)):
        assert np.array_equal(train(model, backwards, y).x, train(model, readonly, y[::-1][::-1].tolist()).x)


def test_a_dataset_is_trained_like_its_arrays():
    X, y = (torch.tensor(v, dtype=torch.float32) for v in rows())
    assert np.array_equal(train(network(), torch.utils.data.TensorDataset(X, y)).x, train(network(), X, y).x)


@pytest.mark.usefixtures("noiseless")
def test_a_row_does_not_see_the_rows_next_to_it():
    class Centred(nn.Linear):
        def forward(self, x):
            return super().forward(x - x.mean(dim=0) + 1.0)

    # alone, every row is its own mean, so that the module sees a row of ones
    X, y = rows(n=4)
    module = Centred(3, 1, bias=False)
    first = one_step(module, X, y, public_rows=4)
    second = one_step(module, np.vstack([X[:3], 1e3 * X[3:]]), y, public_rows=4)
    np.testing.assert_allclose(first, second, atol=1e-4)


def test_frozen_parameters_stay_and_cost_no_noise():
    module = network()
    module[0].requires_grad_(False)
    fit = train(module)
    assert torch.equal(fit.module[0].weight, module[0].weight)
    assert len(fit.x) == 5 + 5 + 5 + 1
    assert not torch.equal(fit.module[3].weight, module[3].weight)


# ------------------------------------------------------------------------------------------ what leaves


class Remembering(nn.Module):
    """Keeps what it sees."""

    def __init__(self):
        super().__init__()
        self.linear, self.seen = nn.Linear(3, 1), None

    def forward(self, x):
        self.seen = x
        return self.linear(x)


def test_only_parameters_leave():
    model = Remembering()
    before = copy.deepcopy(model.state_dict())
    fit = train(model)
    assert fit.module.seen is None
    for module in (model, fit.module):
        assert all(p.grad is None and not hasattr(p, "grad_sample") for p in module.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    released = np.concatenate([p.detach().numpy().ravel() for p in fit.module.parameters()])
    assert np.array_equal(released, fit.x)


def test_the_secure_source_is_the_default():
    ledger = Ledger(BUDGET)
    runs = [train(rng=None, ledger=book).x for book in (ledger, None)]
    assert not ledger.simulation
    assert not np.array_equal(*runs)


@pytest.mark.parametrize("rng", [None, np.random.default_rng(0)], ids=["secure", "simulation"])
def test_the_noise_of_a_step_has_the_calibrated_scale(rng):
    # One step on no rows is −η·noise/batch. The sum of d = 40,000 squares has a relative deviation of 0.71 %, so 5 % is
    # passed with probability < 1e-11; 0.9 or 1.1 times the scale would be off by 19 or 21 %.
    d, C = 40_000, 0.7
    model = nn.Linear(d, 1, bias=False)
    nn.init.zeros_(model.weight)
    fit = train(model, np.zeros((0, d)), np.zeros(0), clip=C, epochs=1, batch=40, learning_rate=1.0, rng=rng)
    sigma = fit.noise_multiplier * C / 40
    assert np.sum((fit.x / sigma) ** 2) / d == pytest.approx(1.0, abs=0.05)


@pytest.mark.thorough
@pytest.mark.usefixtures("noiseless")
def test_batches_are_poisson_samples():
    # orthogonal rows and no noise to speak of: a step shows who was in its batch
    n, q, steps = 40, 6 / 40, 840
    seen = []
    known = {"batch": 6, "epochs": math.ceil(steps / 7), "learning_rate": 6.0}
    train(CONSTANT, np.eye(n), np.zeros(n), optimizer=partial(_Recording, seen=seen), **known)
    members = np.array(seen)[:steps] * 6
    assert np.max(np.abs(members - np.rint(members))) < 0.1
    members = np.rint(-members).astype(int)
    assert set(np.unique(members)) == {0, 1}
    # χ² with a false-alarm rate of 1e-10: sizes are binomial, as those of batches of a fixed size are not
    assert fits(members.sum(axis=1), range(n + 1), stats.binom.pmf(range(n + 1), n, q))
    for row in (0, n - 1):
        assert fits(members[:, row], [0, 1], [1 - q, q])
    # two rows of a sample, and a row in two of them
    for pairs in (members[:, 0] + 2 * members[:, 1], members[:-1, 0] + 2 * members[1:, 0]):
        assert fits(pairs, range(4), [(1 - q) ** 2, q * (1 - q), q * (1 - q), q * q])


@pytest.mark.usefixtures("noiseless")
@pytest.mark.parametrize(("sampling", "cap"), [("balls_in_bins", None), ("balls_in_bins", 18), ("shuffle", None)])
def test_batches_are_made_as_they_are_asked_for(sampling, cap):
    seen = []
    known = {"batch": 10, "epochs": 20, "learning_rate": 10.0, "budget": Budget(4.0, 1e-5), "sampling": sampling}
    if cap is not None:
        known |= {"max_batch": cap, "budget": Budget(4.0, 0.9)}
    fit = train(CONSTANT, np.eye(40), np.zeros(40), optimizer=partial(_Recording, seen=seen), **known)
    members = np.rint(-10 * np.array(seen)).astype(int).reshape(20, 4, 40)
    if cap is None:
        assert np.all(members.sum(axis=1) == 1)
    sizes = members.sum(axis=2)
    assert set(np.unique(sizes)) == {10} if sampling == "shuffle" else 10 < sizes.max() <= (cap or 40)
    assert (fit.nit, fit.history) == (80, [])


@pytest.mark.thorough
def test_the_ledger_names_how_batches_are_made_and_what_that_costs():
    swaps = Budget(4.0, 1e-5)
    for budget, sampling, said in (
        (BUDGET, "balls_in_bins", "balls in bins"),
        (swaps, "shuffle", "shuffled batches"),
    ):
        ledger = Ledger(budget)
        fit = train(budget=budget, ledger=ledger, epochs=2, batch=10, sampling=sampling)
        z = fit.noise_multiplier
        assert [row.label for row in ledger.rows()] == [f"DP-SGD, epoch {k} of 2, {said}" for k in (1, 2)]
        one = RandomAllocated(Gaussian(z, adjacency="add_remove"), 4)
        assert ledger.total == fit.cost == 2 * (Gaussian(z / 2, adjacency="replace") if sampling == "shuffle" else one)
        assert 0.999 * budget.epsilon < fit.epsilon <= budget.epsilon
    with pytest.raises(ValueError, match="take 'balls_in_bins' or a budget by 'replace'"):
        train(sampling="shuffle")


class _Recording(torch.optim.SGD):
    """Keeps every noisy gradient, and stays where it is."""

    def __init__(self, parameters, seen):
        super().__init__(parameters, lr=0.0)
        self.seen = seen

    def step(self, closure=None):
        self.seen.append(self.param_groups[0]["params"][0].grad.numpy().ravel().copy())


# ---------------------------------------------------------------------------------------------------- audit

# A sound run is flagged with probability at most 1e-9 under reseeding.
CONFIDENCE = 1 - 1e-9
TRIALS, SAMPLED = 330, 600  # where it is known which test to make, and where not


def audited(batch, z, *, delta=None, slope=1.0, rng=None, swap=False):
    """The audit of single steps on one row and on none, and their claim; the steps of one run are all trials.

    Without ``delta`` it is the audit of a claim of Gaussian DP. With ``swap`` the row is swapped for its opposite. What
    z all these steps together are calibrated to does not matter, and is given; that it is the budget's is tested above.
    """
    relation = "replace" if swap else "add_remove"
    step = PoissonSubsampled(Gaussian(z, adjacency="add_remove"), batch / 40, adjacency=relation)
    steps = math.ceil(40 / batch)
    trials = TRIALS if delta is None else SAMPLED
    epochs = math.ceil(trials / steps)
    objective = GLM("linear", CONSTANT.loss, lambda eta, y: np.full_like(eta, -slope), slope, 0.0, clip=1.0)

    def run(data, trials):
        seen = []
        known = {"batch": batch, "epochs": epochs, "public_rows": 40, "rng": rng or np.random.default_rng(5)}
        known |= {"budget": Budget(1.0, 1e-5, adjacency=relation), "optimizer": partial(_Recording, seen=seen)}
        with pytest.MonkeyPatch.context() as patch:
            uncalibrated(patch, z)
            dp_sgd(objective, data, np.zeros(len(data)), **known)
        return -batch * np.array(seen)[:trials]

    one, other = np.array([[1.0, 0.0]]), np.zeros((0, 2))
    if swap:
        # 40 rows, as their number is what divides: the others are 0
        one = np.vstack([one, np.zeros((39, 2))])
        other = -one
    known = {"trials": trials, "confidence": CONFIDENCE, "score": lambda outputs: outputs[:, 0]}
    if delta is None:
        return white_box.lower_bound(run, one, other, delta=1e-2, **known), Gaussian(z)
    return audit.lower_bound(run, one, other, delta=delta, batched=True, **known), step


def test_the_audit_finds_the_claim_and_no_more():
    bound, claim = audited(40, 0.6)
    bound.check(claim)
    assert bound.mu > 0.3


@pytest.mark.thorough
def test_the_audit_finds_the_claim_of_a_sampled_step_and_no_more():
    bound, claim = audited(20, 0.3, delta=0.05)
    bound.check(claim)
    assert bound.epsilon > 1.0


@pytest.mark.thorough
def test_the_audit_finds_that_a_swap_costs_more_than_one_change_and_no_more_than_is_claimed():
    # at this δ, of 0.9·(Φ(1/(2z)) − Φ(−1/(2z))), one change would cost next to nothing
    bound, claim = audited(36, 0.6, delta=0.54, swap=True)
    bound.check(claim)
    assert bound.contradicts(PoissonSubsampled(Gaussian(0.6), 0.9))


def test_the_audit_catches_half_the_noise(monkeypatch):
    with_noise(monkeypatch, lambda z: z / 2)
    bound, claim = audited(40, 0.6)
    assert bound.contradicts(claim)


def test_the_audit_catches_gradients_that_are_not_clipped(monkeypatch):
    monkeypatch.setattr(sums_of, "grown", lambda length, dimension: length / 3.0)
    bound, claim = audited(40, 0.6, slope=3.0)
    assert bound.contradicts(claim)


@pytest.mark.thorough
def test_the_audit_catches_samples_that_are_not_drawn():
    class Everyone(np.random.Generator):
        def random(self, size=None):
            return np.zeros(size)

    bound, claim = audited(4, 0.5, delta=0.05, rng=Everyone(np.random.PCG64(5)))
    assert bound.contradicts(claim)


# ------------------------------------------------------------------------------------------------- refusals


class Counting(nn.Linear):
    """Writes into a buffer."""

    def __init__(self):
        super().__init__(3, 1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


@pytest.mark.thorough
@pytest.mark.thorough
@tabled(
    ("change", "error", "message"),
    [
        ({"X": np.full((40, 3), np.nan)}, ValueError, "X must be finite"),
        ({"X": np.full((40, 3), 1e300)}, ValueError, r"X must be finite and real, as torch\.float32"),
        ({"y": np.full(40, np.inf)}, ValueError, "y must be finite"),
        ({"y": np.zeros(7)}, ValueError, "X and y must have the same number of rows"),
        ({"X": np.full((40, 3), "a")}, TypeError, "X must be an array of real numbers"),
        ({"X": np.zeros((40, 9))}, ValueError, "model and loss must give the gradient of one row"),
        ({"y": None}, TypeError, "y must be given unless X is a Dataset"),
        ({"X": Listed([(torch.zeros(3),)]), "y": None}, TypeError, "Dataset of pairs .* got a tuple of Tensor$"),
        ({"X": Listed([{"x": 1.0, "y": 0}]), "y": None}, TypeError, "Dataset of pairs .* got a dict$"),
        ({"X": Listed([(torch.zeros(3), "a")]), "y": None}, TypeError, "got a tuple of Tensor, str$"),
        ({"model": None}, TypeError, r"model must be a GLM or a torch\.nn\.Module"),
        (
            {"model": nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))},
            ValueError,
            "ModuleValidator.fix\\(model\\) replaces such layers, got: BatchN",
        ),
        (
            {"model": nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 1))},
            ValueError,
            "gradient of one row under",
        ),
        ({"model": network().eval()}, ValueError, "admits: model.train\\(\\), got: Model needs to be in training mode"),
        ({"model": network().requires_grad_(False)}, ValueError, "model must have trainable parameters"),
        ({"loss": None}, TypeError, "loss must be a function"),
        ({"loss": lambda outputs, targets: 3.0}, ValueError, "gradient of one row under"),
        ({"model": Counting()}, ValueError, "gradient of one row under"),
        # under a known torch seed a row more would shift the masks of all later rows
        (
            {"model": nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 1))},
            ValueError,
            "model and loss must not draw random numbers",
        ),
        ({"loss": lambda o, t: loss(o, t) * torch.rand(())}, ValueError, "model and loss must not draw random numbers"),
        ({"clip": None}, ValueError, "clip must be given"),
        ({"clip": 0.0}, ValueError, "clip must be positive"),
        ({"budget": None}, TypeError, "budget must be a Budget"),
        ({"budget": Budget(1.0, 1e-5, adjacency="zero_out")}, ValueError, r"budget\.adjacency must be one of"),
        ({"budget": Budget(1.0, 0.0, adjacency="add_remove")}, ValueError, "budget must have delta > 0"),
        ({"public_rows": None}, ValueError, "public_rows must be given under add_remove"),
        ({"epochs": 0}, ValueError, "epochs must be at least 1"),
        ({"batch": 41}, ValueError, "batch must be at most the number of rows 40"),
        ({"batch": 0}, ValueError, "batch must be at least 1"),
        ({"learning_rate": -1.0}, ValueError, "learning_rate must be positive"),
        ({"rows_at_once": 0}, ValueError, "rows_at_once must be at least 1"),
        ({"optimizer": "one that is made"}, TypeError, "optimizer must be a function of the"),
        ({"optimizer": lambda parameters: 3}, TypeError, r"optimizer must return a torch\.optim\.Optimizer"),
        ({"optimizer": lambda p: torch.optim.SGD(p[:1], lr=1.0)}, ValueError, "optimizer must hold the parameters"),
        ({"optimizer": lambda p: torch.optim.LBFGS(p)}, ValueError, "optimizer must take a step from one gradient"),
        ({"model": glm("squared")}, ValueError, "loss and clip are those of the objective"),
        ({"model": glm("squared"), "loss": None, "clip": None}, ValueError, "objective must have a clip"),
        ({"ledger": Ledger(Budget(1.0, 1e-5))}, AdjacencyMismatch, "add_remove"),
        ({"ledger": Ledger(Budget(0.01, 1e-5, adjacency="add_remove"))}, BudgetExceeded, "asks for"),
    ],
)
def test_refusals_draw_and_record_nothing_and_change_no_module(change, error, message):
    X, y = rows()
    arguments = {"model": network(), "X": X, "y": y, "loss": loss, "clip": 1.0, "budget": BUDGET, "public_rows": 40}
    arguments |= change
    if change.get("optimizer") == "one that is made":  # here: with the first of all torch loads what takes seconds
        arguments["optimizer"] = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    model = arguments["model"]
    state = copy.deepcopy(model.state_dict()) if isinstance(model, nn.Module) else {}
    with refused(error, message, change.get("ledger")) as known:
        dp_sgd(**arguments | known)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in state.items())


def test_a_path_is_no_ledger(tmp_path):
    for checkpoint in (None, tmp_path / "run.state"):
        with pytest.raises(TypeError, match=r"ledger must be a Ledger or None, got ledger='a.ledger': Ledger.create"):
            train(ledger="a.ledger", checkpoint=checkpoint)
    assert not list(tmp_path.iterdir())


@MODELS
@pytest.mark.parametrize("n", [1, 2])
def test_few_rows(model, n):
    assert np.isfinite(train(model, *rows(n=n), public_rows=n).x).all()


@MODELS
def test_no_rows(model):
    X, y = np.zeros((0, 3)), np.zeros(0)
    # their number is public under replace: nothing is released, and nothing charged
    ledger = Ledger(Budget(1.0, 1e-5))
    fit = train(model, X, y, budget=ledger.budget, ledger=ledger)
    assert (fit.nit, fit.epsilon, fit.history, ledger.rows()) == (0, 0.0, [], [])
    # it is private under add_remove: a run like any other
    assert train(model, X, y).cost == train(model, *rows()).cost


def test_the_example_of_the_docstring():
    text = dp_sgd.__doc__.replace("# doctest: +SKIP", "")
    example = doctest.DocTestParser().get_doctest(text, {}, "dp_sgd", None, 0)
    torch.manual_seed(0)
    assert doctest.DocTestRunner().run(example) == doctest.TestResults(failed=0, attempted=len(example.examples))
    assert len(example.examples) >= 9


def test_the_example_of_the_guide(capsys):
    page = (Path(__file__).resolve().parents[3] / "docs" / "dp-sgd.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(import numpy as np, torch\n.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    exec(block.replace("epochs=15", "epochs=2"), names)
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert names["fit"].epsilon <= 4.0


def test_noise_that_no_lattice_holds_is_refused_before_anything_is_charged(monkeypatch):
    monkeypatch.setattr(source_of, "_noise_multiplier", lambda *asked: 2.0**31)
    ledger, (X, y) = Ledger(BUDGET), rows()
    with pytest.raises(ValueError, match=r"must lie in \[2\*\*-40, 2\*\*40\] steps"):
        dp_sgd(glm("logistic", clip=1.0), X, y, budget=BUDGET, public_rows=40, ledger=ledger)
    assert not ledger.rows()
