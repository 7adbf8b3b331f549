"""What an attacker can do: how well anybody can tell whether one unit's data went in, whatever else they know.

ε and δ bound that, and say little to most people. The same bound in other words: of all tests that look at what was
released and at every other unit's data, and decide whether the one in question took part (or had one value rather than
another),

* none has more than an **advantage** δ(0) of true over false positives;
* at a rate α of false positives none has more **true positives** than 1 − f(α), f the trade-off curve (Dong, Roth & Su
  2022; Kairouz, Oh & Viswanath 2015 for a single (ε, δ));
* and who held it possible with probability p beforehand believes it of those whom a test picks out with at most the
  probability p·TP/(p·TP + (1 − p)·FP) (Bayes).

Each is from above, over all mechanisms that fit the description. Where neighbours are data with and without a unit, the
question is whether it is in the data; where one value is replaced, which of two values it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import fraction
from accounting.errors import UnsupportedRelease
from accounting.printed import as_html, axes_of, written
from accounting.releases.base import Release, check_release
from accounting.totals import delta, epsilon

__all__ = ["Attacker", "attacker"]

# δ at which ε is asked where a description has no privacy loss of its own, and rates at which a value prints itself
_DELTAS = np.geomspace(1e-12, 0.9, 60)
_SHOWN = (0.001, 0.01, 0.1)


@dataclass(frozen=True, repr=False)
class Attacker:
    """How well the best test can do against everything that ``release`` describes; see :func:`attacker`.

    Examples
    --------
    >>> from accounting import ApproxDP, attacker
    >>> test = attacker(ApproxDP(1.0, 1e-6))
    >>> test.true_positives([0.01, 0.1]).round(3)
    array([0.027, 0.272])
    """

    release: Release

    @cached_property
    def advantage(self) -> float:
        """The most by which true positives can exceed false ones, in [0, 1]: the total variation distance."""
        return float(delta(self.release, 0.0))

    def true_positives(self, false_positives: ArrayLike) -> Array:
        """The largest rate of true positives at these rates of false ones; of any shape, in [0, 1]."""
        rates = np.asarray(false_positives, dtype=np.float64)
        if not np.all((rates >= 0) & (rates <= 1)):
            raise ValueError(f"false_positives must lie in [0, 1], got false_positives={false_positives!r}")
        return np.asarray(1.0 - self._trade_off(rates))

    def posterior(self, prior: float = 0.5, false_positives: float = 0.01) -> float:
        """How sure anybody can be of those whom a test picks out.

        Parameters
        ----------
        prior : float
            In (0, 1): the probability that the unit is in the data, by everything else that is known.
        false_positives : float
            In (0, 1): how often the test picks out one that is not.

        Returns
        -------
        float
            At most this is the probability, given that the test picked it out.
        """
        p, wrong = fraction("prior", prior), fraction("false_positives", false_positives)
        right = float(self.true_positives(wrong))
        return p * right / (p * right + (1.0 - p) * wrong)

    def to_dict(self, prior: float = 0.5) -> dict[str, Any]:
        """The figures that it prints, for JSON."""
        return {
            "release": repr(self.release),
            "advantage": self.advantage,
            "prior": prior,
            "rates": [
                {
                    "false_positives": rate,
                    "true_positives": float(self.true_positives(rate)),
                    "posterior": self.posterior(prior, rate),
                }
                for rate in _SHOWN
            ],
        }

    def plot(self, target: Any = None, label: str | None = None) -> Any:
        """Draw the largest true-positive rate over the false-positive rate (needs matplotlib).

        Parameters
        ----------
        target : path, matplotlib Axes or None
            An image file to write (the suffix is its format), axes to draw on, or by default a new figure.
        label : str, optional
            Of the curve.

        Returns
        -------
        matplotlib Axes, or the path
        """
        axes = axes_of(target, "Attacker.plot")
        rates = np.geomspace(1e-4, 1.0, 400)
        if not axes.lines:
            axes.plot(rates, rates, color="0.7", linewidth=1, label="guessing")
        axes.plot(rates, self.true_positives(rates), label=label or "the best attack")
        axes.set(xscale="log", xlim=(1e-4, 1), ylim=(0, 1.02))
        axes.set(xlabel="false-positive rate", ylabel="true-positive rate, at most")
        axes.legend(loc="upper left", fontsize="small")
        return written(axes, target)

    def __str__(self) -> str:
        return self.in_words()

    def in_words(self, prior: float = 0.5) -> str:
        """The figures as sentences, for readers who know nothing of ε."""
        lines = [
            "How well can anybody who knows all other data tell whether one unit's data were used?",
            f"At most {_percent(self.advantage)} more true positives than false ones. The best attack with",
        ]
        for wrong, right, sure in self._percents(prior):
            lines.append(
                f"  {wrong} false positives finds at most {right} of those who took part; "
                f"a suspicion of {_percent(prior)} grows to at most {sure}"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"attacker({self.release!r})"

    def _repr_html_(self) -> str:
        names = ["false positives", "true positives, at most", "sure at even odds, at most"]
        return as_html(f"{self!r}: advantage {_percent(self.advantage)}", [names, *self._percents(0.5)])

    def _percents(self, prior: float) -> list[list[str]]:
        """False positives, true ones and the posterior, of each rate that is shown."""
        return [[_percent(figure) for figure in row.values()] for row in self.to_dict(prior)["rates"]]

    @cached_property
    def _trade_off(self) -> Callable[[Array], Array]:
        from accounting.compose.distribution import PLD, proved_trade_off  # not what every import waits for

        try:
            return PLD.of(self.release).trade_off
        except UnsupportedRelease:
            points = [(float(epsilon(self.release, d)), float(d)) for d in _DELTAS]
        finite = np.array([(e, d) for e, d in points if math.isfinite(e)]).reshape(-1, 2)
        return partial(proved_trade_off, finite[:, 0], finite[:, 1])


def attacker(release: Release) -> Attacker:
    """What the best attack on everything that ``release`` describes can reach, in true and false positives.

    Parameters
    ----------
    release : Release
        A description, such as ``1000 * PoissonSubsampled(Gaussian(1.1), 0.01)``; of a budget, ``ApproxDP(ε, δ)``.

    Raises
    ------
    UnsupportedRelease
        If no accountant covers it.

    Examples
    --------
    >>> from accounting import Gaussian, attacker
    >>> test = attacker(100 * Gaussian(10.0))
    >>> round(test.advantage, 3), float(test.true_positives(0.01).round(3)), round(test.posterior(0.5, 0.01), 2)
    (0.383, 0.092, 0.9)
    """
    check_release(release)
    found = Attacker(release)
    found.advantage  # noqa: B018  (what no accountant covers is refused here)
    return found


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
