"""The tightenings of this package, in the order in which they are tried: see :mod:`accounting.compose.tightenings`."""

from __future__ import annotations

from accounting.compose.tightenings import Tightening, registered

__all__ = ["TIGHTENINGS"]

TIGHTENINGS = (
    # selections by noisy maxima that may follow each other: 20 * NoisyMax(0.1, "laplace") costs 56 % more without it
    Tightening("games of choices", "accounting.adaptive.choices.in_totals", frozenset({"SpanPair", "MaximumPair"})),
    # mini-batches without replacement: 100 * FixedSizeSubsampled(Gaussian(2.0), 10, 100), 7 %
    Tightening("batches of a fixed size", "accounting.adaptive.fixed_batches.in_totals", frozenset({"ReplacedPair"})),
    # thousands of strong selections on rare samples: 10_000 * PoissonSubsampled(NoisyMax(8.0), 0.001), 9 %
    Tightening("one long game of choices", "accounting.adaptive.choices.rare_in_totals", frozenset({"PlayedPair"})),
    # tuning, again and again: 10 * BestOfRuns(Gaussian(8.0), stop=0.1), 22 %
    Tightening(
        "moments of the best of runs",
        "accounting.adaptive.repeated_selection.many_selections",
        frozenset({"BestPair"}),
    ),
)
if not registered:
    registered.extend(TIGHTENINGS)
