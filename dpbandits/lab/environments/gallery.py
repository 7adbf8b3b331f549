"""The gallery: workloads that people have, by name, at sizes at which they can be compared.

``dpbandits run --world NAME`` plays them. Where the world itself has no end, T is what the gallery suggests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dpbandits.lab.environments.advertising import Advertising
from dpbandits.lab.environments.base import Environment
from dpbandits.lab.environments.delayed import Delayed
from dpbandits.lab.environments.disjoint import Disjoint
from dpbandits.lab.environments.drifting import Drifting
from dpbandits.lab.environments.films import Films
from dpbandits.lab.environments.glm import GLM
from dpbandits.lab.environments.named_arms import Arms
from dpbandits.lab.environments.people import People
from dpbandits.lab.environments.quadratic import Quadratic
from dpbandits.lab.environments.slates import Slates
from dpbandits.lab.environments.sorted import Sorted
from dpbandits.lab.environments.supervised import Supervised
from dpbandits.lab.environments.unit_linear import UnitLinear

__all__ = ["GALLERY", "World", "world"]


class World(NamedTuple):
    """What a name stands for: how to make it, T, and what it is there for.

    Examples
    --------
    >>> from dpbandits.lab.environments import world
    >>> here = world("abn")
    >>> here.rounds, here.make().reward_range
    (20000, (0.0, 1.0))
    """

    make: Callable[[], Environment]
    rounds: int
    what: str

    def __repr__(self) -> str:
        return f"World({self.what!r}): {self.rounds:,} rounds"


GALLERY: dict[str, World] = {
    "logit-shift": World(lambda: GLM(offset=-2.5), 10_000, "rare rewards without a constant feature"),
    "advertising": World(Advertising, 20_000, "4 % clicks; correlated features in [0, 1]"),
    "advertising-centred": World(lambda: Advertising(centred=True), 20_000, "the same, features centred in public"),
    "unit-linear": World(UnitLinear, 10_000, "linear rewards in [0, 1]"),
    "one-hot": World(lambda: GLM(10, arms=10, arm_law="one_hot"), 10_000, "ten fixed arms, one feature each"),
    "sphere": World(lambda: GLM(5, arms=10, arm_law="fixed_sphere"), 10_000, "ten fixed arms on a sphere"),
    "digits": World(lambda: Supervised("digits", passes=4), 7188, "ten fixed arms with a parameter each"),
    "diamonds": World(lambda: Supervised("diamonds", rounds=20_000), 20_000, "five cuts of diamonds"),
    "disjoint": World(Disjoint, 20_000, "five fixed arms with a parameter each, logistic"),
    "disjoint-50": World(lambda: Disjoint(7, arms=50), 50_000, "fifty of them"),
    "counts": World(lambda: GLM(4, link="poisson", theta_norm=1.0), 10_000, "Poisson counts"),
    "flip": World(Drifting, 20_000, "the parameter changes sign at an unknown time"),
    "still": World(lambda: Drifting(change="none"), 20_000, "the same where nothing changes"),
    "late": World(lambda: Delayed(GLM(), delay=200), 10_000, "every reward 200 rounds late"),
    "overtaking": World(lambda: Delayed(GLM(), delay="geometric", mean=200), 10_000, "rewards late, in random order"),
    "sorted": World(lambda: Sorted(GLM(), rounds=10_000), 10_000, "rounds sorted by what they offer"),
    "quadratic": World(lambda: Quadratic(arms=10), 10_000, "a mean that is quadratic in the features"),
    "people": World(
        lambda: People(GLM(3, link="probit", theta_norm=2.0), persons=500, rounds=5000),
        5000,
        "500 persons who come ten times each",
    ),
    "regulars": World(
        lambda: People(GLM(3, link="probit", theta_norm=2.0), persons=1000, rounds=5000, returns="zipf", most=100),
        5000,
        "1,000 persons of whom few come often",
    ),
    "films": World(Films, 6393, "671 persons' real ratings"),
    # pages of four out of twenty articles
    "cascade": World(Slates, 10_000, "pages read up to the first click"),
    "positions": World(lambda: Slates(examination=(1.0, 0.6, 0.4, 0.3)), 10_000, "pages on which lower is seen less"),
    "positions-fixed": World(
        lambda: Slates(examination=(1.0, 0.6, 0.4, 0.3), arm_law="fixed"), 10_000, "the same, of fixed articles"
    ),
    # arms without features, which are known by their names
    "abn": World(lambda: Arms([0.1] * 4 + [0.15]), 20_000, "an A/B/n test: four arms at 10 %, one at 15 %"),
    "abn-close": World(lambda: Arms([0.1] * 4 + [0.12]), 50_000, "four arms at 10 %, one at 12 %"),
    "rare": World(lambda: Arms([0.005] * 4 + [0.015]), 30_000, "rewards in 0.5 % of the rounds, and in 1.5 %"),
    "unknown-scale": World(
        lambda: Arms([2.0, 4.0, 6.0, 8.0, 10.0], rewards="uniform", reward_range=(0.0, 1000.0)),
        10_000,
        "rewards up to 20 in a range that is said to go to 1,000",
    ),
    "pareto": World(
        lambda: Arms([0.3, 0.4, 0.5, 0.6, 0.7], rewards="pareto", reward_range=(0.0, 6.0)),
        10_000,
        "Pareto rewards, of mean ½ over the arms, in a range up to 6",
    ),
    "long-logits": World(
        lambda: Arms([0.002, 0.005, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.8]),
        10_000,
        "ten arms from 0.2 to 80 %: one-hot, ‖θ‖ = 10",
    ),
    "arms-10": World(lambda: Arms([0.5] * 9 + [0.6]), 10_000, "nine arms at 50 %, one at 60 %"),
    "arms-40": World(lambda: Arms([0.5, 0.6, 0.7, 0.8] * 10), 10_000, "forty arms, ten of them equally good"),
    "arms-100": World(lambda: Arms(100), 10_000, "a hundred, drawn evenly between 0 and 1"),
}


def world(name: str) -> World:
    """The entry of that name.

    Examples
    --------
    >>> world("advertising").make().name, world("advertising").rounds
    ('advertising, 4 % clicks (d = 8, K = 10)', 20000)
    """
    if name not in GALLERY:
        raise ValueError(f"world must be one of {', '.join(GALLERY)}, got world={name!r}")
    return GALLERY[name]
