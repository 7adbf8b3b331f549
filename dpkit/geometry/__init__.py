"""Vectors, matrices, sets: half-vectors, sensitivities in closed form, repair of noisy matrices, sets, designs."""

from dpkit.geometry.box import Box
from dpkit.geometry.ellipsoid import Ellipsoid, EllipsoidBall
from dpkit.geometry.g_optimal_design import g_optimal_design
from dpkit.geometry.half_vector import smat, svec
from dpkit.geometry.lp_ball import LpBall
from dpkit.geometry.semidefinite import nearest_psd, ridge_shift
from dpkit.geometry.sensitivity import (
    one_hot_sensitivity,
    outer_product_sensitivity,
    pair_sensitivity,
    several_pairs_sensitivity,
    summed_pairs_sensitivity,
    vector_sensitivity,
)
from dpkit.geometry.sets import ConvexSet, PolyhedralSet
from dpkit.geometry.simplex import Simplex
from dpkit.geometry.smooth_norm import best_norm

__all__ = [
    "Box",
    "ConvexSet",
    "Ellipsoid",
    "EllipsoidBall",
    "LpBall",
    "PolyhedralSet",
    "Simplex",
    "best_norm",
    "g_optimal_design",
    "nearest_psd",
    "one_hot_sensitivity",
    "outer_product_sensitivity",
    "pair_sensitivity",
    "several_pairs_sensitivity",
    "summed_pairs_sensitivity",
    "ridge_shift",
    "smat",
    "svec",
    "vector_sensitivity",
]
