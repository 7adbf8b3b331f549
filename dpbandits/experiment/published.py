"""What the policy of an experiment has released, as results."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from accounting import Laplace
from dpbandits.experiment.policy import ExperimentPolicy
from dpbandits.experiment.results import ExperimentResults
from dpbandits.experiment.setting import Setting
from dpkit.moments.trial_batches import STEPS

__all__ = ["results_of"]


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
