"""Worlds for policies: simulated models, real tables and ratings, and a log of your own; the gallery names some."""

from dpbandits.lab.environments.adversarial import Adversarial
from dpbandits.lab.environments.advertising import Advertising
from dpbandits.lab.environments.available import Available
from dpbandits.lab.environments.base import Environment, Round
from dpbandits.lab.environments.chosen import ChosenLog
from dpbandits.lab.environments.delayed import Delayed
from dpbandits.lab.environments.disjoint import Disjoint
from dpbandits.lab.environments.drifting import Drifting
from dpbandits.lab.environments.films import Films
from dpbandits.lab.environments.gallery import GALLERY, World, world
from dpbandits.lab.environments.glm import GLM
from dpbandits.lab.environments.linear import Linear
from dpbandits.lab.environments.linear_bernoulli import LinearBernoulli
from dpbandits.lab.environments.log import LogReplay
from dpbandits.lab.environments.named_arms import Arms
from dpbandits.lab.environments.people import People
from dpbandits.lab.environments.per_arm import PerArm
from dpbandits.lab.environments.quadratic import Quadratic
from dpbandits.lab.environments.slates import SlateRound, Slates
from dpbandits.lab.environments.sorted import Sorted
from dpbandits.lab.environments.supervised import Supervised
from dpbandits.lab.environments.unit_linear import UnitLinear

__all__ = [
    "Adversarial",
    "Advertising",
    "Arms",
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
    "SlateRound",
    "Slates",
    "Sorted",
    "Supervised",
    "UnitLinear",
    "World",
    "world",
]
