"""The optional tightenings: theorems on adaptive play by which a total costs less than its parts one by one.

:class:`Tightening` says what a file offers, and which parts it is about: by the exact types of their pairs, so that a
total that none applies to, such as plain DP-SGD, learns that at once and loads none of them. They are tried in the
order of :data:`TIGHTENINGS`:

* ``replaced(pairs)`` gives pairs that dominate these and cost no more, whatever is asked;
* ``in_place(parts, δ)`` gives other parts that dominate and may cost less, or None;
* ``epsilon(parts, δ, of_sum, enough)`` and ``delta(parts, ε, of_sum, enough)`` give an answer, or None: ``of_sum()`` is
  that of the sum of all losses, for those who can say less than that; at most ``enough`` is as good as any.

Whatever they say is a bound, and the least one counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accounting.compose.convolution import Parts
    from accounting.loss.losses import LossPair
    from accounting.releases import Release

__all__ = ["TIGHTENINGS", "Tightening", "answer", "in_place", "own_pair", "replaced"]


@dataclass(frozen=True)
class Tightening:
    """A theorem, and where it is.

    Attributes
    ----------
    name : str
        What it is about.
    module : str
        The file with its entry, in ``accounting.adaptive``; the theorem is there, or in files that it names.
    pairs : frozenset of str
        The exact types of pairs, or of what samples are of, that it is about.
    serves : str
        Whose releases.
    example, gains : str, float
        A typical one, and by what share its ε at δ = 1e-6 is larger without.
    tested : str
        Where it is held against brute force, in ``tests/accounting``.
    again : bool
        Whether ``in_place`` is asked for δ twice: its game is for a δ near one that is known.
    """

    name: str
    module: str
    pairs: frozenset[str]
    serves: str
    example: str
    gains: float
    tested: str
    again: bool = False

    def applies(self, pairs: Any) -> bool:
        """Whether one of ``pairs`` is of these types."""
        return not self.pairs.isdisjoint(_types(pairs))

    def offers(self, name: str) -> Callable[..., Any] | None:
        """What the file has under this name; it is loaded."""
        found: Callable[..., Any] | None = getattr(import_module(f"accounting.adaptive.{self.module}"), name, None)
        return found


TIGHTENINGS = (
    Tightening(
        "games of choices",
        "choices.in_totals",
        frozenset({"SpanPair", "MaximumPair"}),
        "selections by noisy maxima, each of which may follow the others",
        "20 * NoisyMax(0.1, 'laplace')",
        0.56,
        "test_games.py",
    ),
    Tightening(
        "batches of a fixed size",
        "fixed_batches.in_totals",
        frozenset({"ReplacedPair"}),
        "mini-batches without replacement",
        "100 * FixedSizeSubsampled(Gaussian(2.0), 10, 100)",
        0.07,
        "test_games.py",
    ),
    Tightening(
        "one long game of choices",
        "choices.rare_in_totals",
        frozenset({"PlayedPair"}),
        "thousands of strong selections on rare samples",
        "10_000 * PoissonSubsampled(NoisyMax(8.0), 0.001)",
        0.09,
        "test_games.py",
        again=True,
    ),
    Tightening(
        "moments of the best of runs",
        "repeated_selection.many_selections",
        frozenset({"BestPair"}),
        "tuning, again and again",
        "10 * BestOfRuns(Gaussian(8.0), stop=0.1)",
        0.22,
        "test_many_selections.py",
    ),
)

#: Descriptions whose pair is that of a game or of a selection: the files with their ``pair_of(release, present)``.
_OWN = {
    "PlayedChoices": "choices.scores_below",
    "PlayedBatches": "fixed_batches.in_totals",
    "BestOfRuns": "repeated_selection.one_selection",
    "BestOfPoissonRuns": "repeated_selection.one_selection",
    "OrderedRuns": "repeated_selection.one_selection",
}


def _types(pairs: Any) -> set[str]:
    return {type(one).__name__ for pair in pairs for one in (pair, getattr(pair, "inner", None))}


def replaced(pairs: Counter[LossPair]) -> Counter[LossPair]:
    """``pairs`` with others in place of some, which dominate them and cost no more."""
    for one in TIGHTENINGS:
        if one.applies(pairs) and (offer := one.offers("replaced")):
            pairs = offer(pairs)
    return pairs


def in_place(parts: Parts, *, twice: bool = False) -> Iterator[Callable[[Parts, float], Parts | None]]:
    """What may give other parts for these, in order; ``twice`` where the level is only known by what was found."""
    known = [one for one in TIGHTENINGS if one.applies(pair for pair, _ in parts)]
    for one in (*known, *(one for one in known if twice and one.again)):
        if offer := one.offers("in_place"):
            yield offer


def answer(notion: str, parts: Parts, at: float, of_sum: Callable[[], float], enough: float) -> float:
    """The ``epsilon`` at a δ, or the ``delta`` at an ε: of the first that knows one, or that of the sum."""
    for one in TIGHTENINGS:
        if one.applies(pair for pair, _ in parts) and (offer := one.offers(notion)):
            found: float | None = offer(parts, at, of_sum, enough)
            if found is not None:
                return found
    return of_sum()


def own_pair(release: Release, present: bool) -> Counter[LossPair] | None:
    """The pair of a description that is a game or a selection; None for all others."""
    if (name := _OWN.get(type(release).__name__)) is None:
        return None
    pair: LossPair | None = import_module(f"accounting.adaptive.{name}").pair_of(release, present)
    return Counter({pair: 1} if pair is not None else {})
