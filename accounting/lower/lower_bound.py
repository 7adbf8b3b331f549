"""A lower bound on what a description costs: what some mechanism that fits it costs.

The mechanism is a witness, of which several are tried: fixed laws (:mod:`accounting.lower.witnesses`), and such that
come last and follow what was seen (:mod:`accounting.lower.played_last`). A part for which none is known counts as
nothing. Serves brackets, which say how much an accountant may gain at most; held against the upper bounds of all kinds
in ``tests/accounting/test_brackets.py``.

The composition is then discretised from above and from below, with an error that is proved
(:mod:`accounting.compose.convolution`).
"""

from __future__ import annotations

from accounting.adaptive.choices.scores_below import MOST_CHOICES, order_of
from accounting.adaptive.repeated_selection.many_selections import order_of_best
from accounting.compose.failures import split_failures
from accounting.compose.pairs import alternatives
from accounting.conversions import best_order_for_epsilon
from accounting.errors import UnsupportedRelease
from accounting.loss.concentrated_curve import lower_zcdp_epsilon
from accounting.loss.randomizers import epsilon_at_least
from accounting.lower.played_last import batches_last, choice, choices_last, coins_last, largest_cost
from accounting.lower.witnesses import parts_of, witnesses
from accounting.notions.pure import at_least, is_exact
from accounting.notions.rdp import rdp
from accounting.releases import (
    ZCDP,
    BestOfPoissonRuns,
    BestOfRuns,
    Composed,
    FixedSizeSubsampled,
    Gaussian,
    LocalShuffled,
    NoisyMax,
    ObjectivePerturbation,
    PoissonSubsampled,
    RandomizedResponse,
    Release,
    compose,
)
from accounting.releases.base import known
from accounting.releases.shuffling import randomizer_of

__all__ = ["lower_epsilon"]


# Orders that are tried where the witness depends on one, in shares of the best: the bound that it is best for may be
# far above the truth.
_SHARES = (1.0, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3, 0.15, 0.0)


# From this ε on, choices that follow what was seen are better than fixed coins by more than a lattice loses.
_VERY_STRONG = 4.0


def lower_epsilon(release: Release, delta: float) -> float:
    """A proved lower bound on the ε of some mechanism that fits ``release``; 0 where none is known."""
    release = known(release, exact=True)
    if delta == 0 and is_exact(release):
        return at_least(release)
    if isinstance(release, LocalShuffled) and delta > 0:
        given = [release.randomizer] if release.randomizer else [RandomizedResponse(release.epsilon, k) for k in (2, 3)]
        return max(epsilon_at_least(randomizer_of(randomizer), int(release.users), delta) for randomizer in given)
    if isinstance(release, ZCDP) and 0 < delta < 1 and (coin := lower_zcdp_epsilon(release.rho, delta)) > 0:
        return coin
    best = _best_order(release, delta)
    found, enough = choices_last(release, delta, best) if 0 < delta < 1 else (0.0, False)
    if enough:
        return found
    # the game of strong choices is better than fixed coins, which take long
    shares = () if found > 0 and _are_strong_batches(release) else _SHARES
    tried = {one: None for share in shares for one in witnesses(release, best * share)}
    # its order may be far below that of an upper bound that is loose
    tried |= {one: None for share in (1.0, 0.6) for one in witnesses(release, best * share, equal=True)}
    if 0 < delta < 1:
        tried |= dict.fromkeys(batches_last(release, delta, best))
        tried |= dict.fromkeys(coins_last(release, best))
    return largest_cost(tried, delta, found)


def _are_strong_batches(release: Release) -> bool:
    """Whether these are several batches of a fixed size of very strong noisy maxima, all of which are played."""
    match release:
        case Composed(parts=((FixedSizeSubsampled(release=NoisyMax(epsilon=eps)), count),)):
            return bool(eps >= _VERY_STRONG and 1 < count <= MOST_CHOICES)
    return False


def _has_several_best(parts: tuple[tuple[Release, int], ...]) -> bool:
    """Whether the best of some runs is released, and more."""
    several = sum(count for _, count in parts) > 1
    return several and any(isinstance(part, BestOfRuns | BestOfPoissonRuns) for part, _ in parts)


def _without_curvature(part: Release) -> Release:
    """``part``, or for objective perturbation that of a loss that is linear."""
    if not isinstance(part, ObjectivePerturbation):
        return part
    return Gaussian(part.noise_multiplier, adjacency=part.adjacency)


def _best_order(release: Release, delta: float) -> float:
    """The best Rényi order of the whole, less 1; 1 where there is none, and a large one for pure DP."""
    if not 0 < delta < 1:
        return 1e3
    parts = parts_of(release)
    plays = [choice(part, count) for part, count in parts if isinstance(part, PoissonSubsampled)]
    played = tuple(play for play in plays if play is not None)
    if played and len(played) == len(parts):
        # of samples the accountant's curve is far above that of two scores
        return order_of(played, delta)
    # where the curvature matters that curve ends at a small order
    if any(isinstance(part, ObjectivePerturbation) for part, _ in parts):
        release = compose((_without_curvature(part), count) for part, count in parts)
    rest = split_failures(release)[1]
    try:
        if _has_several_best(parts):
            # of these the accountant's curve is far above what is worst for each order, and few have larger ones
            return 2 * max((order_of_best(found, delta) for found in alternatives(rest)), default=0.5)
        return best_order_for_epsilon(lambda orders: rdp(rest, orders), delta)
    except (UnsupportedRelease, ArithmeticError):
        return 1.0
