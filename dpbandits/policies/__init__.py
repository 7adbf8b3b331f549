"""The policies, one file each, named after the algorithm."""

from dpbandits.policies.crmm import CRMM
from dpbandits.policies.crtm import CRTM
from dpbandits.policies.ecolog import ECOLog
from dpbandits.policies.epsilon_greedy import EpsilonGreedy
from dpbandits.policies.glb_omd import GLBOMD
from dpbandits.policies.glm_ucb import GLMUCB
from dpbandits.policies.gloc import GLOC
from dpbandits.policies.heavy_oful import HeavyOFUL
from dpbandits.policies.hvt_ucb import HvtUCB
from dpbandits.policies.laplace_thompson import LaplaceThompson
from dpbandits.policies.linear_thompson import LinearThompson
from dpbandits.policies.ofu_glb import OFUGLB
from dpbandits.policies.oful import OFUL
from dpbandits.policies.oful_log_r import OFULogR
from dpbandits.policies.one_pass_private_glm import OnePassPrivateGLM
from dpbandits.policies.rs_glincb import RSGLinCB
from dpbandits.policies.uniform import Uniform

__all__ = [
    "CRMM",
    "CRTM",
    "GLBOMD",
    "GLMUCB",
    "GLOC",
    "OFUGLB",
    "OFUL",
    "ECOLog",
    "EpsilonGreedy",
    "HeavyOFUL",
    "HvtUCB",
    "LaplaceThompson",
    "LinearThompson",
    "OFULogR",
    "OnePassPrivateGLM",
    "RSGLinCB",
    "Uniform",
]
