"""The policies, one file each, named after the algorithm.

Each is loaded when it is first asked for: ``from dpbandits.policies import GLBOMD`` reads one of these files.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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
    "AdaOFUECOLog": "ada_ofu_ecolog",
    "AdaOFUL": "ada_oful",
    "CRMM": "crmm",
    "CRT": "crt",
    "CRTM": "crtm",
    "DisjointLinUCB": "disjoint_lin_ucb",
    "DisjointPrivateGLM": "disjoint_private_glm",
    "DisjointShuffleGLM": "disjoint_shuffle_glm",
    "DisjointThompson": "disjoint_thompson",
    "Doubling": "doubling",
    "DPLinUCB": "dp_lin_ucb",
    "DPHDB": "dphdb",
    "ECOLog": "ecolog",
    "EpsilonGreedy": "epsilon_greedy",
    "GLBOMD": "glb_omd",
    "GLMUCB": "glm_ucb",
    "GLOC": "gloc",
    "HeavyOFUL": "heavy_oful",
    "HvtUCB": "hvt_ucb",
    "JointDPGLM": "joint_dp_glm",
    "LaplaceThompson": "laplace_thompson",
    "LDPGLM": "ldp_glm",
    "LinearThompson": "linear_thompson",
    "MENU": "menu",
    "MoM": "mom",
    "OFUGLB": "ofu_glb",
    "OFUL": "oful",
    "OFULogR": "oful_log_r",
    "OFULMLogB": "oful_mlogb",
    "OnePassPrivateGLM": "one_pass_private_glm",
    "PersonPrivateGLM": "person_private_glm",
    "PrivateHvtUCB": "private_hvt_ucb",
    "Restarting": "restarting",
    "RSGLinCB": "rs_glincb",
    "ShuffleGLM": "shuffle_glm",
    "ShuffleLinUCB": "shuffle_lin_ucb",
    "ShuffleOnePassGLM": "shuffle_one_pass_glm",
    "ShufflePersonGLM": "shuffle_person_glm",
    "StandingPrivateGLM": "standing_private_glm",
    "TOFU": "tofu",
    "Uniform": "uniform",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
