"""What the policy of an experiment, or a saved state of it, has released: as results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from accounting import Budget, Laplace
from dpbandits.durability.state import kind_name
from dpbandits.experiment.policy import ExperimentPolicy
from dpbandits.experiment.results import ExperimentResults
from dpbandits.experiment.setting import Setting
from dpkit.moments.trial_batches import STEPS
from dpkit.states import files
from dpkit.states.entries import conform, generator

__all__ = ["results_in", "results_of"]


def results_of(policy: ExperimentPolicy) -> ExperimentResults:
    """What a policy has released, and public numbers."""
    with policy.lock:
        public, arms = policy.public, tuple(policy.arms)
        noise: Literal["laplace", "gaussian"] = "laplace" if isinstance(policy.sums.cost, Laplace) else "gaussian"
        most, report = int(public.closed.max()), policy.privacy(policy.budget.delta)
        assigned = dict(zip(arms, policy.sums.totals(policy.decisions).tolist(), strict=True))
        found: list[ExperimentResults] = []
        for metric, (name, (low, high)) in enumerate(policy.metrics.items()):
            setting = Setting(
                arms=arms,
                baseline=policy.baseline,
                metric=name,
                low=low,
                high=high,
                missing=policy.missing[name],
                alpha=policy.alpha,
                assignment=policy.assignment,
                horizon=int(policy.horizon or 0),
                noise=noise,
                scale=policy.sums.scale,
                steps=STEPS,
            )
            one = ExperimentResults(
                setting,
                assigned=assigned,
                sums=public.sums[:, :most, metric].copy(),
                counts=public.counts[:, :most].copy(),
                when=public.when[:, :most].copy(),
                center=public.center[:, metric].copy(),
                spread=public.spread[:, metric].copy(),
                spent=str(report),
                simulation=report.simulation,
                stopped=public.stopped,
            )
            found.append(one)
        best = arms[public.found - 1] if public.found else None
        return replace(found[0], best=best, others=tuple(one.with_best() for one in found[1:]))


def results_in(path: str | Path) -> ExperimentResults:
    """The results in a saved state or a checkpoint, as of then, without going on with the experiment.

    Raises
    ------
    ValueError
        If it is damaged, or no state of an experiment.
    """
    tree, _ = files.read(path)
    if tree.get("policy") != kind_name(ExperimentPolicy):
        raise ValueError(f"path must hold the state of an experiment, got another file, {path}")
    try:
        config = {**tree["config"], "budget": Budget(**tree["config"]["budget"])}
        policy = ExperimentPolicy(**config, rng=generator(conform("generator", tree["generator"], ""), None))
        policy.resume(tree["learned"])
        policy.decisions = conform("decisions", tree["decisions"], 0)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"path must hold a state that fits together, got {path}: {error!r}") from error
    return results_of(policy)
