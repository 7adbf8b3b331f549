"""A run of DP-FTRL: the steps, and what is released when. What it computes and what it costs: ``dp_ftrl``'s module.

One class: its steps, its states and its checkpoints are one transaction. Half of the file is what its parameters mean.
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

from accounting import Adjacency, Budget, Gaussian, Release, calibrate, epsilon
from accounting.checks import fraction, integer, positive
from accounting.printed import as_html, parameter_cells
from dpkit import randomness
from dpkit.continual import Banded, Factorization
from dpkit.geometry import ConvexSet
from dpkit.models.losses import GLM
from dpkit.optimize.parts.cyclic_batches import CyclicBatches, Sampling, amplified, cyclic_batches
from dpkit.optimize.parts.ftrl_noise import Kind, learning_rates, noise_stream
from dpkit.optimize.parts.training_rows import ModuleSums, sums_of
from dpkit.states import Run, Unrepeatable, files
from dpkit.states.entries import check_kind, conform, generator, generator_text, kept, resume
from dpkit.states.run import newest
from dpkit.training.result import outcome
from dpkit.training.rows import checked_budget, public_count

if TYPE_CHECKING:
    import torch
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one

__all__ = ["DPFTRL"]

Vector = NDArray[np.float64]


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
        Counted by "replace" or "zero_out"; where batches are sampled, by "replace" or "add_remove".
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
        noise that is not correlated, DP-SGD without amplification. Or one of your own, with a horizon of T. Where
        batches are sampled: "banded", the optimal one with so many ``bands`` of C; "independent", one band, which is
        DP-SGD; or a ``Banded`` of your own with bands of C.
    sampling : {"fixed_order", "cyclic_poisson", "cyclic_balls_in_bins"}
        How batches are made: in the public order, or at random from one of ``bands`` subsets after the other, which
        amplifies privacy (:mod:`dpkit.optimize.parts.cyclic_batches`).
    bands : int, optional
        b, where batches are sampled: the number of subsets, and of bands of C, at most the number of batches in an
        epoch. By default the one with the smallest error for the budget, at most 64.
    iterate : {"last", "tail", "average"}
        What is released: the last iterate, or the mean of those since step T/2 or since the first.
    order_seed : int, optional
        Of the public permutation of the units, which must not depend on the data; None leaves them in their order. Not
        used where batches are sampled.
    public_rows : int, optional
        The public number of units, where batches are sampled; by default the true one. Required under add_remove.
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

    # of runs in a fixed order, and of those with sampled batches, which older code would take for the former
    _VERSION: ClassVar[int] = 1
    _SAMPLED: ClassVar[int] = 2
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
    learning_rate: float
    noise_multiplier: float
    # None in a fixed order
    _cycle: CyclicBatches | None = None
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
        sampling: Sampling = "fixed_order",
        bands: int | None = None,
        iterate: Literal["last", "tail", "average"] = "last",
        order_seed: int | None = 0,
        public_rows: int | None = None,
        rows_at_once: int = 256,
        groups: ArrayLike | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        sampled = sampling != "fixed_order"
        if not sampled and isinstance(budget, Budget) and budget.adjacency == "add_remove":
            raise ValueError(
                "sampling must be 'cyclic_balls_in_bins' or 'cyclic_poisson' for a budget by 'add_remove', as a unit "
                f"that comes or goes would shift a fixed order, got sampling={sampling!r} and {budget!r}"
            )
        self.budget = checked_budget(budget, allowed=_allowed(sampled), people=True)
        if not sampled and (bands is not None or public_rows is not None):
            raise ValueError(
                "bands and public_rows must be None in a fixed order, which takes its bands by its factorization, got "
                f"bands={bands!r} and public_rows={public_rows!r}"
            )
        self.constraint = constraint
        self._sums, start = sums_of(
            model, X, y, budget=budget, loss=loss, clip=clip, groups=groups, rows_at_once=rows_at_once
        )
        scale = positive("step_scale", step_scale)
        self._units = public_count(self._sums.units, public_rows, budget.adjacency)
        batch = max(1, math.isqrt(self._units)) if batch is None else batch
        self._rng = randomness.resolve(rng)
        self._configure(epochs, batch, learning_rate or 0.1, momentum, cooldown, iterate, order_seed, 1.0)
        self._begin(start)
        self._kind = factorization if isinstance(factorization, str) else "given"
        if sampled:
            schedule, factorization, z = cyclic_batches(
                sampling,
                bands,
                factorization,
                budget=budget,
                epochs=self.epochs,
                batches=self.batches,
                momentum=self.momentum,
                rates=self._rates if self.cooldown else None,
            )
            self._cycle = CyclicBatches.drawn(schedule, self._sums.units, self._rng)
        else:
            z = calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), budget)
        self.noise_multiplier = z
        self._prepare(factorization)
        if learning_rate is not None:
            self.learning_rate = positive("learning_rate", learning_rate)
        elif constraint is not None:
            T, noise = self.horizon, self._stream.noise_std(self.horizon) * self._share
            length = math.sqrt(T * self._sums.clip**2 + len(start) * noise**2)
            self.learning_rate = (1.0 - self.momentum) * constraint.diameter() / length
        self.learning_rate *= scale
        self._run = Run(self._label, simulation=randomness.is_simulation(self._rng), ledger=ledger)
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
        units = self._units
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
        self._rates = learning_rates(self.horizon, self.cooldown)

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
        """Make the continual sum: a unit enters it once an epoch, or where batches are sampled once in a block."""
        relation: Adjacency = self.budget.adjacency if self._cycle is None else "add_remove"
        self._stream = noise_stream(
            factorization,
            horizon=self.horizon,
            momentum=self.momentum,
            rates=self._rates if self.cooldown else None,
            epochs=self.epochs if self._cycle is None else 1,
            batches=self.batches,
            noise_multiplier=self.noise_multiplier,
            shape=len(self._position),
            sensitivity=self._sums.sensitivity(relation),
            adjacency=relation,
            rng=self._rng,
        )

    def __repr__(self) -> str:
        return (
            f"DPFTRL(epochs={self.epochs}, batch={self.batch:,}, adjacency={self.budget.adjacency!r}): "
            f"{self.steps:,} of {self.horizon:,} steps, which cost {self.cost!r}"
        )

    def _repr_html_(self) -> str:
        shown = {name: getattr(self, name) for name in self._PARAMETERS}
        return as_html(repr(self), parameter_cells({"budget": self.budget, "factorization": self._kind} | shown))

    @property
    def cost(self) -> Release:
        """What the whole run costs, whether or not all of its steps are used."""
        if self._cycle is not None:
            return self._cycle.schedule.price(self.noise_multiplier, self.budget.adjacency)
        return Gaussian(self.noise_multiplier, adjacency=self.budget.adjacency)

    @property
    def _label(self) -> str:
        return self._LABEL if self._cycle is None else f"{self._LABEL}, {self._cycle.schedule.said}"

    @property
    def nfev(self) -> int:
        """Gradients of units taken so far, or the expected number where batches are sampled; public."""
        if self._cycle is not None:
            return round(self.steps / self._share)
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
        rows = self._batches[t % self.batches] if self._cycle is None else self._cycle.at(t, self._rng)
        total = self._stream.add(self._sums.at(theta, rows))
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
        """What a state holds, but the right to go on."""
        banded = self._stream._factorization if self._kind in ("banded", "independent") else None
        cycle = self._cycle
        return {
            "learner": type(self).__name__,
            "version": self._VERSION if cycle is None else self._SAMPLED,
            **({} if cycle is None else {"samples": {"units": self._units, **cycle.kept()}}),
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
        self._run.resume(_tree_in(state, "run"), ledger=ledger, unattended=unattended, once=True)
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
            self._run.resume(_tree_in(state, "run"), ledger=ledger, unattended=unattended, digest=digest)
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
        sampled = "samples" in state
        check_kind(state, "learner", cls.__name__, cls._SAMPLED if sampled else cls._VERSION)
        parts = {name: _tree_in(state, name) for name in ("problem", "budget", "parameters", "sums", "learned")}
        run = cls.__new__(cls)
        run.budget = checked_budget(Budget(**parts["budget"]), allowed=_allowed(sampled), people=True)
        run.constraint = constraint
        clip = None if isinstance(model, GLM) else parts["problem"].get("clip")
        run._sums, start = sums_of(
            model, X, y, budget=run.budget, loss=loss, clip=clip, groups=groups, rows_at_once=rows_at_once
        )
        run._rng = generator(conform("generator", state.get("generator"), like=""), rng)
        if set(parts["parameters"]) != set(cls._PARAMETERS):
            raise ValueError(f"parameters must be {cls._PARAMETERS}, got {sorted(parts['parameters'])}")
        samples = _tree_in(state, "samples") if sampled else {"units": run._sums.units}
        run._units = conform("units", samples.get("units"), like=0)
        run._configure(**parts["parameters"])
        if sampled:
            run._cycle = CyclicBatches.resumed(samples, run._sums.units, run.epochs, run.batches)
        run._begin(start)
        if parts["problem"] != run._problem():
            raise ValueError(f"model and X must be those of the saved run, {parts['problem']}, got {run._problem()}")
        kind = conform("factorization", state.get("factorization"), like="")
        if (factorization is not None) != (kind == "given"):
            raise ValueError(f"factorization must be given if the saved run was given one, got {factorization!r}")
        made: Any = kind if factorization is None else factorization
        if kind in ("banded", "independent"):  # as it was found then: another search may end elsewhere
            made = Banded(state.get("coefficients", ()), run.horizon, inverse=bool(state.get("inverse")))
        if run._cycle is not None:
            made = amplified(made, run.horizon, run._cycle.schedule.bands)
        run._prepare(made)
        run._kind = kind
        run._stream.resume(parts["sums"])
        resume(run, cls._LEARNED, parts["learned"])
        if run._t != run._stream.steps:
            raise ValueError(f"state must hold as many sums as steps, got {run._stream.steps} and {run._t}")
        if ledger is not None and not ledger.holds(run.cost):
            raise ValueError(f"ledger must hold the cost of what is restored, {run.cost!r}, got other rows only")
        run._expose()
        run._run = Run(run._label, simulation=randomness.is_simulation(run._rng))
        return run

    def result(self, message: str = "") -> OptimizeResult:
        """What was released so far, as :func:`dp_ftrl` returns it."""
        more: dict[str, Any] = {}
        x = self.theta.copy()
        if isinstance(self._sums, ModuleSums):
            more |= {"module": self._sums.released(x), "path": self._sums.path}
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


def _allowed(sampled: bool) -> tuple[Adjacency, ...]:
    """The neighbouring relations that are proved: a unit that comes or goes would shift a public order."""
    return ("replace", "add_remove") if sampled else ("replace", "zero_out")


def _tree_in(state: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = state.get(name)
    if not isinstance(found, Mapping):
        raise ValueError(f"state must have a tree of entries {name!r}, got entries {sorted(state)}")
    return found
