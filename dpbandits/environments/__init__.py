"""Worlds for policies: simulated models, real ratings, and a log of your own."""

from dpbandits.environments.base import Environment, Round
from dpbandits.environments.films import Films
from dpbandits.environments.glm import GLM
from dpbandits.environments.log import LogReplay

__all__ = ["GLM", "Environment", "Films", "LogReplay", "Round"]
