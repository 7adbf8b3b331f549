"""States of DP-FTRL: what is saved of a run, and a run made of what was saved."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from accounting import Budget
from dpkit import randomness, states
from dpkit.continual import Banded, Factorization
from dpkit.geometry import ConvexSet
from dpkit.models.losses import GLM
from dpkit.optimize.parts.rows import checked_budget
from dpkit.optimize.parts.training_rows import sums_of
from dpkit.states.entries import check_kind, conform, generator, generator_text, kept, resume

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one
    from dpkit.optimize.parts.ftrl_run import DPFTRL

    Made = TypeVar("Made", bound=DPFTRL)

__all__ = ["part", "rebuilt", "tree"]


def tree(run: DPFTRL) -> dict[str, Any]:
    """What a state holds, but the right to go on."""
    banded = run._stream._factorization if run._kind in ("banded", "independent") else None
    return {
        "learner": type(run).__name__,
        "version": run._VERSION,
        "problem": problem(run),
        "budget": dataclasses.asdict(run.budget),
        "parameters": {name: getattr(run, name) for name in run._PARAMETERS},
        "factorization": run._kind,
        "coefficients": np.array(banded.coefficients if isinstance(banded, Banded) else []),
        "inverse": isinstance(banded, Banded) and banded.inverse,
        "sums": run._stream.kept(),
        "learned": kept(run, run._LEARNED),
        "generator": generator_text(run._rng),
    }


def problem(run: DPFTRL) -> dict[str, Any]:
    """What the rows, the model and the set of a restored run must have in common with those of the saved one."""
    return {"units": run._sums.units, "dimension": len(run._position), "clip": run._sums.clip}


def part(state: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A tree within a state."""
    found = state.get(name)
    if not isinstance(found, Mapping):
        raise ValueError(f"state must have a tree of entries {name!r}, got entries {sorted(state)}")
    return found


def rebuilt(
    cls: type[Made],
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
) -> Made:
    """The run of a state, without the right to go on."""
    check_kind(state, "learner", cls.__name__, cls._VERSION)
    parts = {name: part(state, name) for name in ("problem", "budget", "parameters", "sums", "learned")}
    run = cls.__new__(cls)
    run.budget = checked_budget(Budget(**parts["budget"]), allowed=("replace", "zero_out"), people=True)
    run.constraint = constraint
    clip = None if isinstance(model, GLM) else parts["problem"].get("clip")
    run._sums, start = sums_of(
        model, X, y, budget=run.budget, loss=loss, clip=clip, groups=groups, rows_at_once=rows_at_once
    )
    run._rng = generator(conform("generator", state.get("generator"), like=""), rng)
    if set(parts["parameters"]) != set(cls._PARAMETERS):
        raise ValueError(f"parameters must be {cls._PARAMETERS}, got {sorted(parts['parameters'])}")
    run._configure(**parts["parameters"])
    run._begin(start)
    if parts["problem"] != problem(run):
        raise ValueError(f"model and X must be those of the saved run, {parts['problem']}, got {problem(run)}")
    kind = conform("factorization", state.get("factorization"), like="")
    if (factorization is not None) != (kind == "given"):
        raise ValueError(f"factorization must be given if the saved run was given one, got {factorization!r}")
    made: Any = kind if factorization is None else factorization
    if kind in ("banded", "independent"):  # as it was found then: another search may end elsewhere
        made = Banded(state.get("coefficients", ()), run.horizon, inverse=bool(state.get("inverse")))
    run._prepare(made)
    run._kind = kind
    run._stream.resume(parts["sums"])
    resume(run, cls._LEARNED, parts["learned"])
    if run._t != run._stream.steps:
        raise ValueError(f"state must hold as many sums as steps, got {run._stream.steps} and {run._t}")
    if ledger is not None and not any(row.release == run.cost for row in ledger.rows()):
        raise ValueError(f"ledger must hold the cost of what is restored, {run.cost!r}, got other rows only")
    run._expose()
    run._run = states.Run(run._LABEL, simulation=randomness.is_simulation(run._rng))
    return run
