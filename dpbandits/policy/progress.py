"""How far a private run has come, from what it has released, at no cost: ``policy.progress()``.

For whoever asks, in the middle of a run, whether it learns anything. Everything here is a function of releases and
public numbers: post-processing, which may be published.

*Signal over noise.* Let an estimate along a direction (or of an arm) have the mean m, by the data and a prior N(0, v),
and the posterior variance s = v(1 − a), of which the data hold the share a. By the data alone it is m/a, with the
standard error √(s/a): the signal is |m|/√(s·a), how many of its standard errors the estimate is from what was expected
beforehand. It is about 1 where nothing but noise was seen. Directions are those in which the data know most and least
in comparison with the prior, best known first.

*Pace.* Where a run learns nothing noise is what hinders it. Sums grow with the rounds, and their noise (next to) not,
so that squares of signals, less the 1 of each that is noise, grow with their square. With n signals z and a share f of
all rounds, (Σ(z² − 1) + √(2n))/f² is what Σ(z² − 1) will be at the end, at best: √(2n) is one standard deviation of
noise, in favour of the run. Below 9, one signal of three standard errors, and below 3√(2n), nothing will be told from
noise at the end either. That is asked after every release from f = 0.3 on.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting.arrays import Array
from accounting.printed import as_html, as_text
from dpkit.models.prior import Prior

if TYPE_CHECKING:
    from dpbandits.policy.private import PrivatePolicy

__all__ = ["Found", "Progress", "along", "found_along", "hopeless", "look", "noise_alone", "of", "rms"]

# of all rounds, before which nothing is said
_EARLY = 0.3
# of shorter runs, which are trials, nothing is said either
_SHORTEST = 1000
# standard errors from which on a signal is no noise
_CLEAR = 3.0
# below it the data say nothing of a direction
_LEAST_SHARE = 1e-9
_SHOWN = 12


@dataclass(frozen=True)
class Found:
    """What a policy says of what it has found.

    Attributes
    ----------
    signal : dict of str to float
        By direction or arm.
    freedom : int
        How many of them could differ by noise alone.
    length : float, optional
        ‖θ‖; of several the largest.
    predicted, seen : float, optional
        The mean reward by the model and by the sums, in the units of the policy.
    cut : float, optional
        The share of rewards that were clipped.
    missing : dict of str to str
        Why something is not known.
    """

    signal: Mapping[str, float] = field(default_factory=dict)
    freedom: int = 0
    length: float | None = None
    predicted: float | None = None
    seen: float | None = None
    cut: float | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Progress:
    """How far a run has come; made by :meth:`dpbandits.PrivatePolicy.progress`.

    Attributes
    ----------
    policy : str
    rounds, releases : int
        Decisions, and releases, so far.
    horizon : int or None
        T.
    reward_range : (float, float) or None
        As it was stated or learned; None before it is learned.
    signal : dict of str to float
        The signal over its noise, by arm or by direction of θ: about 1 where there is nothing but noise, and from 3 on
        it is hardly noise.
    theta_length, theta_bound : float or None
        ‖θ‖ and S. A length near S means that S is too small, or the base rate far off; but of a parameter for each arm,
        where S is one standard deviation of each entry.
    predicted, seen : float or None
        The mean reward so far as the model says it, and by the released sums.
    cut : float or None
        The share of rewards that were clipped.
    missing : dict of str to str
        For what is None, or empty, the reason.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpbandits.policies import PrivateArms
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = PrivateArms(["red", "blue"], budget=Budget(4.0, 0.0), horizon=2000, rng=rng)
    >>> for _ in range(1000):
    ...     decision = policy.select()
    ...     policy.update(decision, float(rng.random() < {"red": 0.2, "blue": 0.6}[decision.name]))
    >>> max(policy.progress().signal.values()) > 1.0
    True
    """

    policy: str
    rounds: int
    horizon: int | None
    releases: int
    reward_range: tuple[float, float] | None
    signal: Mapping[str, float]
    theta_length: float | None
    theta_bound: float | None
    predicted: float | None
    seen: float | None
    cut: float | None
    missing: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """All fields, as JSON takes them."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        ends = self.reward_range
        return values | {
            "signal": dict(self.signal),
            "missing": dict(self.missing),
            "reward_range": None if ends is None else [one if math.isfinite(one) else None for one in ends],
        }

    def __repr__(self) -> str:
        return f"{self._title()}\n{as_text(self._cells())}"

    def _repr_html_(self) -> str:
        return as_html(self._title(), self._cells())

    def _title(self) -> str:
        rounds = "" if self.horizon is None else f" of {self.horizon:,}"
        return f"{self.policy}: {self.rounds:,}{rounds} rounds, {self.releases} releases"

    def _cells(self) -> list[list[str]]:
        shown = list(self.signal.items())[:_SHOWN]
        cells = [["what", "value"], *([f"signal over noise, {name}", f"{value:.1f}"] for name, value in shown)]
        if len(self.signal) > _SHOWN:
            cells.append([f"signal over noise, {len(self.signal) - _SHOWN} others", f"up to {self._rest():.1f}"])
        ends = None if self.reward_range is None else f"{self.reward_range[0]:.6g} to {self.reward_range[1]:.6g}"
        bound = "" if self.theta_bound is None else f" (theta_bound={self.theta_bound:.4g})"
        cells += [
            ["range of rewards", self._or_why("reward_range", ends)],
            ["length of θ", self._or_why("theta_length", self.theta_length, bound)],
            ["mean reward, predicted", self._or_why("predicted", self.predicted)],
            ["mean reward, seen", self._or_why("seen", self.seen)],
            ["share of rewards cut", self._or_why("cut", self.cut)],
        ]
        if not self.signal:
            cells.insert(1, ["signal over noise", self._or_why("signal", None)])
        return cells

    def _rest(self) -> float:
        return max(list(self.signal.values())[_SHOWN:])

    def _or_why(self, name: str, value: float | str | None, more: str = "") -> str:
        if value is None:
            return f"not known: {self.missing.get(name, 'nothing was released yet')}"
        return (value if isinstance(value, str) else f"{value:.4g}") + more


