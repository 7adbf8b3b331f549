"""The tightenings of this package, in the order in which they are tried: see :mod:`accounting.compose.tightenings`."""

from __future__ import annotations

from accounting.compose.tightenings import Tightening, registered

__all__ = ["TIGHTENINGS"]

TIGHTENINGS = (
    Tightening(
        "games of choices",
        "accounting.adaptive.choices.in_totals",
        frozenset({"SpanPair", "MaximumPair"}),
        "selections by noisy maxima, each of which may follow the others",
        "20 * NoisyMax(0.1, 'laplace')",
        0.56,
        "test_games.py",
    ),
    Tightening(
        "batches of a fixed size",
        "accounting.adaptive.fixed_batches.in_totals",
        frozenset({"ReplacedPair"}),
        "mini-batches without replacement",
        "100 * FixedSizeSubsampled(Gaussian(2.0), 10, 100)",
        0.07,
        "test_games.py",
    ),
    Tightening(
        "one long game of choices",
        "accounting.adaptive.choices.rare_in_totals",
        frozenset({"PlayedPair"}),
        "thousands of strong selections on rare samples",
        "10_000 * PoissonSubsampled(NoisyMax(8.0), 0.001)",
        0.09,
        "test_games.py",
    ),
    Tightening(
        "moments of the best of runs",
        "accounting.adaptive.repeated_selection.many_selections",
        frozenset({"BestPair"}),
        "tuning, again and again",
        "10 * BestOfRuns(Gaussian(8.0), stop=0.1)",
        0.22,
        "test_many_selections.py",
    ),
)

if not registered:
    registered.extend(TIGHTENINGS)
