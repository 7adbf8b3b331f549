"""DP-SGD for torch modules: private mini-batch training of any differentiable model, on one process or on several.

For models that are no GLM: networks, or one of our losses with a torch optimizer. Needs the extra ``opacus``, which
checks modules and keeps a history of its own; torch and Opacus are imported when :func:`dp_sgd` is called. Source:
Abadi et al. (2016), "Deep learning with differential privacy", arXiv:1607.00133, Algorithm 1; Opacus: Yousefpour et al.
(2021), arXiv:2109.12298.

    B_t: each row with probability q = batch/n,    ĝ_t = (1/batch)(Σ_{i∈B_t} clip_C(∇ℓ(θ_t; x_i)) + N(0, (zC)²I)),

and a torch optimizer takes a step along ĝ_t. An empty batch is a step along the noise. Batches may be made otherwise,
by ``sampling``, at another price (:mod:`dpkit.training.batches`).

Privacy. Unit: one row, or with ``groups`` one person, who counts as one row whose gradient is the mean over all of
that person's. A row's gradient over all parameters is cut to length C, and sums of such gradients are exact: one row
that comes or goes moves the sum by at most C. What divides the sum is the public expected batch size, and the number
of steps follows from the public n. An epoch of k steps costs k × PoissonSubsampled(Gaussian(z), q), under add_remove
or for a swap, whichever the budget counts (``accounting.amplification.subsampling`` has the proofs). All of it is fixed
before the first step, so z is the smallest for which all epochs meet the budget by their privacy loss distribution: 5
to 20 % below what the Rényi curve asks for. Every epoch is reserved in the ledger before its first step, the first one
as the beginning of all: a ledger that is still empty then follows the rule of the whole run, or takes it as its plan,
and ends where it ends. Whenever the run stops, and whatever that looked at, what was done is dominated by all epochs.
Opacus itself only knows add_remove: its history says what was done, not what a swap costs.

Noise and sums are exact (:mod:`.exact_sums`, :mod:`.private_optimizer`), whichever of three ways gradients take: a rule
for each layer that has one (:mod:`.layer_rules`), the gradient of every row for the rest, and for lists of linear
layers and activations a plain pass over the batch (:mod:`.linear_layers`).
One thing is not: torch may compute a row's gradient with other last digits if the batch has another size, since it
picks its kernels by that. The claim is for gradients that do not.

Several processes train one module, each with rows of its own, where ``torch.distributed`` is initialised:
:mod:`dpkit.torch.ranks` has the proof that this is the run of one process on all rows.

Released are the parameters and nothing else: they are copied into a fresh copy of the module after each epoch, and
what the module itself stored while it saw rows (buffers, attributes, gradients) is thrown away.

Cost per step: a pass forward and one back, some products of matrices, and noise for every parameter (10 to 14 ns each,
which is almost half of a step where the parameters are many).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import (
    Budget,
    BudgetExceeded,
    Release,
    calibrate,
    epsilon,
)
from accounting.checks import integer, ledger_or_none, positive
from dpkit import randomness
from dpkit.mechanisms import GaussianMechanism
from dpkit.mechanisms._checked import settle
from dpkit.models.losses import GLM
from dpkit.torch.checkpoint import Kept
from dpkit.torch.private_optimizer import PrivateSteps
from dpkit.torch.problem import (
    Released,
    linear_problem,
    module_problem,
    torch_optimizer,
)
from dpkit.torch.ranks import SharedSums, ranks_of
from dpkit.torch.same_run import said_of, said_of_optimizer, said_of_schedule
from dpkit.torch.tried_rows import try_rows
from dpkit.torch.unit_sums import UnitSums
from dpkit.training.batches import Batches, Sampling, checked_batches
from dpkit.training.groups import checked_groups
from dpkit.training.result import NOTHING, outcome
from dpkit.training.rows import checked_budget, public_count
from dpkit.training.whole_rows import check_rows

if TYPE_CHECKING:
    import torch
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one
    from accounting.ledger.record.entry_types import Outcome, Row

__all__ = ["dp_sgd"]


def dp_sgd(
    model: GLM | torch.nn.Module,
    X: ArrayLike | torch.Tensor | torch.utils.data.Dataset[Any],
    y: ArrayLike | torch.Tensor | None = None,
    *,
    budget: Budget,
    loss: Callable[[Any, Any], Any] | None = None,
    clip: float | None = None,
    epochs: int = 10,
    batch: int | None = None,
    sampling: Sampling = "poisson",
    max_batch: int | None = None,
    learning_rate: float = 0.1,
    optimizer: Callable[[list[Any]], torch.optim.Optimizer] | None = None,
    schedule: Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler] | None = None,
    rows_at_once: int = 256,
    public_rows: int | None = None,
    groups: ArrayLike | None = None,
    callback: Callable[[OptimizeResult], object] | None = None,
    progress: Callable[[int, int], object] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
    process_group: torch.distributed.ProcessGroup | None = None,
) -> OptimizeResult:
    """Train a torch module, or a GLM as a linear one, by noisy steps on random batches.

    Parameters
    ----------
    model : GLM or torch.nn.Module
        An objective with a ``clip``, which is run as ``torch.nn.Linear(d, 1, bias=False)`` in float64 from 0; or a
        module in training mode, which is copied and not changed. Every row is run by itself, under
        ``torch.func.vmap``: layers that it cannot run, layers with batch statistics, modules that write into their
        buffers and those that draw random numbers (dropout) are refused.
    X : (n, ...) array_like or Tensor, or torch.utils.data.Dataset
        The rows; (n, d) for a GLM. A ``Dataset`` of pairs (x, target) of tensors is read as it is sampled.
    y : (n, ...) array_like or Tensor, optional
        The targets; None with a ``Dataset`` only.
    budget : Budget
        With δ > 0, counted by "add_remove" or "replace".
    loss : callable, optional
        (outputs, targets) of a batch of one row → a tensor, such as ``torch.nn.functional.cross_entropy``. Required
        for a module, refused for a GLM.
    clip : float, optional
        C: the L2 norm of a row's gradient over all parameters. Required for a module, refused for a GLM.
    epochs : int
        Of ⌈n/batch⌉ steps each.
    batch : int, optional
        The expected number of rows in a batch, at most n; by default √n.
    sampling : {"poisson", "balls_in_bins", "shuffle"}
        How batches are made (:mod:`dpkit.training.batches`), which decides what they cost: each row in each batch with
        one probability, each in one batch of every epoch, or batches of one size from a shuffled order. The last has no
        amplification that is proved, costs several times the noise, and is for "replace" only.
    max_batch : int, optional
        The most rows of a batch, of which larger ones keep so many, drawn evenly; under "replace" only. That a batch
        would be larger costs δ.
    learning_rate : float
        Of plain SGD, if there is no ``optimizer``.
    optimizer : callable, optional
        The list of trainable parameters → a torch optimizer of all of them.
    schedule : callable, optional
        That optimizer → a scheduler of ``torch.optim.lr_scheduler``, which moves on after every step.
    rows_at_once : int
        How many rows are run together: a batch is taken in parts of so many, of which the exact sums are added, so it
        may be as large as it likes.
    public_rows : int, optional
        n; by default the number of rows. Required under add_remove.
    groups : (n,) array_like of int or str, optional
        Whose row each one is, public. Then the unit is a person, with any number of rows: people are sampled, a
        person's mean gradient is clipped, n and ``batch`` count people, and ``budget.unit`` must be "person".
    callback : callable, optional
        Called after each epoch with an ``OptimizeResult`` of ``epoch``, ``nit``, ``epsilon`` (spent so far), ``x`` and
        ``module``, all of them covered by the cost.
    progress : callable, optional
        Called after each step with the number of steps taken, and of all.
    checkpoint : path, optional
        A file that holds the run after each epoch. The same call goes on from it after a crash, at no further cost; the
        epoch that was under way is taken again, with fresh samples and noise, as nobody has seen it
        (:mod:`dpkit.torch.checkpoint`). Needs a ``ledger``, which is charged with all epochs at once. A call with
        another module, loss, optimizer or schedule is refused; that the rows are the same, and the numbers that a loss
        holds, is for you to see to, as nothing private about them is kept (:mod:`dpkit.torch.same_run`).
    rng : numpy.random.Generator, optional
        None draws samples and noise from the secure source, the noise on a lattice; a seeded generator gives a
        simulation.
    ledger : Ledger, optional
        Charged before the first step of each epoch. One with the same budget that is still empty takes all epochs, and
        then nothing else; one that holds other releases counts by its own filter, which may end the run a few percent
        of its ε early. A run that costs more than what is left there, however it is counted, is not begun.
    process_group : torch.distributed.ProcessGroup, optional
        The processes that train together, by default all of them if ``torch.distributed`` is initialised. Each makes
        the same call with rows of its own, or none: no row on two ranks, and all of a person's on one. What counts
        rows (n, ``public_rows``, ``batch``) counts those of all ranks. Rank 0 alone draws, charges ``ledger``, which
        must be None on the others, and uses ``optimizer``, ``schedule``, ``callback``, ``progress`` and ``checkpoint``,
        which they may leave out. All ranks return the same fit, or raise the same error.

    Returns
    -------
    OptimizeResult
        See :func:`dpkit.training.result.outcome`: ``x`` are the trainable parameters as one float64 vector (θ for a
        GLM), ``cost`` what was charged, ``nfev`` the expected number of gradients, which is public. Also ``module``
        (trained), ``epsilon`` (of the cost at the budget's δ), ``noise_multiplier`` (z), ``history``, that of
        Opacus's accountant: the steps that were taken, if on Poisson samples, and ``path``: which layers had a rule,
        and why others had none, by the module and the shapes of rows alone. ``clipped`` starts anew where a checkpoint
        goes on. A ``KeyboardInterrupt``, or a ledger that
        refuses a later epoch, ends the run: what was trained is returned, with ``success=False``. Without rows ``x`` is
        the start, at no cost.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range, arrays that are not finite, a module that cannot be run row by row, labels that
        the loss does not take, a loss that depends on no parameter (:mod:`dpkit.torch.tried_rows` says which rows are
        tried), or ranks that differ in their model or parameters, or have the same rows. Nothing is drawn or charged.
        What a row raises later, of a ``Dataset`` say, says by a note what is spent, and how to go on.
    BudgetExceeded
        If the ledger has no room for all epochs, or refuses the first. Nothing is drawn or charged.
    RuntimeError
        From torch, if another rank is gone.
    ImportError
        Without torch or Opacus.

    Notes
    -----
    The budget holds whenever the run ends. ``epsilon`` of a run that was cut short counts the epochs that were begun,
    and is a guarantee by itself if the decision to stop did not depend on the data.

    Examples
    --------
    >>> import numpy as np, torch  # doctest: +SKIP
    >>> from accounting import Budget, Ledger  # doctest: +SKIP
    >>> from dpkit.optimize import dp_sgd  # doctest: +SKIP
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))  # doctest: +SKIP
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(np.int64)  # no linear model fits it # doctest: +SKIP
    >>> budget = Budget(4.0, 1e-5, adjacency="add_remove")  # doctest: +SKIP
    >>> ledger = Ledger(budget)  # doctest: +SKIP
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))  # doctest: +SKIP
    >>> fit = dp_sgd(
    ...     net, X, y, loss=torch.nn.functional.cross_entropy, clip=1.0, budget=budget, ledger=ledger, public_rows=1000,
    ...     epochs=15, batch=100, optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.03),
    ... )  # doctest: +SKIP
    >>> labels = fit.module(torch.tensor(X, dtype=torch.float32)).argmax(dim=1).numpy()  # doctest: +SKIP
    >>> bool((labels == y).mean() > 0.8), round(fit.epsilon, 4), ledger.total == fit.cost  # doctest: +SKIP
    (True, 4.0, True)
    """
    try:
        import opacus  # noqa: F401
        import torch  # noqa: F401
    except ImportError:
        raise ImportError("dp_sgd needs Opacus and torch: pip install dpkit[opacus]") from None
    ranks = ranks_of(process_group)
    with nullcontext() if ranks is None else ranks.agreement():
        checked_budget(budget, allowed=("replace", "add_remove"), people=True)
        if budget.delta == 0:
            raise ValueError("budget must have delta > 0, got delta=0")
        ledger_or_none(ledger)
        if isinstance(model, GLM):
            if loss is not None or clip is not None:
                raise ValueError(f"loss and clip are those of the objective, got loss={loss!r} and clip={clip!r}")
            problem = linear_problem(model, X, y)
        else:
            problem = module_problem(model, X, y, loss, clip)
        check_rows(len(problem.rows))
        people = checked_groups(budget, groups, len(problem.rows))
        last = integer("epochs", epochs, at_least=1)
        asked = None if batch is None else integer("batch", batch, at_least=1)
        inner = torch_optimizer(optimizer, positive("learning_rate", learning_rate), problem.parameters)
        held = integer("rows_at_once", rows_at_once, at_least=1)
        source = randomness.resolve(rng)
        released = Released(problem)
        try_rows(problem, held)
        own = UnitSums(problem, people, held)
    shared = None
    if ranks is not None:
        shared = SharedSums(
            ranks, own, problem, people,
            settings={
                "budget": budget, "model": repr(model) if isinstance(model, GLM) else type(model).__name__,
                "clip": problem.clip, "epochs": last, "batch": asked, "sampling": sampling, "max_batch": max_batch,
                "learning_rate": learning_rate, "public_rows": public_rows,
                "rng": "a seeded generator" if randomness.is_simulation(source) else None,
            },
            given={
                "checkpoint": checkpoint is not None, "optimizer": optimizer is not None,
                "schedule": schedule is not None, "callback": callback is not None, "progress": progress is not None,
            },
            ledger=ledger is not None,
        )  # fmt: skip
    sums = own if shared is None else shared

    def fit() -> OptimizeResult:
        n = public_count(sums.units, public_rows, budget.adjacency)
        if n == 0:
            return _untrained(released)
        plan = _planned(n, sums.units, budget, last, asked, sampling, max_batch)
        z = plan.noise_multiplier
        mechanism = GaussianMechanism(noise_multiplier=z, sensitivity=problem.clip, adjacency="add_remove", rng=source)
        size, rate = plan.batches.batch, plan.batches.batch / n if sampling == "poisson" else None
        said = said_of(problem, model) | said_of_optimizer(inner)  # before a schedule changes it
        private = PrivateSteps(inner, problem.parameters, mechanism, sums.on, batch=size, rate=rate, schedule=schedule)
        kept = None
        if checkpoint is not None:
            described = {
                "units": sums.units, "rows": n, "parameters": sum(p.numel() for p in problem.parameters),
                "clip": problem.clip, "epochs": last, "batch": size, "sampling": sampling, "max_batch": max_batch,
                "adjacency": budget.adjacency, "noise_multiplier": z,
            }  # fmt: skip
            kept = Kept(
                Path(checkpoint), described, said | said_of_schedule(private.schedule), private, released, source,
                cost=plan.cost(last), ledger=ledger,
                label=f"DP-SGD, {last} epochs, {plan.batches.said}",
            )  # fmt: skip
        return _Run(plan, private, sums, released, source, ledger, kept, checkpoint, callback, progress).fit()

    return fit() if shared is None else shared.run(fit, released)


class _Plan(NamedTuple):
    """What is fixed before the first step, by public numbers alone."""

    budget: Budget
    epochs: int
    batches: Batches
    noise_multiplier: float

    def cost(self, epochs: int) -> Release:
        """Of so many epochs."""
        steps = epochs * self.batches.steps
        return self.batches.price(self.noise_multiplier, steps=steps, adjacency=self.budget.adjacency)

    def epsilon(self, epochs: int) -> float:
        """Of their cost, at the budget's δ."""
        return _epsilon(self.cost(epochs), self.budget)


