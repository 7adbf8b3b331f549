"""DP-FTRL: training over several epochs in a fixed public order, with noise that is correlated over the steps.

For whoever cannot sample rows at random (a stream, a file, a federation), or needs ε of a few: no amplification is
claimed, and none is needed. Source: Kairouz, McMahan, Song, Thakkar, Thakurta & Xu (2021), "Practical and private
(deep) learning without sampling or shuffling", arXiv:2103.00039; Denisov, McMahan, Rush, Smith & Thakurta (2022),
arXiv:2202.08312; Choquette-Choo et al. (2023), arXiv:2306.08153, for several epochs.

Let n units stand in a public order, in b batches; step t reads batch t mod b, for T = epochs·b steps:

    g_t = Σ_{i in the batch} clip_C(∇ℓ(θ_t; x_i)),    y_t = Σ_{s≤t} g_s + noise        (a continual sum),
    m_t = βm_{t−1} + (y_t − y_{t−1})/(n/b),           θ_{t+1} = Π(θ_0 − Σ_{s≤t} η_s m_s).

η_s is constant, and falls linearly to η/(cT) over the last cT steps (``cooldown`` c). All that follows y is computed
from what the sums release, so momentum and rates change nothing in the price; the factorization is made for them:
what matters is the noise of Σ η_s m_s. The projection Π is lazy, so that correlated noise cancels in the sum.

Privacy. Unit: one row, or with ``groups`` one person, who counts as one row whose gradient is the mean over all of
that person's. A unit is in one batch of every epoch: it contributes to ``epochs`` inputs of the stream, exactly b
steps apart, by at most C each (2C for a replacement), and inputs may depend on earlier sums. The whole run is one
Gaussian(z), z calibrated to the budget, where the sensitivity of all these contributions together is that of the
factorization (``dpkit.continual``). Order, batches and n are public, so neighbours replace or blank a unit in its
place: "replace" and "zero_out", never "add_remove", which would shift the order. Sums and noise are exact.

What is released is released after whole :meth:`DPFTRL.advance` calls, an epoch each in :func:`dp_ftrl`.

Cost per step: the gradients of a batch, and 2p + 1 vector operations for p bands.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Budget, Gaussian, Ledger, Release, calibrate, epsilon, gdp
from accounting.checks import fraction, integer, positive
from dpkit import randomness
from dpkit.continual import Banded, BinaryTree, BufferedToeplitz, ContinualSum, Factorization
from dpkit.continual.banded import lowest_error
from dpkit.geometry import ConvexSet
from dpkit.optimize._rows import checked_budget
from dpkit.optimize._training_rows import ModuleSums, sums_of
from dpkit.optimize.objectives import GLM
from dpkit.optimize.result import outcome
from dpkit.states import Run, Unrepeatable, files
from dpkit.states.entries import check_kind, conform, generator, generator_text, kept, resume
from dpkit.states.run import newest

if TYPE_CHECKING:
    import torch
    from scipy.optimize import OptimizeResult

__all__ = ["DPFTRL", "dp_ftrl"]

Vector = NDArray[np.float64]
Kind = Literal["banded", "buffered", "tree", "independent"]

# the most bands that are chosen: what a step takes and a state holds grows with them
_BANDS = 64
_KINDS = ("banded", "buffered", "tree", "independent")


class DPFTRL(Unrepeatable):
    """A training run that advances by some steps at a time, and can be saved in between.

    Parameters
    ----------
    model : GLM or torch.nn.Module
        An objective with a ``clip``, over (n, d) rows, from θ_0 = 0 or the set's centre; or a module, as in
        :func:`dpkit.optimize.dp_sgd`, which is copied and not changed.
    X, y, loss, clip, rows_at_once, groups
        As in :func:`dpkit.optimize.dp_sgd`.
    budget : Budget
        Counted by "replace" or "zero_out".
    constraint : ConvexSet, optional
        Of parameters. By default they are free.
    epochs : int
    batch : int, optional
        The number of units in a batch, of which there are ⌈n/batch⌉ equal ones, up to one unit; by default √n.
    learning_rate : float, optional
        η. By default 0.1, and with a ``constraint`` (1 − β)D/√(T·C² + d·s²): D the diameter of the set, s the noise in
        each coordinate of the last sum, over the batch.
    step_scale : float
        Multiplies η.
    momentum : float
        β in [0, 1).
    cooldown : float
        c in [0, 1].
    factorization : {"banded", "buffered", "tree", "independent"} or Factorization
        "banded": the better one of two optimal factorizations with at most 64 bands, of C and of C⁻¹, for T, b, β and
        η (``dpkit.continual.banded``). "buffered": that of ``BufferedToeplitz``. "tree": Honaker's. "independent":
        noise that is not correlated, DP-SGD without amplification. Or one of your own, with a horizon of T.
    iterate : {"last", "tail", "average"}
        What is released: the last iterate, or the mean of those since step T/2 or since the first.
    order_seed : int, optional
        Of the public permutation of the units, which must not depend on the data; None leaves them in their order.
    checkpoint : path, optional
        A file that holds the state after every :meth:`advance`, and goes on by :meth:`load` after a crash.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with the whole run here.

    Attributes
    ----------
    theta : (d,) ndarray
        What was released last.
    steps, horizon : int
        How many steps are released, and T.
    cost : Release

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.optimize import DPFTRL, glm
    >>> X = np.random.default_rng(0).normal(size=(2000, 3)) / 3
    >>> y = (X @ [1.0, -1.0, 0.0] > 0).astype(float)
    >>> run = DPFTRL(glm("logistic", clip=1.0), X, y, budget=Budget(2.0, 1e-6), epochs=4, batch=50, learning_rate=0.5)
    >>> theta = run.advance(40)
    >>> again = DPFTRL.restore(run.state(), glm("logistic", clip=1.0), X, y, unattended=True)
    >>> again.steps, again.horizon
    (40, 160)
    """

    _VERSION: ClassVar[int] = 1
    _LABEL: ClassVar[str] = "DP-FTRL"
    _PARAMETERS: ClassVar[tuple[str, ...]] = (
        "epochs",
        "batch",
        "learning_rate",
        "momentum",
        "cooldown",
        "iterate",
        "order_seed",
        "noise_multiplier",
    )
    _LEARNED: ClassVar[tuple[str, ...]] = ("_position", "_velocity", "_before", "_mean", "_t")

    def __init__(
        self,
        model: GLM | torch.nn.Module,
        X: ArrayLike | torch.Tensor | torch.utils.data.Dataset[Any],
        y: ArrayLike | torch.Tensor | None = None,
        *,
        budget: Budget,
        loss: Callable[[Any, Any], Any] | None = None,
        clip: float | None = None,
        constraint: ConvexSet | None = None,
        epochs: int = 10,
        batch: int | None = None,
        learning_rate: float | None = None,
        step_scale: float = 1.0,
        momentum: float = 0.0,
        cooldown: float = 0.0,
        factorization: Kind | Factorization = "banded",
        iterate: Literal["last", "tail", "average"] = "last",
        order_seed: int | None = 0,
        rows_at_once: int = 256,
        groups: ArrayLike | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.budget = checked_budget(budget, allowed=("replace", "zero_out"), people=True)
        self.constraint = constraint
        self._sums, start = sums_of(
            model, X, y, budget=budget, loss=loss, clip=clip, groups=groups, rows_at_once=rows_at_once
        )
        scale = positive("step_scale", step_scale)
        units = self._sums.units
        batch = max(1, math.isqrt(units)) if batch is None else batch
        z = calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), budget)
        self._rng = randomness.resolve(rng)
        self._configure(epochs, batch, learning_rate or 0.1, momentum, cooldown, iterate, order_seed, z)
        self._begin(start)
        self._prepare(factorization)
        if learning_rate is not None:
            self.learning_rate = positive("learning_rate", learning_rate)
        elif constraint is not None:
            T, noise = self.horizon, self._stream.noise_std(self.horizon) * self._share
            length = math.sqrt(T * self._sums.clip**2 + len(start) * noise**2)
            self.learning_rate = (1.0 - self.momentum) * constraint.diameter() / length
        self.learning_rate *= scale
        self._run = Run(self._LABEL, simulation=randomness.is_simulation(self._rng), ledger=ledger)
        if checkpoint is not None:
            self._run.keep_in(Path(checkpoint))  # first: where there is no room for it, nothing is charged
        self._run.charge(self.cost)
        if checkpoint is not None:
            files.write(checkpoint, {**self._tree(), "run": self._run.state()})

    def _configure(
        self,
        epochs: int,
        batch: int,
        learning_rate: float,
        momentum: float,
        cooldown: float,
        iterate: str,
        order_seed: int | None,
        noise_multiplier: float,
    ) -> None:
        """Check and keep the parameters of a state, and what follows from them."""
        units = self._sums.units
        if units == 0:
            raise ValueError("X must have rows, got none")
        self.epochs = integer("epochs", epochs, at_least=1)
        self.batch = integer("batch", batch, at_least=1)
        if self.batch > units:
            raise ValueError(f"batch must be at most the number of rows {units}, got batch={batch!r}")
        self.learning_rate = positive("learning_rate", learning_rate)
        self.momentum = fraction("momentum", momentum, include_zero=True)
        self.cooldown = fraction("cooldown", cooldown, include_zero=True, include_one=True)
        if iterate not in ("last", "tail", "average"):
            raise ValueError(f"iterate must be 'last', 'tail' or 'average', got iterate={iterate!r}")
        self.iterate = iterate
        self.order_seed = None if order_seed is None else integer("order_seed", order_seed, at_least=0)
        self.noise_multiplier = positive("noise_multiplier", noise_multiplier)
        self.batches = -(-units // self.batch)
        self.horizon = self.epochs * self.batches
        order = np.arange(units)
        if self.order_seed is not None:
            order = np.random.default_rng(self.order_seed).permutation(units)
        self._batches = np.array_split(order, self.batches)
        self._share = self.batches / units
        left = np.arange(self.horizon, 0, -1) / self.horizon
        self._rates = np.minimum(1.0, left / self.cooldown) if self.cooldown else np.ones(self.horizon)

    def _begin(self, start: Vector) -> None:
        """The state before the first step."""
        if self.constraint is not None:
            if self.constraint.dimension != len(start):
                raise ValueError(f"constraint must be of {len(start)} dimensions, got {self.constraint!r}")
            if not isinstance(self._sums, ModuleSums):
                start = self.constraint.center.copy()
        self._position = start
        self._velocity, self._before, self._mean = np.zeros((3, len(start)))
        self._t = self.steps = 0
        self.theta = self._at(start)

    def _prepare(self, factorization: Any) -> None:
        """Make the continual sum."""
        known: dict[str, Any] = {
            "shape": len(self._position),
            "sensitivity": self._sums.sensitivity(self.budget.adjacency),
            "noise_multiplier": self.noise_multiplier,
            "adjacency": self.budget.adjacency,
            "participations": self.epochs,
            "min_separation": self.batches,
            "rng": self._rng,
        }
        T = self.horizon
        self._kind = factorization if isinstance(factorization, str) else "given"
        match factorization:
            case "banded":
                made: Factorization = lowest_error(
                    T,
                    bands=_BANDS,
                    momentum=self.momentum,
                    rates=self._rates if self.cooldown else None,
                    participations=self.epochs,
                    min_separation=self.batches,
                )
            case "independent":
                made = Banded([1.0], T, inverse=False)
            case "buffered":
                self._stream: ContinualSum = BufferedToeplitz(horizon=T, **known)
                return
            case "tree":
                # its noise multiplier is that of one node
                once = BinaryTree(horizon=T, estimator="honaker", **known | {"noise_multiplier": 1.0, "rng": None})
                nodes = gdp(once.cost)
                known["noise_multiplier"] = self.noise_multiplier * nodes
                self._stream = BinaryTree(horizon=T, estimator="honaker", **known)
                return
            case Factorization():
                made = factorization
                if made.horizon != T:
                    raise ValueError(
                        f"factorization must have the horizon {T}, {self.epochs} epochs of {self.batches} batches, "
                        f"got horizon={made.horizon}"
                    )
            case _:
                raise ValueError(f"factorization must be one of {_KINDS} or a Factorization, got {factorization!r}")
        self._stream = ContinualSum(made, **known)

    @property
    def cost(self) -> Release:
        """What the whole run costs, whether or not all of its steps are used."""
        return Gaussian(self.noise_multiplier, adjacency=self.budget.adjacency)

    @property
    def nfev(self) -> int:
        """Gradients of units taken so far; public."""
        return int(sum(len(self._batches[t % self.batches]) for t in range(self.steps)))

    # ------------------------------------------------------------------------------------------------- steps

    def advance(self, steps: int | None = None) -> Vector:
        """Take steps, an epoch by default or as many as are left, and release the iterate after them, a new array.

        Raises
        ------
        ValueError, TypeError
            If none are left. Nothing changes.
        RunStopped
            If an earlier call was interrupted, the process is a fork of the run's, or somebody goes on with a state
            of it.
        """
        run = self._run
        run.check_process()
        with run.lock:
            run.check()
            count = self.batches if steps is None else integer("steps", steps, at_least=1)
            if self.steps >= self.horizon:
                raise ValueError(f"at most {self.horizon} steps may be taken, got one more")
            run.begin()
            for _ in range(min(count, self.horizon - self._t)):
                self._step()
            run.commit(self._tree)
            self._expose()
            given = self.theta.copy()
            run.end()
            return given

    def _step(self) -> None:
        t = self._t
        theta = self._at(self._position)
        total = self._stream.add(self._sums.at(theta, self._batches[t % self.batches]))
        self._velocity = self.momentum * self._velocity + (total - self._before) * self._share
        self._before = total
        self._position = self._position - self.learning_rate * self._rates[t] * self._velocity
        first = 0 if self.iterate == "average" else self.horizon // 2
        if self.iterate != "last" and t >= first:
            self._mean = self._mean + (self._at(self._position) - self._mean) / (t - first + 1)
        self._t = t + 1

    def _at(self, position: Vector) -> Vector:
        """θ, a new array."""
        return position.copy() if self.constraint is None else np.asarray(self.constraint.project(position))

    def _expose(self) -> None:
        averaged = self.iterate == "average" or (self.iterate == "tail" and self._t > self.horizon // 2)
        self.theta = self._mean.copy() if averaged else self._at(self._position)
        self.steps = self._t

    # ------------------------------------------------------------------------------------------------ states

    def _tree(self) -> dict[str, Any]:
        banded = self._stream._factorization if self._kind in ("banded", "independent") else None
        return {
            "learner": type(self).__name__,
            "version": self._VERSION,
            "problem": self._problem(),
            "budget": dataclasses.asdict(self.budget),
            "parameters": {name: getattr(self, name) for name in self._PARAMETERS},
            "factorization": self._kind,
            "coefficients": np.array(banded.coefficients if isinstance(banded, Banded) else []),
            "inverse": isinstance(banded, Banded) and banded.inverse,
            "sums": self._stream.kept(),
            "learned": kept(self, self._LEARNED),
            "generator": generator_text(self._rng),
        }

    def _problem(self) -> dict[str, Any]:
        """What the rows, the model and the set of a restored run must have in common with those of the saved one."""
        return {"units": self._sums.units, "dimension": len(self._position), "clip": self._sums.clip}

    def state(self) -> dict[str, Any]:
        """Everything that a later :meth:`restore` needs: a tree for :func:`dpkit.states.files.write`.

        The state is secret: exact sums over the rows follow from it. Of the secure source nothing is saved; of a
        simulation's generator its state is, so that the restored run continues bit for bit.

        Raises
        ------
        RunStopped
            As for :meth:`advance`.
        """
        self._run.check_process()
        with self._run.lock:
            return {**self._tree(), "run": self._run.state()}

    @classmethod
    def restore(
        cls,
        state: Mapping[str, Any],
        model: GLM | torch.nn.Module,
        X: ArrayLike | torch.Tensor | torch.utils.data.Dataset[Any],
        y: ArrayLike | torch.Tensor | None = None,
        *,
        loss: Callable[[Any, Any], Any] | None = None,
        constraint: ConvexSet | None = None,
        factorization: Factorization | None = None,
        rows_at_once: int = 256,
        groups: ArrayLike | None = None,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        unattended: bool = False,
    ) -> Self:
        """A run that continues where ``state`` was taken, with fresh noise; it was already paid for.

        Only one continuation, of the newest state, is private at the stated cost; the ledger sees to it.

        Parameters
        ----------
        state : mapping
            What :meth:`state` returned, or :func:`dpkit.states.files.read` found.
        model, X, y, loss, constraint, groups
            Those of the run that was saved, the same rows in the same order among them.
        factorization : Factorization, optional
            That of the run, if it was given one.
        rng, ledger, unattended
            As in :meth:`dpkit.optimize.OnlineFrankWolfe.restore`.

        Raises
        ------
        ValueError, TypeError
            If the state is not one of such a run, must not go on, or was not paid for in ``ledger``.
        """
        self = cls._rebuilt(state, model, X, y, loss, constraint, factorization, rows_at_once, groups, rng, ledger)
        self._run.resume(_part(state, "run"), ledger=ledger, unattended=unattended, once=True)
        return self

    @classmethod
    def load(
        cls,
        checkpoint: str | os.PathLike[str],
        model: GLM | torch.nn.Module,
        X: ArrayLike | torch.Tensor | torch.utils.data.Dataset[Any],
        y: ArrayLike | torch.Tensor | None = None,
        *,
        loss: Callable[[Any, Any], Any] | None = None,
        constraint: ConvexSet | None = None,
        factorization: Factorization | None = None,
        rows_at_once: int = 256,
        groups: ArrayLike | None = None,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        unattended: bool = False,
    ) -> Self:
        """Go on with the checkpoint of a run that was interrupted, and keep it from here on; see :meth:`restore`.

        What was taken after the last whole :meth:`advance` is taken again, with fresh noise: nobody has seen it.
        """
        path = Path(checkpoint)
        hold = files.hold(path)
        try:
            state, digest = newest(path, ledger)
            self = cls._rebuilt(state, model, X, y, loss, constraint, factorization, rows_at_once, groups, rng, ledger)
            self._run.resume(_part(state, "run"), ledger=ledger, unattended=unattended, digest=digest)
        except BaseException:
            hold.close()
            raise
        self._run.keep_in(path, hold)
        for draft in files.drafts(path):  # never marked, so that nobody saw what is in them
            draft.unlink()
        return self

    @classmethod
    def _rebuilt(
        cls,
        state: Mapping[str, Any],
        model: Any,
        X: Any,
        y: Any,
        loss: Any,
        constraint: ConvexSet | None,
        factorization: Factorization | None,
        rows_at_once: int,
        groups: ArrayLike | None,
        rng: np.random.Generator | None,
        ledger: Ledger | None,
    ) -> Self:
        """The run of a state, without the right to go on."""
        check_kind(state, "learner", cls.__name__, cls._VERSION)
        parts = {name: _part(state, name) for name in ("problem", "budget", "parameters", "sums", "learned")}
        self = cls.__new__(cls)
        self.budget = checked_budget(Budget(**parts["budget"]), allowed=("replace", "zero_out"), people=True)
        self.constraint = constraint
        clip = None if isinstance(model, GLM) else parts["problem"].get("clip")
        self._sums, start = sums_of(
            model, X, y, budget=self.budget, loss=loss, clip=clip, groups=groups, rows_at_once=rows_at_once
        )
        self._rng = generator(conform("generator", state.get("generator"), like=""), rng)
        if set(parts["parameters"]) != set(cls._PARAMETERS):
            raise ValueError(f"parameters must be {cls._PARAMETERS}, got {sorted(parts['parameters'])}")
        self._configure(**parts["parameters"])
        self._begin(start)
        if parts["problem"] != self._problem():
            raise ValueError(f"model and X must be those of the saved run, {parts['problem']}, got {self._problem()}")
        kind = conform("factorization", state.get("factorization"), like="")
        if (factorization is not None) != (kind == "given"):
            raise ValueError(f"factorization must be given if the saved run was given one, got {factorization!r}")
        made: Any = kind if factorization is None else factorization
        if kind in ("banded", "independent"):  # as it was found then: another search may end elsewhere
            made = Banded(state.get("coefficients", ()), self.horizon, inverse=bool(state.get("inverse")))
        self._prepare(made)
        self._kind = kind
        self._stream.resume(parts["sums"])
        resume(self, cls._LEARNED, parts["learned"])
        if self._t != self._stream.steps:
            raise ValueError(f"state must hold as many sums as steps, got {self._stream.steps} and {self._t}")
        if ledger is not None and not any(row.release == self.cost for row in ledger.rows()):
            raise ValueError(f"ledger must hold the cost of what is restored, {self.cost!r}, got other rows only")
        self._expose()
        self._run = Run(self._LABEL, simulation=randomness.is_simulation(self._rng))
        return self

    def result(self, message: str = "") -> OptimizeResult:
        """What was released so far, as :func:`dp_ftrl` returns it."""
        more: dict[str, Any] = {}
        x = self.theta.copy()
        if isinstance(self._sums, ModuleSums):
            more["module"] = self._sums.released(x)
        found = outcome(
            x,
            self.cost,
            nit=self.steps,
            nfev=self.nfev,
            message=message or f"{self.steps} of {self.horizon} steps, {self.batches} an epoch",
            clipped=self._sums.clipped,
            epsilon=min(self.budget.epsilon, float(epsilon(self.cost, self.budget.delta))),
            noise_multiplier=self.noise_multiplier,
            learning_rate=self.learning_rate,
            **more,
        )
        found.success = self.steps == self.horizon
        return found


def _part(state: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = state.get(name)
    if not isinstance(part, Mapping):
        raise ValueError(f"state must have a tree of entries {name!r}, got entries {sorted(state)}")
    return part


def dp_ftrl(
    model: GLM | torch.nn.Module,
    X: ArrayLike | torch.Tensor | torch.utils.data.Dataset[Any],
    y: ArrayLike | torch.Tensor | None = None,
    *,
    budget: Budget,
    callback: Callable[[OptimizeResult], object] | None = None,
    **parameters: Any,
) -> OptimizeResult:
    """Train a GLM or a torch module by DP-FTRL, over several epochs in a fixed public order.

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
        See :func:`dpkit.optimize.result.outcome`: ``x`` is θ, or the trainable parameters as one vector, ``cost`` what
        was charged. Also ``epsilon``, ``noise_multiplier``, ``learning_rate`` and, for a torch module, ``module``. A
        ``KeyboardInterrupt`` ends the run: what was released before it is returned, with ``success=False``, and with a
        ``checkpoint`` :meth:`DPFTRL.load` goes on from there.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range, or rows that are not finite. Nothing is drawn or charged.
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
    try:
        while run.steps < run.horizon:
            run.advance()
            if callback is not None:
                callback(run.result())
    except KeyboardInterrupt:
        return run.result(f"interrupted after {run.steps} of {run.horizon} steps")
    return run.result()
