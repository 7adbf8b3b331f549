"""What would spoil a run of DP-SGD or DP-FTRL is found before anything is charged."""

from importlib.util import find_spec

import numpy as np
import pytest

from accounting import Budget, Ledger
from dpkit.optimize import dp_ftrl, glm

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(find_spec("opacus") is None, reason="dp_sgd needs Opacus")

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
