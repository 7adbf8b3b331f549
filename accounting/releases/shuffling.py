"""What a shuffler lets out: counts with binomial noise, and the messages of users with one local randomizer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from accounting.checks import integer, positive
from accounting.errors import AdjacencyMismatch, UnsupportedRelease
from accounting.releases.base import Release
from accounting.releases.choice import RandomizedResponse, UnaryEncoding
from accounting.releases.noise import Laplace

if TYPE_CHECKING:
    from accounting.amplification.randomizers import Randomizer
    from accounting.loss.pair import LossPair

__all__ = ["CountsInWindows", "ShuffledBinomial", "LocalShuffled", "randomizer_of"]


@dataclass(frozen=True, repr=False)
class ShuffledBinomial(Release):
    """Integer counts, each with binomial noise Bin(``trials``, ½), of which one unit changes at most a few.

    What a shuffler of bits lets out: one count per coordinate. One unit shifts the vector of ``coordinates`` counts
    by an integer vector of Euclidean length at most ``shift_norm``. With ``rounded=True`` it shifts a real vector by
    at most that, of which every entry is then rounded at random to a neighbouring integer, up with the probability of
    its fraction.

    Neighbours differ in one user's input, ``"replace"`` unless ``"zero_out"`` is stated. Never in a user's presence:
    the noise comes from the users, and the number of messages alone tells how many there are.

    Examples
    --------
    >>> from accounting import ShuffledBinomial, epsilon
    >>> round(epsilon(ShuffledBinomial(trials=40_000, shift_norm=50.0, coordinates=6), 1e-6), 2)
    2.26
    """

    trials: int
    shift_norm: float
    coordinates: int
    rounded: bool = field(default=False, kw_only=True)
    _fails = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _keep_number_of_users(self)
        integer("trials", self.trials, at_least=1)
        positive("shift_norm", self.shift_norm)
        integer("coordinates", self.coordinates, at_least=1)
        if not isinstance(self.rounded, bool):
            raise TypeError(f"rounded must be True or False, got rounded={self.rounded!r}")


@dataclass(frozen=True, repr=False)
class CountsInWindows(Release):
    """A :class:`ShuffledBinomial` given that no count left the window on which it is priced.

    What accountants price in its place (:mod:`accounting.compose.failures`).
    """

    trials: int
    shift_norm: float
    coordinates: int
    rounded: bool = field(default=False, kw_only=True)

    @property
    def mu(self) -> float:
        """That of Gaussian differential privacy; infinite if the noise hides nothing."""
        from accounting.amplification.binomial_trade_off import central_mu, rounded_mu

        if self.rounded:
            return rounded_mu(self.trials, self.shift_norm, self.coordinates)
        return central_mu(self.trials, self.shift_norm)

    def pair(self) -> LossPair:
        """Gaussian noise that is easier to see through."""
        from accounting.loss.gaussian import GaussianPair
        from accounting.loss.pair import NoLoss

        mu = self.mu
        if math.isinf(mu):
            return super().pair()
        return GaussianPair(mu) if mu > 0 else NoLoss()


@dataclass(frozen=True, repr=False)
class LocalShuffled(Release):
    """The shuffled messages of ``users`` who all ran the same local randomizer, chosen before anything was seen.

    ``epsilon`` is what the randomizer costs by itself, or the randomizer: a :class:`RandomizedResponse`, a
    :class:`UnaryEncoding`, or ``Laplace(z)`` for one number in an interval, with noise of scale z times its length.
    Then ``LocalShuffled(RandomizedResponse(1.0, 10), users=10_000)`` is priced by what a k-ary response is known to
    hide, about half as much as any ε-DP randomizer. Randomizers that differ from user to user, or are chosen after
    messages were seen, are not covered.

    Neighbours differ in one user's input, ``"replace"`` unless ``"zero_out"`` is stated. Never in a user's presence:
    the number of messages alone tells how many there are.

    Examples
    --------
    >>> from accounting import Laplace, LocalShuffled, RandomizedResponse, epsilon
    >>> round(epsilon(LocalShuffled(1.0, users=10_000), 1e-6), 4)
    0.0432
    >>> round(epsilon(LocalShuffled(RandomizedResponse(1.0, 10), users=10_000), 1e-6), 4)
    0.0233
    >>> round(epsilon(LocalShuffled(Laplace(1.0), users=10_000), 1e-6), 4)
    0.0378
    """

    epsilon: float
    users: int
    randomizer: RandomizedResponse | UnaryEncoding | Laplace | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _keep_number_of_users(self)
        given: object = self.epsilon
        if isinstance(given, Release):
            object.__setattr__(self, "randomizer", given)
            object.__setattr__(self, "epsilon", _local_epsilon(given))
        if self.randomizer is not None and self.epsilon != _local_epsilon(self.randomizer):
            raise ValueError(f"epsilon must be that of {self.randomizer!r}, got epsilon={self.epsilon!r}")
        positive("epsilon", self.epsilon)
        integer("users", self.users, at_least=1)

    def pair(self) -> LossPair:
        """The messages of all users, of which one changes; what the randomizer costs, where that is very much."""
        from accounting.amplification.shuffling import MOST_LOCAL_EPSILON
        from accounting.loss.responses import Coins
        from accounting.loss.shuffled import ShuffledPair

        if self.epsilon > MOST_LOCAL_EPSILON:
            return Coins(self.epsilon)
        known = None if self.randomizer is None else randomizer_of(self.randomizer)
        return ShuffledPair(self.epsilon, int(self.users), known)


def _local_epsilon(randomizer: Release) -> float:
    match randomizer:
        case RandomizedResponse(epsilon=eps) | UnaryEncoding(epsilon=eps) if type(randomizer) in _RANDOMIZERS:
            return eps
        case Laplace(noise_multiplier=z) if type(randomizer) in _RANDOMIZERS:
            return 1.0 / z
    raise UnsupportedRelease(
        "epsilon must be a number, a RandomizedResponse, a UnaryEncoding or a Laplace, "
        f"got {randomizer!r} (its ε is accepted)"
    )


_RANDOMIZERS = RandomizedResponse, UnaryEncoding, Laplace


def randomizer_of(release: RandomizedResponse | UnaryEncoding | Laplace) -> Randomizer:
    """What is known of the shuffled messages of such releases."""
    from accounting.amplification.randomizers import Encodings, NoisyNumbers, Responses

    match release:
        case RandomizedResponse(epsilon=eps, categories=k):
            return Responses(eps, int(k))
        case UnaryEncoding(epsilon=eps, optimized=optimized):
            return Encodings(eps, optimized)
        case Laplace(noise_multiplier=z):
            return NoisyNumbers(1.0 / z)


def _keep_number_of_users(release: Release) -> None:
    """Shuffled messages hide what a user says, and not whether it is there."""
    if release.adjacency == "add_remove":
        raise AdjacencyMismatch(
            f"{type(release).__name__} is priced for neighbours that differ in one user's input ('replace' or "
            "'zero_out'): the number of messages is seen, got adjacency='add_remove'"
        )
    object.__setattr__(release, "adjacency", release.adjacency or "replace")
