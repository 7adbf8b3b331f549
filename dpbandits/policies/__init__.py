"""The policies, one file each, named after the algorithm.

Each is loaded when it is first asked for: ``from dpbandits.policies import GLBOMD`` reads one of these files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpbandits._lazy import attributes_of

if TYPE_CHECKING:
    from dpbandits.policies.ada_ofu_ecolog import AdaOFUECOLog
    from dpbandits.policies.ada_oful import AdaOFUL
    from dpbandits.policies.crmm import CRMM
    from dpbandits.policies.crt import CRT
    from dpbandits.policies.crtm import CRTM
    from dpbandits.policies.disjoint_lin_ucb import DisjointLinUCB
    from dpbandits.policies.disjoint_private_glm import DisjointPrivateGLM
    from dpbandits.policies.disjoint_shuffle_glm import DisjointShuffleGLM
    from dpbandits.policies.disjoint_thompson import DisjointThompson
    from dpbandits.policies.doubling import Doubling
    from dpbandits.policies.dp_lin_ucb import DPLinUCB
    from dpbandits.policies.dphdb import DPHDB
    from dpbandits.policies.ecolog import ECOLog
    from dpbandits.policies.epsilon_greedy import EpsilonGreedy
    from dpbandits.policies.glb_omd import GLBOMD
    from dpbandits.policies.glm_ucb import GLMUCB
    from dpbandits.policies.gloc import GLOC
    from dpbandits.policies.heavy_oful import HeavyOFUL
    from dpbandits.policies.hvt_ucb import HvtUCB
    from dpbandits.policies.joint_dp_glm import JointDPGLM
    from dpbandits.policies.laplace_thompson import LaplaceThompson
    from dpbandits.policies.ldp_glm import LDPGLM
    from dpbandits.policies.linear_thompson import LinearThompson
    from dpbandits.policies.menu import MENU
    from dpbandits.policies.mom import MoM
    from dpbandits.policies.ofu_glb import OFUGLB
    from dpbandits.policies.oful import OFUL
    from dpbandits.policies.oful_log_r import OFULogR
    from dpbandits.policies.oful_mlogb import OFULMLogB
    from dpbandits.policies.one_pass_private_glm import OnePassPrivateGLM
    from dpbandits.policies.person_private_glm import PersonPrivateGLM
    from dpbandits.policies.private_hvt_ucb import PrivateHvtUCB
    from dpbandits.policies.restarting import Restarting
    from dpbandits.policies.rs_glincb import RSGLinCB
    from dpbandits.policies.shuffle_glm import ShuffleGLM
    from dpbandits.policies.shuffle_lin_ucb import ShuffleLinUCB
    from dpbandits.policies.shuffle_one_pass_glm import ShuffleOnePassGLM
    from dpbandits.policies.shuffle_person_glm import ShufflePersonGLM
    from dpbandits.policies.standing_private_glm import StandingPrivateGLM
    from dpbandits.policies.tofu import TOFU
    from dpbandits.policies.uniform import Uniform

__all__ = [
    "AdaOFUECOLog",
    "AdaOFUL",
    "CRT",
    "MENU",
    "MoM",
    "OFULMLogB",
    "TOFU",
    "LDPGLM",
    "CRMM",
    "CRTM",
    "DPHDB",
    "GLBOMD",
    "GLMUCB",
    "GLOC",
    "OFUGLB",
    "OFUL",
    "DPLinUCB",
    "DisjointLinUCB",
    "DisjointPrivateGLM",
    "DisjointShuffleGLM",
    "DisjointThompson",
    "Doubling",
    "ECOLog",
    "EpsilonGreedy",
    "HeavyOFUL",
    "HvtUCB",
    "JointDPGLM",
    "LaplaceThompson",
    "LinearThompson",
    "OFULogR",
    "OnePassPrivateGLM",
    "PersonPrivateGLM",
    "PrivateHvtUCB",
    "RSGLinCB",
    "Restarting",
    "ShuffleGLM",
    "ShuffleLinUCB",
    "ShuffleOnePassGLM",
    "ShufflePersonGLM",
    "StandingPrivateGLM",
    "Uniform",
]

_HOMES = {
    "AdaOFUECOLog": "dpbandits.policies.ada_ofu_ecolog",
    "AdaOFUL": "dpbandits.policies.ada_oful",
    "CRMM": "dpbandits.policies.crmm",
    "CRT": "dpbandits.policies.crt",
    "CRTM": "dpbandits.policies.crtm",
    "DisjointLinUCB": "dpbandits.policies.disjoint_lin_ucb",
    "DisjointPrivateGLM": "dpbandits.policies.disjoint_private_glm",
    "DisjointShuffleGLM": "dpbandits.policies.disjoint_shuffle_glm",
    "DisjointThompson": "dpbandits.policies.disjoint_thompson",
    "Doubling": "dpbandits.policies.doubling",
    "DPLinUCB": "dpbandits.policies.dp_lin_ucb",
    "DPHDB": "dpbandits.policies.dphdb",
    "ECOLog": "dpbandits.policies.ecolog",
    "EpsilonGreedy": "dpbandits.policies.epsilon_greedy",
    "GLBOMD": "dpbandits.policies.glb_omd",
    "GLMUCB": "dpbandits.policies.glm_ucb",
    "GLOC": "dpbandits.policies.gloc",
    "HeavyOFUL": "dpbandits.policies.heavy_oful",
    "HvtUCB": "dpbandits.policies.hvt_ucb",
    "JointDPGLM": "dpbandits.policies.joint_dp_glm",
    "LaplaceThompson": "dpbandits.policies.laplace_thompson",
    "LDPGLM": "dpbandits.policies.ldp_glm",
    "LinearThompson": "dpbandits.policies.linear_thompson",
    "MENU": "dpbandits.policies.menu",
    "MoM": "dpbandits.policies.mom",
    "OFUGLB": "dpbandits.policies.ofu_glb",
    "OFUL": "dpbandits.policies.oful",
    "OFULogR": "dpbandits.policies.oful_log_r",
    "OFULMLogB": "dpbandits.policies.oful_mlogb",
    "OnePassPrivateGLM": "dpbandits.policies.one_pass_private_glm",
    "PersonPrivateGLM": "dpbandits.policies.person_private_glm",
    "PrivateHvtUCB": "dpbandits.policies.private_hvt_ucb",
    "Restarting": "dpbandits.policies.restarting",
    "RSGLinCB": "dpbandits.policies.rs_glincb",
    "ShuffleGLM": "dpbandits.policies.shuffle_glm",
    "ShuffleLinUCB": "dpbandits.policies.shuffle_lin_ucb",
    "ShuffleOnePassGLM": "dpbandits.policies.shuffle_one_pass_glm",
    "ShufflePersonGLM": "dpbandits.policies.shuffle_person_glm",
    "StandingPrivateGLM": "dpbandits.policies.standing_private_glm",
    "TOFU": "dpbandits.policies.tofu",
    "Uniform": "dpbandits.policies.uniform",
}

__getattr__, __dir__ = attributes_of(__name__, _HOMES)
