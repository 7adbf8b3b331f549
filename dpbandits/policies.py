"""The policies, one file each, named after the algorithm.

Each is loaded when it is first asked for: ``from dpbandits.policies import GLBOMD`` reads one of these files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpkit.lazy import attributes_of

if TYPE_CHECKING:
    from dpbandits.private.adap_ucb import AdaPUCB
    from dpbandits.private.disjoint_private_glm import DisjointPrivateGLM
    from dpbandits.private.disjoint_shuffle_glm import DisjointShuffleGLM
    from dpbandits.private.doubling import Doubling
    from dpbandits.private.dp_lin_ucb import DPLinUCB
    from dpbandits.private.dphdb import DPHDB
    from dpbandits.private.dpse import DPSE
    from dpbandits.private.joint_dp_glm import JointDPGLM
    from dpbandits.private.ldp_arms import LDPArms
    from dpbandits.private.ldp_glm import LDPGLM
    from dpbandits.private.one_pass_private_glm import OnePassPrivateGLM
    from dpbandits.private.person_private_glm import PersonPrivateGLM
    from dpbandits.private.private_arms import PrivateArms
    from dpbandits.private.private_hvt_ucb import PrivateHvtUCB
    from dpbandits.private.restarting import Restarting
    from dpbandits.private.shuffle_arms import ShuffleArms
    from dpbandits.private.shuffle_glm import ShuffleGLM
    from dpbandits.private.shuffle_lin_ucb import ShuffleLinUCB
    from dpbandits.private.shuffle_one_pass_glm import ShuffleOnePassGLM
    from dpbandits.private.shuffle_person_glm import ShufflePersonGLM
    from dpbandits.private.slate_private_glm import SlatePrivateGLM
    from dpbandits.private.standing_private_glm import StandingPrivateGLM
    from dpbandits.reference.heavy_tails.ada_oful import AdaOFUL
    from dpbandits.reference.heavy_tails.bmm import BMM
    from dpbandits.reference.heavy_tails.btc import BTC
    from dpbandits.reference.heavy_tails.crmm import CRMM
    from dpbandits.reference.heavy_tails.crt import CRT
    from dpbandits.reference.heavy_tails.crtm import CRTM
    from dpbandits.reference.heavy_tails.heavy_oful import HeavyOFUL
    from dpbandits.reference.heavy_tails.hvt_ucb import HvtUCB
    from dpbandits.reference.heavy_tails.menu import MENU
    from dpbandits.reference.heavy_tails.mom import MoM
    from dpbandits.reference.heavy_tails.tofu import TOFU
    from dpbandits.reference.light_tails.ada_ofu_ecolog import AdaOFUECOLog
    from dpbandits.reference.light_tails.b_glincb import BGLinCB
    from dpbandits.reference.light_tails.ecolog import ECOLog
    from dpbandits.reference.light_tails.glb_omd import GLBOMD
    from dpbandits.reference.light_tails.glm_ucb import GLMUCB
    from dpbandits.reference.light_tails.gloc import GLOC
    from dpbandits.reference.light_tails.laplace_thompson import LaplaceThompson
    from dpbandits.reference.light_tails.linear_thompson import LinearThompson
    from dpbandits.reference.light_tails.ofu_glb import OFUGLB
    from dpbandits.reference.light_tails.oful import OFUL
    from dpbandits.reference.light_tails.oful_log_r import OFULogR
    from dpbandits.reference.light_tails.oful_mlogb import OFULMLogB
    from dpbandits.reference.light_tails.ol2m import OL2M
    from dpbandits.reference.light_tails.rs_glincb import RSGLinCB
    from dpbandits.reference.simple.disjoint_lin_ucb import DisjointLinUCB
    from dpbandits.reference.simple.disjoint_thompson import DisjointThompson
    from dpbandits.reference.simple.epsilon_greedy import EpsilonGreedy
    from dpbandits.reference.simple.kl_ucb import KLUCB
    from dpbandits.reference.simple.thompson_arms import ThompsonArms
    from dpbandits.reference.simple.uniform import Uniform
    from dpbandits.reference.slates.cascade_thompson import CascadeThompson
    from dpbandits.reference.slates.cascade_ucb import CascadeUCB

__all__ = [
    "AdaOFUECOLog",
    "AdaOFUL",
    "AdaPUCB",
    "BGLinCB",
    "BMM",
    "BTC",
    "CascadeThompson",
    "CascadeUCB",
    "CRMM",
    "CRT",
    "CRTM",
    "DisjointLinUCB",
    "DisjointPrivateGLM",
    "DisjointShuffleGLM",
    "DisjointThompson",
    "Doubling",
    "DPHDB",
    "DPLinUCB",
    "DPSE",
    "ECOLog",
    "EpsilonGreedy",
    "GLBOMD",
    "GLMUCB",
    "GLOC",
    "HeavyOFUL",
    "HvtUCB",
    "JointDPGLM",
    "KLUCB",
    "LaplaceThompson",
    "LDPArms",
    "LDPGLM",
    "LinearThompson",
    "MENU",
    "MoM",
    "OFUGLB",
    "OFUL",
    "OFULMLogB",
    "OFULogR",
    "OL2M",
    "OnePassPrivateGLM",
    "PersonPrivateGLM",
    "PrivateArms",
    "PrivateHvtUCB",
    "Restarting",
    "RSGLinCB",
    "ShuffleArms",
    "ShuffleGLM",
    "ShuffleLinUCB",
    "ShuffleOnePassGLM",
    "ShufflePersonGLM",
    "SlatePrivateGLM",
    "StandingPrivateGLM",
    "ThompsonArms",
    "TOFU",
    "Uniform",
]

_HOMES = {
    "AdaOFUECOLog": "dpbandits.reference.light_tails.ada_ofu_ecolog",
    "AdaOFUL": "dpbandits.reference.heavy_tails.ada_oful",
    "AdaPUCB": "dpbandits.private.adap_ucb",
    "BGLinCB": "dpbandits.reference.light_tails.b_glincb",
    "BMM": "dpbandits.reference.heavy_tails.bmm",
    "BTC": "dpbandits.reference.heavy_tails.btc",
    "CascadeThompson": "dpbandits.reference.slates.cascade_thompson",
    "CascadeUCB": "dpbandits.reference.slates.cascade_ucb",
    "CRMM": "dpbandits.reference.heavy_tails.crmm",
    "CRT": "dpbandits.reference.heavy_tails.crt",
    "CRTM": "dpbandits.reference.heavy_tails.crtm",
    "DisjointLinUCB": "dpbandits.reference.simple.disjoint_lin_ucb",
    "DisjointPrivateGLM": "dpbandits.private.disjoint_private_glm",
    "DisjointShuffleGLM": "dpbandits.private.disjoint_shuffle_glm",
    "DisjointThompson": "dpbandits.reference.simple.disjoint_thompson",
    "Doubling": "dpbandits.private.doubling",
    "DPHDB": "dpbandits.private.dphdb",
    "DPLinUCB": "dpbandits.private.dp_lin_ucb",
    "DPSE": "dpbandits.private.dpse",
    "ECOLog": "dpbandits.reference.light_tails.ecolog",
    "EpsilonGreedy": "dpbandits.reference.simple.epsilon_greedy",
    "GLBOMD": "dpbandits.reference.light_tails.glb_omd",
    "GLMUCB": "dpbandits.reference.light_tails.glm_ucb",
    "GLOC": "dpbandits.reference.light_tails.gloc",
    "HeavyOFUL": "dpbandits.reference.heavy_tails.heavy_oful",
    "HvtUCB": "dpbandits.reference.heavy_tails.hvt_ucb",
    "JointDPGLM": "dpbandits.private.joint_dp_glm",
    "KLUCB": "dpbandits.reference.simple.kl_ucb",
    "LaplaceThompson": "dpbandits.reference.light_tails.laplace_thompson",
    "LDPArms": "dpbandits.private.ldp_arms",
    "LDPGLM": "dpbandits.private.ldp_glm",
    "LinearThompson": "dpbandits.reference.light_tails.linear_thompson",
    "MENU": "dpbandits.reference.heavy_tails.menu",
    "MoM": "dpbandits.reference.heavy_tails.mom",
    "OFUGLB": "dpbandits.reference.light_tails.ofu_glb",
    "OFUL": "dpbandits.reference.light_tails.oful",
    "OFULMLogB": "dpbandits.reference.light_tails.oful_mlogb",
    "OFULogR": "dpbandits.reference.light_tails.oful_log_r",
    "OL2M": "dpbandits.reference.light_tails.ol2m",
    "OnePassPrivateGLM": "dpbandits.private.one_pass_private_glm",
    "PersonPrivateGLM": "dpbandits.private.person_private_glm",
    "PrivateArms": "dpbandits.private.private_arms",
    "PrivateHvtUCB": "dpbandits.private.private_hvt_ucb",
    "Restarting": "dpbandits.private.restarting",
    "RSGLinCB": "dpbandits.reference.light_tails.rs_glincb",
    "ShuffleArms": "dpbandits.private.shuffle_arms",
    "ShuffleGLM": "dpbandits.private.shuffle_glm",
    "ShuffleLinUCB": "dpbandits.private.shuffle_lin_ucb",
    "ShuffleOnePassGLM": "dpbandits.private.shuffle_one_pass_glm",
    "ShufflePersonGLM": "dpbandits.private.shuffle_person_glm",
    "SlatePrivateGLM": "dpbandits.private.slate_private_glm",
    "StandingPrivateGLM": "dpbandits.private.standing_private_glm",
    "ThompsonArms": "dpbandits.reference.simple.thompson_arms",
    "TOFU": "dpbandits.reference.heavy_tails.tofu",
    "Uniform": "dpbandits.reference.simple.uniform",
}

__getattr__, __dir__ = attributes_of(__name__, _HOMES)