def _planned(
    n: int, units: int, budget: Budget, epochs: int, batch: int | None, sampling: Sampling, max_batch: int | None
) -> _Plan:
    """The batches of a run on ``units``, of which n are public, and the least noise with which it meets the budget."""
    expected = max(1, math.isqrt(n)) if batch is None else batch
    if expected > n:
        raise ValueError(f"batch must be at most the number of rows {n}, got batch={batch!r}")
    steps = epochs * math.ceil(n / expected)
    batches = checked_batches(sampling, n, expected, max_batch, count=units, steps=steps, budget=budget)
    return _Plan(budget, epochs, batches, _noise_multiplier(steps, batches, budget))


def _untrained(released: Released) -> OptimizeResult:
    """The result of a run without rows."""
    return outcome(
        released.update(),
        NOTHING,
        nit=0,
        nfev=0,
        message="no rows: the start is returned",
        clipped=0,
        module=released.module,
        epsilon=0.0,
        noise_multiplier=math.inf,
        history=[],
        path="no gradient was taken",
    )


@dataclass
class _Run:
    """The epochs of one run: each is reserved in the ledger before its first step, or all are by a checkpoint."""

    plan: _Plan
    private: PrivateSteps
    sums: UnitSums | SharedSums
    released: Released
    source: np.random.Generator
    ledger: Ledger | None
    kept: Kept | None
    checkpoint: str | os.PathLike[str] | None
    callback: Callable[[OptimizeResult], object] | None
    progress: Callable[[int, int], object] | None
    begun: int = 0  # the last epoch of which the cost was asked for

    def fit(self) -> OptimizeResult:
        """All epochs, and what they gave, also where an interrupt or the ledger ends them early."""
        last, batches, kept = self.plan.epochs, self.plan.batches, self.kept
        success = True
        if self.ledger is not None and kept is None:  # with a checkpoint all is asked for at once
            self.ledger.check_room(self.plan.cost(last), label=f"DP-SGD, all {last} epochs, {batches.said}")
        already = kept is not None and kept.epochs == last
        message = f"{last} epochs of {batches.steps} steps on {batches.said} of {batches.batch} rows in the mean"
        try:
            for epoch in range(1 if kept is None else kept.epochs + 1, last + 1):
                self.begun = epoch
                try:
                    row = self._reserve(epoch)
                except BudgetExceeded as refusal:
                    if epoch == 1:
                        raise
                    self.begun, success, message = epoch - 1, False, f"stopped after epoch {epoch - 1}: {refusal}"
                    break
                try:
                    with _settled(self.ledger, row) if kept is None else kept.epoch():
                        self._steps()
                except Exception as error:
                    error.add_note(self._still_spent())
                    raise
                self._report(epoch)
        except KeyboardInterrupt:
            success, message = False, f"interrupted in or after epoch {self.begun} of {last}: what was trained is kept"
            if kept is not None:
                message += f" up to epoch {kept.epochs}, and the same call goes on from {self.checkpoint}"
        finally:
            if kept is not None:
                kept.close()
        if already:
            message += f", all of them from {self.checkpoint}: nothing was trained now"
        result = self._result(message)
        result.success = success
        return result

    def _still_spent(self) -> str:
        """What an error within an epoch leaves."""
        begun, last = self.begun, self.plan.epochs
        if self.kept is not None:
            return (
                f"DP-SGD, epoch {begun} of {last}: all {last} epochs are spent, and once this is mended the same call "
                f"goes on from {self.checkpoint}, after epoch {self.kept.epochs}, at no further cost"
            )
        spent = f"ε={self.plan.epsilon(begun):.6g} at δ={self.plan.budget.delta:g}"
        return (
            f"DP-SGD, epoch {begun} of {last}: the epochs that were begun stay spent, {spent}, and what they trained "
            "is lost: with checkpoint= a run can go on from the epoch before"
        )

    def _reserve(self, epoch: int) -> Row | None:
        """The ledger's row of this epoch, the first one as the beginning of all."""
        if self.ledger is None or self.kept is not None:
            return None
        return self.ledger.spend(
            self.plan.cost(1),
            label=f"DP-SGD, epoch {epoch} of {self.plan.epochs}, {self.plan.batches.said}",
            simulation=randomness.is_simulation(self.source),
            plan=self.plan.cost(self.plan.epochs),
        )

    def _steps(self) -> None:
        """Those of one epoch."""
        batches = self.plan.batches
        for chosen in batches.epoch(self.source, self.sums.units):
            self.private.step(self.sums.over(chosen))
            if self.progress is not None:
                self.progress(self.private.taken, self.plan.epochs * batches.steps)

    def _report(self, epoch: int) -> None:
        """Tell the callback what is released after this epoch."""
        from scipy.optimize import OptimizeResult

        if self.callback is not None:
            x = self._parameters()
            nit, spent = epoch * self.plan.batches.steps, self.plan.epsilon(epoch)
            self.callback(OptimizeResult(x=x, module=self.released.module, epoch=epoch, nit=nit, epsilon=spent))

    def _parameters(self) -> NDArray[np.float64]:
        """As they are now; with a checkpoint, after its last epoch."""
        return self.released.update() if self.kept is None else self.kept.x

    def _result(self, message: str) -> OptimizeResult:
        """What was trained, at the cost of the epochs that were begun; with a checkpoint, of all."""
        paid = self.begun if self.kept is None else self.plan.epochs
        taken = self.private.taken if self.kept is None else self.kept.epochs * self.plan.batches.steps
        return outcome(
            self._parameters(),
            self.plan.cost(paid),
            nit=taken,
            nfev=taken * self.plan.batches.batch,
            message=message,
            clipped=self.sums.clipped,
            module=self.released.module,
            epsilon=self.plan.epsilon(paid),
            noise_multiplier=self.plan.noise_multiplier,
            history=self.private.history,
            path=self.sums.path,
        )


@lru_cache(maxsize=256)
def _noise_multiplier(steps: int, batches: Batches, budget: Budget) -> float:
    """z; remembered, for it takes up to a second, and runs with other seeds or learning rates ask for it again."""
    return calibrate(lambda z: batches.price(z, steps=steps, adjacency=budget.adjacency), budget)


@lru_cache(maxsize=256)
def _epsilon(cost: Release, budget: Budget) -> float:
    return min(budget.epsilon, float(epsilon(cost, budget.delta)))


@contextmanager
def _settled(ledger: Ledger | None, row: Row | None) -> Iterator[None]:
    """Note what became of a reservation; an interrupted epoch is released, for its steps are returned."""
    outcome: Outcome = "failed"
    try:
        yield
        outcome = "released"
    except KeyboardInterrupt:
        outcome = "released"
        raise
    finally:
        settle(ledger, row, outcome)
