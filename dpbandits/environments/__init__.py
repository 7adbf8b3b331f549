"""Worlds for policies: simulated models, real tables and ratings, and a log of your own; the gallery names some."""

from dpbandits.environments.adversarial import Adversarial
from dpbandits.environments.advertising import Advertising
from dpbandits.environments.available import Available
from dpbandits.environments.base import Environment, Round
from dpbandits.environments.chosen import ChosenLog
from dpbandits.environments.delayed import Delayed
from dpbandits.environments.disjoint import Disjoint
from dpbandits.environments.drifting import Drifting
from dpbandits.environments.films import Films
from dpbandits.environments.gallery import GALLERY, World, world
from dpbandits.environments.glm import GLM
from dpbandits.environments.linear import Linear
from dpbandits.environments.linear_bernoulli import LinearBernoulli
from dpbandits.environments.log import LogReplay
from dpbandits.environments.people import People
from dpbandits.environments.per_arm import PerArm
from dpbandits.environments.quadratic import Quadratic
from dpbandits.environments.shifted import Shifted
from dpbandits.environments.sorted import Sorted
from dpbandits.environments.supervised import Supervised
from dpbandits.environments.unit_linear import UnitLinear

__all__ = [
    "Adversarial",
    "Advertising",
    "Available",
    "ChosenLog",
    "Delayed",
    "Disjoint",
    "Drifting",
    "Environment",
    "Films",
    "GALLERY",
    "GLM",
    "Linear",
    "LinearBernoulli",
    "LogReplay",
    "People",
    "PerArm",
    "Quadratic",
    "Round",
    "Shifted",
    "Sorted",
    "Supervised",
    "UnitLinear",
    "World",
    "world",
]
