"""When an experiment knows enough: which arm is best, that no arm is worth it, or that its time is over.

* *Best*: arm b, once for every other arm a the e-value for "μ_b ≤ μ_a" has reached K/α. A wrong b must pass a true
  hypothesis, namely that of an arm which is at least as good, and there are at most K such b: so with probability 1 − α
  no arm is ever called best that is not the only best one, however often anybody looks.
* *Futile*: once for every arm a the e-value for "μ_a − μ_baseline ≥ w" has reached 1/α. Where some arm is better by w,
  its hypothesis is true, and passed with probability at most α.
* *A date*: no decision is made from then on. It is no function of the data.

Assignment by ``top_two`` serves the first: half of the decisions go to the arm that is probably best, the others to its
challengers, each by its chance to be the best one (Russo 2020, "Simple Bayesian Algorithms for Best-Arm
Identification"). The e-values hold for any assignment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal

import numpy as np

from accounting.arrays import Array
from dpbandits.experiment.sequences import Evidence, Sequences

__all__ = ["Stop", "best_arm", "chances", "futile", "stop_text", "top_two"]

# in lengths of the range; and chances to be best that are no smaller in shares, so that all are ratios of numbers
_LEAST_SPREAD, _LEAST_CHANCE = 1e-12, 1e-9
# in standard deviations
_NODES = np.linspace(-8.0, 8.0, 129)


@dataclass(frozen=True)
class Stop:
    """When an experiment ends by itself.

    Attributes
    ----------
    kind : {"best", "futile", "date", "never"}
    worthwhile : float
        By how much an arm must be better than the baseline, in lengths of the range.
    until : float
        Seconds since 1970, for a date.
    """

    kind: Literal["best", "futile", "date", "never"]
    worthwhile: float = 0.0
    until: float = math.inf

    @classmethod
    def of(cls, stop_when: str | None, worthwhile: float) -> Stop:
        """As an experiment's arguments say."""
        if not 0.0 <= worthwhile < 1.0:
            raise ValueError(
                f"worthwhile must be at least 0 and less than the length of metric_range, got {worthwhile!r} of it"
            )
        if stop_when in ("best", "futile"):
            return cls(stop_when, worthwhile)  # type: ignore[arg-type]
        return cls("never") if stop_when is None else cls("date", until=_moment(stop_when))

    def reason(self, sequences: Sequences, evidence: Evidence, alpha: float, baseline: int, best: int) -> str:
        """Why the experiment ends now; empty where it goes on."""
        if self.kind == "best" and best:
            return "the best arm is known"
        if self.kind == "futile" and futile(sequences, evidence, alpha, baseline, self.worthwhile):
            return "no arm is better than the baseline by what is worthwhile"
        return ""


def stop_text(stop_when: str | date | None) -> str | None:
    """``stop_when`` as a state keeps it: a word, or a moment with its offset from UTC."""
    if stop_when is None or stop_when in ("best", "futile"):
        return stop_when  # type: ignore[return-value]
    if isinstance(stop_when, date) and not isinstance(stop_when, datetime):
        stop_when = datetime(stop_when.year, stop_when.month, stop_when.day, tzinfo=UTC)
    if isinstance(stop_when, str):
        return datetime.fromtimestamp(_moment(stop_when), UTC).isoformat()
    if not isinstance(stop_when, datetime):
        raise ValueError(f"stop_when must be 'best', 'futile', a date or None, got stop_when={stop_when!r}")
    return (stop_when if stop_when.tzinfo else stop_when.replace(tzinfo=UTC)).isoformat()


def _moment(text: str) -> float:
    try:
        found = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        raise ValueError(f"stop_when must be 'best', 'futile', a date or None, got stop_when={text!r}") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def best_arm(sequences: Sequences, evidence: Evidence, alpha: float) -> int:
    """The arm that is known to be best, plus one; 0 while none is."""
    K = evidence.total.shape[0]
    best = int(evidence.mean.argmax())
    others = np.delete(np.arange(K), best)
    against = sequences.log_evidence_better(evidence.of(np.full(K - 1, best)), evidence.of(others))
    return best + 1 if (against >= math.log(K / alpha)).all() else 0


def futile(sequences: Sequences, evidence: Evidence, alpha: float, baseline: int, worthwhile: float) -> bool:
    """Whether no arm is better than the baseline by ``worthwhile``, in lengths of the range."""
    K = evidence.total.shape[0]
    others = np.delete(np.arange(K), baseline)
    base = evidence.of(np.full(K - 1, baseline))
    against = sequences.log_evidence_better(base, evidence.of(others), -worthwhile)
    return bool((against >= math.log(1.0 / alpha)).all())


def chances(mean: Array, spread: Array) -> Array:
    """Of each arm the probability to be the best one, where means are independent and normal.

    By the trapezoid rule over each arm's own density, to some three digits.
    """
    from scipy.special import log_ndtr

    s = np.maximum(spread, _LEAST_SPREAD)
    x = mean[:, None] + s[:, None] * _NODES
    below = sum(log_ndtr((x - m) / w) for m, w in zip(mean, s, strict=True)) - log_ndtr(_NODES)
    found = np.exp(below - 0.5 * _NODES**2).sum(axis=1)
    return np.asarray(found / found.sum())


def top_two(mean: Array, spread: Array) -> Array:
    """The shares of arms: ½ψ_k + ½Σ_{l≠k} ψ_l·ψ_k/(1 − ψ_l), ψ the chances to be best.

    Examples
    --------
    >>> import numpy as np
    >>> top_two(np.array([0.5, 0.4, 0.3]), np.full(3, 0.05)).round(2)
    array([0.5 , 0.49, 0.01])
    """
    psi = np.maximum(chances(mean, spread), _LEAST_CHANCE)
    psi = psi / psi.sum()
    challenger = psi[None, :] * (1.0 - np.eye(len(psi)))
    challenger /= challenger.sum(axis=1, keepdims=True)
    return np.asarray(0.5 * psi + 0.5 * psi @ challenger)
