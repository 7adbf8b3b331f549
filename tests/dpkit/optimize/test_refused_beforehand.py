"""What would spoil a run of DP-SGD or DP-FTRL is found before anything is charged."""

from importlib.util import find_spec

import numpy as np
import pytest

from accounting import Budget, Ledger
from dpkit.optimize import dp_ftrl, glm

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(find_spec("opacus") is None, reason="dp_sgd needs Opacus")

from listed import Listed  # noqa: E402

from dpkit.optimize import dp_sgd  # noqa: E402

nn, F = torch.nn, torch.nn.functional
BUDGET = Budget(4.0, 1e-5)
X = np.random.default_rng(0).normal(size=(60, 4))
Y = (X[:, 0] > 0).astype(np.int64)
BOTH = pytest.mark.parametrize("train", [dp_sgd, dp_ftrl])


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def known(**more):
    return {"loss": F.cross_entropy, "clip": 1.0, "budget": BUDGET, "epochs": 2, "batch": 20} | more


@BOTH
def test_labels_of_a_glm(train):
    ledger = Ledger(BUDGET)
    with pytest.raises(
        ValueError, match=r"y must lie in \[0, 1\] for the loss 'logistic', got 60 labels that do not: "
    ):
        train(glm("logistic", clip=1.0), X, Y + 2, budget=BUDGET, ledger=ledger)
    assert not ledger.rows()


def pairs(labels):
    return [(torch.tensor(x, dtype=torch.float32), int(label)) for x, label in zip(X, labels, strict=True)]


def changed(place, label):
    labels = Y.copy()
    labels[place] = label
    return labels


@BOTH
@pytest.mark.parametrize("labels", [Y + 1, changed(-1, 7), changed(0, 7), changed(30, -1)])
@pytest.mark.parametrize("loss", [F.cross_entropy, lambda o, t: F.nll_loss(F.log_softmax(o, dim=1), t)])
def test_classes_that_no_output_is_for_are_refused(train, labels, loss):
    ledger = Ledger(BUDGET)
    with pytest.raises(
        ValueError, match="y must hold classes from 0 to 1, as the model has 2 outputs, got others: y - 1"
    ):
        train(network(), X, labels, ledger=ledger, **known(loss=loss))
    assert not ledger.rows()


def test_a_loss_that_makes_classes_of_labels_itself_takes_its_labels():
    fit = dp_sgd(network(), X, Y + 1, **known(loss=lambda o, t: F.cross_entropy(o, t - 1), epochs=1))
    assert fit.success


def test_of_many_labels_the_ends_are_tried():
    wide = nn.Sequential(nn.Linear(4, 2000))
    rows, labels = np.zeros((1000, 4)), np.arange(1000)
    with pytest.raises(ValueError, match="y must hold classes from 0 to 1999"):
        dp_sgd(wide, rows, np.where(labels == 500, 2000, labels), **known())


def test_classes_of_many_places_are_tried():
    labels = np.zeros((60, 3), dtype=np.int64)
    labels[17, 1] = 2
    model = nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (2, 3)))
    with pytest.raises(ValueError, match="y must hold classes from 0 to 1, as the model has 2 outputs"):
        dp_sgd(model, X, labels, **known())


@BOTH
def test_a_data_set_is_tried_at_some_places(train):
    ledger = Ledger(BUDGET)
    with pytest.raises(ValueError, match="y must hold classes from 0 to 1"):
        train(network(), Listed(pairs(changed(-1, 7))), ledger=ledger, **known())
    odd = pairs(Y)
    odd[-1] = (torch.zeros(5), 0)
    with pytest.raises(
        ValueError, match=r"one shape of x, as rows_at_once=256 .* got \(4,\) and \(5,\): rows_at_once=1"
    ):
        train(network(), Listed(odd), ledger=ledger, **known())
    assert not ledger.rows()


@BOTH
def test_what_a_data_set_raises_later_says_what_is_spent_and_how_to_go_on(train, tmp_path):
    odd = pairs(Y)
    odd[1] = (torch.zeros(5), 0)
    for more, note in (({}, "with checkpoint= a run can go on"), ({"checkpoint": tmp_path / "run"}, "goes on")):
        ledger = Ledger(BUDGET)
        with pytest.raises(RuntimeError) as caught:
            train(network(), Listed(odd), ledger=ledger, rng=np.random.default_rng(0), **known(epochs=9, **more))
        assert ledger.rows()
        (said,) = caught.value.__notes__
        assert note in said
        assert "spent" in said
    # as it says
    if train is dp_sgd:
        more = known(epochs=9, checkpoint=tmp_path / "run")
        assert dp_sgd(network(), Listed(pairs(Y)), ledger=ledger, rng=np.random.default_rng(0), **more).success


@BOTH
@pytest.mark.parametrize(
    "loss",
    [
        lambda o, t: F.cross_entropy(o.detach(), t),
        lambda o, t: (o.argmax(1) != t).double().mean(),
        lambda o, t: t.double(),
    ],
)
def test_a_loss_without_a_gradient_is_refused(train, loss):
    ledger = Ledger(BUDGET)
    with pytest.raises(
        ValueError, match="loss must depend on the model's trainable parameters, got one whose gradient"
    ):
        train(network(), X, Y, ledger=ledger, **known(loss=loss))
    assert not ledger.rows()


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_gradient_that_happens_to_be_zero_is_none_of_these():
    def hinge(o, t):
        return torch.relu(o[:, 0] - 100.0)

    assert dp_sgd(network(), X, Y, **known(loss=hinge, epochs=1)).success


@BOTH
def test_a_loss_that_is_not_finite_warns(train):
    with pytest.warns(UserWarning, match="loss is not finite for 2 of 2 labels that were tried"):
        train(network(), X, Y, **known(loss=lambda o, t: F.cross_entropy(o, t) * torch.nan, epochs=1))
    with pytest.warns(UserWarning, match="loss is not finite for 1 of 2 labels"):
        train(network(), X, changed(0, 0), **known(loss=lambda o, t: F.cross_entropy(o, t) / (1 - t), epochs=1))