def along(mean: Array, covariance: Array, prior: Prior) -> dict[str, float]:
    """The signal along each direction, of an estimate by data and a prior.

    Examples
    --------
    Known twice as well as beforehand, and three standard errors from there; and not known at all:

    >>> import numpy as np
    >>> found = along(np.array([1.5, 0.0]), np.diag([0.5, 1.0]), Prior(np.zeros(2), np.eye(2)))
    >>> {name: round(value, 12) for name, value in found.items()}
    {'direction 1': 3.0, 'direction 2': 0.0}
    """
    eigenvalues, V = np.linalg.eigh(prior.precision)
    whiten = (V * np.sqrt(eigenvalues)) @ V.T
    left, U = np.linalg.eigh(whiten @ covariance @ whiten)
    share = np.clip(1.0 - left, 0.0, 1.0)
    seen = np.abs(U.T @ whiten @ (mean - prior.mean))
    error = np.sqrt(np.maximum(left, 0.0) * share)
    signal = np.where(share > _LEAST_SHARE, seen / np.maximum(error, _LEAST_SHARE), 0.0)
    return {f"direction {i + 1}": float(one) for i, one in enumerate(signal)}


def found_along(theta: Array, covariance: Array, prior: Prior, cut: float | None) -> Found:
    """What was found by a policy with one θ."""
    signal = along(theta, covariance, prior)
    missing = dict.fromkeys(("predicted", "seen"), "sums of x·r do not tell the mean of r")
    return Found(signal, len(signal), float(np.linalg.norm(theta)), cut=cut, missing=missing)


def rms(values: Mapping[str, float]) -> float:
    """The root mean square."""
    return math.sqrt(sum(one**2 for one in values.values()) / max(1, len(values)))


