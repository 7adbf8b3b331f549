"""What a shuffler lets out: counts with binomial noise, and the messages of users with one local randomizer."""

from __future__ import annotations

from dataclasses import dataclass, field

from accounting.checks import integer, positive
from accounting.errors import AdjacencyMismatch, UnsupportedRelease
from accounting.releases.base import Release
from accounting.releases.choice import RandomizedResponse, UnaryEncoding
from accounting.releases.noise import Laplace

__all__ = ["ShuffledBinomial", "LocalShuffled"]


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

    def __post_init__(self) -> None:
        super().__post_init__()
        _keep_number_of_users(self)
        integer("trials", self.trials, at_least=1)
        positive("shift_norm", self.shift_norm)
        integer("coordinates", self.coordinates, at_least=1)
        if not isinstance(self.rounded, bool):
            raise TypeError(f"rounded must be True or False, got rounded={self.rounded!r}")


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


def _local_epsilon(randomizer: Release) -> float:
    match randomizer:
        case RandomizedResponse(epsilon=eps) | UnaryEncoding(epsilon=eps):
            return eps
        case Laplace(noise_multiplier=z):
            return 1.0 / z
    raise UnsupportedRelease(
        "epsilon must be a number, a RandomizedResponse, a UnaryEncoding or a Laplace, "
        f"got {randomizer!r} (its ε is accepted)"
    )


def _keep_number_of_users(release: Release) -> None:
    """Shuffled messages hide what a user says, and not whether it is there."""
    if release.adjacency == "add_remove":
        raise AdjacencyMismatch(
            f"{type(release).__name__} is priced for neighbours that differ in one user's input ('replace' or "
            "'zero_out'): the number of messages is seen, got adjacency='add_remove'"
        )
    object.__setattr__(release, "adjacency", release.adjacency or "replace")
