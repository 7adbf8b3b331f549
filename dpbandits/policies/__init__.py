"""The policies, one file each, named after the algorithm."""

from dpbandits.policies.epsilon_greedy import EpsilonGreedy
from dpbandits.policies.glb_omd import GLBOMD
from dpbandits.policies.one_pass_private_glm import OnePassPrivateGLM
from dpbandits.policies.uniform import Uniform

__all__ = ["GLBOMD", "EpsilonGreedy", "OnePassPrivateGLM", "Uniform"]