def of(policy: PrivatePolicy[Any]) -> Progress:
    """The progress of a policy; behind its lock."""
    found, missing = policy.found(), {"cut": "which rewards are cut is not released"}
    ends = policy.reward_range if policy.scale is None else policy.scale.found
    if ends is None:
        missing["reward_range"] = "it is not learned yet"

    def in_rewards(value: float | None) -> float | None:
        return None if value is None else policy.in_rewards(value)

    return Progress(
        type(policy).__name__,
        policy.decisions,
        policy.horizon,
        policy.releases,
        ends,
        dict(found.signal),
        found.length,
        getattr(policy.chooser(), "theta_bound", None),
        in_rewards(found.predicted),
        in_rewards(found.seen),
        found.cut if policy.scale is None and policy.on_violation == "raise" else None,
        missing | dict(found.missing),
    )


def noise_alone(found: Found, share: float) -> bool:
    """Whether no more than noise will have been found at the end, at the pace of this share of all rounds.

    Examples
    --------
    >>> two = Found({"a": 1.2, "b": 0.3}, freedom=2)
    >>> noise_alone(two, 0.5), noise_alone(Found({"a": 3.0, "b": 0.3}, freedom=2), 0.5), noise_alone(two, 0.2)
    (True, False, False)
    """
    if share < _EARLY or found.freedom < 1 or not any(found.signal.values()):
        return False  # it is early, or there is no estimate: a policy may play at random until it knows a level
    energy, chance = sum(one**2 for one in found.signal.values()) - found.freedom, math.sqrt(2.0 * found.freedom)
    return (energy + chance) / share**2 < max(_CLEAR**2, _CLEAR * chance)


def hopeless(policy: PrivatePolicy[Any]) -> bool:
    """Whether a run has learned nothing, and will not; of one that forgets nobody knows."""
    T, forgets = policy.horizon, getattr(policy, "discount", None) is not None
    return T is not None and not forgets and T >= _SHORTEST and noise_alone(policy.found(), policy.decisions / T)


def look(policy: PrivatePolicy[Any], told: set[str]) -> None:
    """After releases: say once that a run learns nothing, and once that rewards are not what its model says.

    ``told`` holds what was said. Of a run in epochs nothing is: one that is too short says little of the next one.

    A ``misfit`` in the public half is the mean residual of rewards along θ, where it is far from 0: (r − μ)·xᵀθ on
    average. As μ − c₀ has the sign of xᵀθ, which no sum tells, rewards are known to be farther from the base rate c₀
    than the model says, or nearer to it, but not whether they are above or below.
    """
    if policy.chooser() is not policy:
        return
    misfit = getattr(policy.public, "misfit", 0.0)
    if "pace" not in told and hopeless(policy):
        told.add("pace")
        _warn(
            f"{type(policy).__name__}: what it has learned cannot be told from noise yet, and at this pace will not be "
            f"by the horizon: after {policy.decisions:,} of {policy.horizon:,} rounds signals are "
            f"{rms(policy.found().signal):.2g} times their noise, where 1 is noise alone. A larger ε or a longer "
            f"horizon would help{', a base_rate that is known' if policy.stated_base_rate is None else ''}, fewer "
            "features or arms, and above all a reward_range no wider than rewards are, or reward_range='learned'; see "
            "policy.progress()"
        )
    if "fit" not in told and misfit:
        told.add("fit")
        far = "much farther from" if misfit > 0 else "much nearer to"
        side = "" if misfit > 0 else ", or on its other side,"
        _warn(
            f"rewards are {far} base_rate={policy.base_rate:g}{side} than the model says of the arms that it prefers: "
            "the base rate may be far off; state a better guess, or give every arm a constant feature"
        )


def _warn(message: str) -> None:
    # to whoever called the policy's ``select``
    warnings.warn(message, stacklevel=5)
