"""The policies, one file each, named after the algorithm.

Each is loaded when it is first asked for: ``from dpbandits.policies import GLBOMD`` reads one of these files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpkit.lazy import attributes_of

if TYPE_CHECKING:
    from dpbandits.private.adap_ucb import AdaPUCB as AdaPUCB
    from dpbandits.private.disjoint_private_glm import DisjointPrivateGLM as DisjointPrivateGLM
    from dpbandits.private.disjoint_shuffle_glm import DisjointShuffleGLM as DisjointShuffleGLM
    from dpbandits.private.doubling import Doubling as Doubling
    from dpbandits.private.dp_lin_ucb import DPLinUCB as DPLinUCB
    from dpbandits.private.dphdb import DPHDB as DPHDB
    from dpbandits.private.dpse import DPSE as DPSE
    from dpbandits.private.joint_dp_glm import JointDPGLM as JointDPGLM
    from dpbandits.private.ldp_arms import LDPArms as LDPArms
    from dpbandits.private.ldp_glm import LDPGLM as LDPGLM
    from dpbandits.private.one_pass_private_glm import OnePassPrivateGLM as OnePassPrivateGLM
    from dpbandits.private.person_private_glm import PersonPrivateGLM as PersonPrivateGLM
    from dpbandits.private.private_arms import PrivateArms as PrivateArms
    from dpbandits.private.private_hvt_ucb import PrivateHvtUCB as PrivateHvtUCB
    from dpbandits.private.restarting import Restarting as Restarting
    from dpbandits.private.shuffle_arms import ShuffleArms as ShuffleArms
    from dpbandits.private.shuffle_glm import ShuffleGLM as ShuffleGLM
    from dpbandits.private.shuffle_lin_ucb import ShuffleLinUCB as ShuffleLinUCB
    from dpbandits.private.shuffle_one_pass_glm import ShuffleOnePassGLM as ShuffleOnePassGLM
    from dpbandits.private.shuffle_person_glm import ShufflePersonGLM as ShufflePersonGLM
    from dpbandits.private.slate_private_glm import SlatePrivateGLM as SlatePrivateGLM
    from dpbandits.private.standing_private_glm import StandingPrivateGLM as StandingPrivateGLM
    from dpbandits.reference.heavy_tails.ada_oful import AdaOFUL as AdaOFUL
    from dpbandits.reference.heavy_tails.bmm import BMM as BMM
    from dpbandits.reference.heavy_tails.btc import BTC as BTC
    from dpbandits.reference.heavy_tails.crmm import CRMM as CRMM
    from dpbandits.reference.heavy_tails.crt import CRT as CRT
    from dpbandits.reference.heavy_tails.crtm import CRTM as CRTM
    from dpbandits.reference.heavy_tails.heavy_oful import HeavyOFUL as HeavyOFUL
    from dpbandits.reference.heavy_tails.hvt_ucb import HvtUCB as HvtUCB
    from dpbandits.reference.heavy_tails.menu import MENU as MENU
    from dpbandits.reference.heavy_tails.mom import MoM as MoM
    from dpbandits.reference.heavy_tails.tofu import TOFU as TOFU
    from dpbandits.reference.light_tails.ada_ofu_ecolog import AdaOFUECOLog as AdaOFUECOLog
    from dpbandits.reference.light_tails.b_glincb import BGLinCB as BGLinCB
    from dpbandits.reference.light_tails.ecolog import ECOLog as ECOLog
    from dpbandits.reference.light_tails.glb_omd import GLBOMD as GLBOMD
    from dpbandits.reference.light_tails.glm_ucb import GLMUCB as GLMUCB
    from dpbandits.reference.light_tails.gloc import GLOC as GLOC
    from dpbandits.reference.light_tails.laplace_thompson import LaplaceThompson as LaplaceThompson
    from dpbandits.reference.light_tails.linear_thompson import LinearThompson as LinearThompson
    from dpbandits.reference.light_tails.ofu_glb import OFUGLB as OFUGLB
    from dpbandits.reference.light_tails.oful import OFUL as OFUL
    from dpbandits.reference.light_tails.oful_log_r import OFULogR as OFULogR
    from dpbandits.reference.light_tails.oful_mlogb import OFULMLogB as OFULMLogB
    from dpbandits.reference.light_tails.ol2m import OL2M as OL2M
    from dpbandits.reference.light_tails.rs_glincb import RSGLinCB as RSGLinCB
    from dpbandits.reference.simple.disjoint_lin_ucb import DisjointLinUCB as DisjointLinUCB
    from dpbandits.reference.simple.disjoint_thompson import DisjointThompson as DisjointThompson
    from dpbandits.reference.simple.epsilon_greedy import EpsilonGreedy as EpsilonGreedy
    from dpbandits.reference.simple.kl_ucb import KLUCB as KLUCB
    from dpbandits.reference.simple.thompson_arms import ThompsonArms as ThompsonArms
    from dpbandits.reference.simple.uniform import Uniform as Uniform
    from dpbandits.reference.slates.cascade_thompson import CascadeThompson as CascadeThompson
    from dpbandits.reference.slates.cascade_ucb import CascadeUCB as CascadeUCB

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

__all__ = list(_HOMES)
__getattr__, __dir__ = attributes_of(__name__, _HOMES)
