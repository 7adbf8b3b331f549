"""DP-FTRL: training over several epochs, with noise that is correlated over the steps.

In a fixed public order no amplification is claimed, and none is needed: for whoever cannot sample rows at random (a
stream, a file, a federation). Where rows can be sampled, cyclic batches take noise that is correlated over few steps
and the amplification of samples, which together is less noise in the sums of gradients. Source: Kairouz, McMahan, Song,
Thakkar, Thakurta & Xu (2021), "Practical and private (deep) learning without sampling or shuffling", arXiv:2103.00039;
Denisov, McMahan, Rush, Smith & Thakurta (2022), arXiv:2202.08312; Choquette-Choo et al. (2023), arXiv:2306.08153, for
several epochs.

Let n units stand in a public order, in b batches; step t reads batch t mod b, for T = epochs·b steps:

    g_t = Σ_{i in the batch} clip_C(∇ℓ(θ_t; x_i)),    y_t = Σ_{s≤t} g_s + noise        (a continual sum),
    m_t = βm_{t−1} + (y_t − y_{t−1})/(n/b),           θ_{t+1} = Π(θ_0 − Σ_{s≤t} η_s m_s).

η_s is constant, and falls linearly to η/(cT) over the last cT steps (``cooldown`` c). All that follows y is computed
from what the sums release, so momentum and rates change nothing in the price; the factorization is made for them:
what matters is the noise of Σ η_s m_s. The projection Π is lazy, so that correlated noise cancels in the sum.

Privacy. Unit: one row, or with ``groups`` one person, who counts as one row whose gradient is the mean over all of that
person's. A unit is in one batch of every epoch: it contributes to ``epochs`` inputs of the stream, exactly b steps
apart, by at most C each (2C for a replacement), and inputs may depend on earlier sums. The whole run is one
Gaussian(z), z calibrated to the budget, where the sensitivity of all these contributions together is that of the
factorization (``dpkit.continual``). Order, batches and n are public, so neighbours replace or blank a unit in its
place: "replace" and "zero_out", never "add_remove", which would shift the order. Sums and noise are exact.

With ``sampling`` "cyclic_poisson" or "cyclic_balls_in_bins" batches are drawn at random, C has as many bands as there
are subsets that take turns, and the price is that of samples, by "replace" or "add_remove":
``dpkit.optimize.parts.cyclic_batches`` has the theorem and its proof.

What is released is released after whole :meth:`DPFTRL.advance` calls, an epoch each in :func:`dp_ftrl`.

Cost per step: the gradients of a batch, and 2p + 1 vector operations for p bands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from accounting import Budget
from dpkit.mechanisms._checked import settle
from dpkit.models.losses import GLM
from dpkit.optimize.batch.ftrl_run import DPFTRL

if TYPE_CHECKING:
    import torch
    from scipy.optimize import OptimizeResult

__all__ = ["DPFTRL", "dp_ftrl"]


def dp_ftrl(
    model: GLM | torch.nn.Module,
    X: ArrayLike | torch.Tensor | torch.utils.data.Dataset[Any],
    y: ArrayLike | torch.Tensor | None = None,
    *,
    budget: Budget,
    callback: Callable[[OptimizeResult], object] | None = None,
    **parameters: Any,
) -> OptimizeResult:
    """Train a GLM or a torch module by DP-FTRL, over several epochs in a fixed public order or on cyclic samples.

    Parameters
    ----------
    model, X, y, budget
        As for :class:`DPFTRL`.
    callback : callable, optional
        Called after each epoch with what would be returned then; all of it is covered by the cost.
    **parameters
        The others of :class:`DPFTRL`: ``epochs``, ``batch``, ``learning_rate``, ``factorization``, ….

    Returns
    -------
    OptimizeResult
        See :func:`dpkit.training.result.outcome`: ``x`` is θ, or the trainable parameters as one vector, ``cost``
        what was charged. Also ``epsilon``, ``noise_multiplier``, ``learning_rate`` and, for a torch module, ``module``
        and ``path`` (how gradients were summed, as in :func:`dpkit.optimize.dp_sgd`).
        A ``KeyboardInterrupt`` ends the run: what was released before it is returned, with ``success=False``, and with
        a ``checkpoint`` :meth:`DPFTRL.load` goes on from there.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range, rows that are not finite, or labels that the objective is not for. Nothing is
        drawn or charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import dp_ftrl, glm
    >>> X = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> y = (X @ [1.0, -1.0, 0.0] > 0).astype(float)
    >>> fit = dp_ftrl(
    ...     glm("logistic", clip=1.0), X, y, budget=Budget(1.0, 1e-6), constraint=LpBall(2, 3, 5.0), epochs=5, batch=100
    ... )
    >>> fit.nit, bool(fit.x[0] > 0.5 > -0.5 > fit.x[1])
    (250, True)
    """
    run = DPFTRL(model, X, y, budget=budget, **parameters)
    message = ""
    try:
        while run.steps < run.horizon:
            run.advance()
            if callback is not None:
                callback(run.result())
    except KeyboardInterrupt:
        message = f"interrupted: what {run.steps} of {run.horizon} steps released is kept"
        if run._run.checkpoint is not None:
            message += f", and DPFTRL.load goes on with {run._run.checkpoint}"
    except Exception as error:
        way = "with checkpoint= a run can go on from the epoch before"
        if run._run.checkpoint is not None:
            way = f"once this is mended, DPFTRL.load goes on with {run._run.checkpoint} after step {run.steps}"
        error.add_note(f"DP-FTRL, after {run.steps} of {run.horizon} steps: all of them stay spent; {way}")
        raise
    if run.steps:
        settle(run._run.ledger, run._run.charged)
    return run.result(message)
