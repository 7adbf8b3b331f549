"""Worlds for policies: simulated models, real ratings, and a log of your own."""

from dpbandits.environments.adversarial import Adversarial
from dpbandits.environments.available import Available
from dpbandits.environments.base import Environment, Round
from dpbandits.environments.delayed import Delayed
from dpbandits.environments.films import Films
from dpbandits.environments.glm import GLM
from dpbandits.environments.linear import Linear
from dpbandits.environments.linear_bernoulli import LinearBernoulli
from dpbandits.environments.log import LogReplay
from dpbandits.environments.per_arm import PerArm

__all__ = [
    "GLM",
    "Adversarial",
    "Available",
    "Delayed",
    "Environment",
    "Films",
    "Linear",
    "LinearBernoulli",
    "LogReplay",
    "PerArm",
    "Round",
]
