"""Three points and Laplace noise: bounds on the curves of (1 − q)R + qS against (1 − q)R + qS′.

R, S and S′ are Laplace noise of scale 1 around three points of a space of any dimension, no two of which are farther
apart than θ in the L1 norm. What it is for: :mod:`accounting.accountants.replaced_laplace`.

*Arms.* In every coordinate one of the three points lies between the others. So with M the noise around the middle ones,
each coordinate moves two of R, S, S′ away from M, to opposite sides. Let S be moved by s₁ all in all where S′ is and by
s₂ where R is; R by r₁ where S is and by r₂ where S′ is; S′ by s′₁ where S is and by s′₂ where R is. With s = s₁ + s₂
and so on, the distances are r + s, r + s′ and s + s′, at most θ. A point may be moved along a coordinate of its own,
too: who forgets it has the old laws. So let two of the sums be θ: one arm is θ − t, and two are t ≤ θ/2.

*Theorem.* Write x_R for the probability R(A), and so on. For w, a, b ≥ 0, the maximum over A of w·x_S − a·x_R − b·x_S′
is at most D(s₁, r₁), at most D(s₁, r), and at most C:

    D(s₁, r₁) = E_M[(wτ₁τ₂ − aρ₂ρ₃ − bσ₁)₊],    C = E_M[(wτ₁ − aρ₁ρ₃ − bσ₁σ₂)₊],

τ, σ and ρ the densities of S, S′ and R over M. In D a first coordinate moves S by s₁ and S′, to the other side, by s′;
a second one S by s₂ and R, to the other side, by r₁; and a third one R alone, by what is left of r. In C the first one
moves S by s and, to the other side, R by r₁ and S′ by s′₁; a second one S′ alone by s′₂, a third one R alone by r₂.

The divergence asks for this: with c = e^ε ≥ 1 it is the left side for w = q, a = (1 − q)(c − 1), b = cq, and for c ≤ 1
it is 1 − c and, with S and S′ exchanged and A for what it is not, that for w = cq, a = (1 − q)(1 − c), b = q.

*Proof.* Where one coordinate moves R and S′, to opposite sides, one of its factors of ρ and σ falls as the other rises,
and (wτ − aρ − bσ)₊ has a mixed derivative ≥ 0 in them; so its mean grows if they are drawn independently, coordinate
after coordinate. Now given all else, sections of A along the coordinates that move S′ ask for the same, with weights of
any size on S, M and S′. On the way from M to S in small steps x and 1 − x change by no more than a factor of e^(ds),
and so from M to S′ (see :class:`~accounting.accountants.losses.LaplacePair`); half-lines of a single coordinate reach
both bounds at once. The same holds of the coordinates that move R and S; of those that move R alone; and of all that
move R. For C, sections along the coordinates that move S ask for R, S and S′: from R to S it is r₁ + s, from S′ to S it
is s′₁ + s, and again half-lines of a single coordinate reach both bounds at once. ∎

*Lemma.* Longer arms have no less, in C and in D; for who forgets a coordinate has the old laws. (i) D grows if S's arm
along a coordinate does as much as the other one there shrinks. (ii) Let α* = ½(s + ln(w/(ae^(−r) + be^(−s′)))). Where
s₁ ≥ α*, D does not fall as s₁ grows by as much as s₂ shrinks; (iii) and not as s₁ grows by as much as r and s′ both
shrink, wherever R does. The same holds of s₂ where s₂ ≥ α*; and of the arms in more coordinates that move S and R.

*Proof.* Sections of the best A along the first coordinate are half-lines on the side of S. At their ends y the gain is
0, wτ₂f_S = aρ₂ρ₃f_M + bf_S′, f the densities along it. As A is the best, D changes as if it stood. So S's arm there
gains E[wτ₂f_S] = aX + bY, where X is the mean of ρ₂ρ₃f_M, and Y that of f_S′, what S′(A) loses as s′ grows: (i). Of
half-lines f_M is min(h, 1 − h), h = M's probability. If 0 gains nothing, h ≤ ½ in all sections and X = R(A), Y = S′(A).
What S gains along the second coordinate is aY′ + bX′ likewise, Y′ what R(A) loses as r₁ grows; and a mean of min(h, 1 −
h) is at most that of h, so Y′ ≤ R(A) and X′ ≤ S′(A), and what R(A) loses as the third arm grows is at most R(A), too.
Hence aX + bY is at least what is lost. And 0 gains nothing if wτ₂e^(−s₁) ≤ aρ₂ρ₃ + be^(−s′), where τ₂ ≤ e^(s₂) and
ρ₂ρ₃ ≥ e^(−r). In the second coordinate wτ₁e^(−s₂) ≤ ae^(−r₁)ρ₃ + bσ₁ will do, where τ₁ ≤ e^(s₁), σ₁ ≥ e^(−s′). ∎

*Tied.* Of the coordinates that move S and R let one have the most of r₁, and p ≤ ¼. If it has at least 1 − p of r₁ and
of s₂, the maximum over A of w·x_S′ − a·x_R − b·x_S is at most

    E = E_M[(wσ₁ − aρ₁ρ₂ρ₃ − bτ₁τ₂τ₄)₊],

where the first coordinate moves S′ by s′ and both S and R, to the other side, by the larger of s₁ and r₂; the second
one S by s₂ and R, to the other side, by r₁; and others R alone by pr₁ and S alone by ps₂. If it has less, and s₂ ≥ 2α*,
the maximum of w·x_S − a·x_R − b·x_S′ is at most the largest D(s₁, v) of all v ≤ (1 − p)r₁; or at most B, that is D with
one more coordinate, where S moves by (1 − p)s₂ and R by r₁, and in the other one S by ps₂ and R by pr₁.

*Proof.* For E, leave that coordinate as it is, and go on as for C; longer arms have no less. Else the coordinates that
move S and R are two groups, each of which is one coordinate at most, as in the theorem. (1) If no coordinate has 1 − p
of r₁, one group can have a share between ½ and 1 − p of it: one coordinate alone, if that has half; else so many that
half is passed, unless the last of these has between ½ − p and ½, and the others have the rest. (2) Else the one that
has it is a group, with less than 1 − p of s₂. By (ii) S's arm in one of both groups, that is at least α*, may grow as
the other one shrinks: to s₂, which is a D(s₁, v); or in (2), where R has nearly all, to (1 − p)s₂, which is B. ∎

*Numbers.* Densities are moved to the ends of pieces, which is more in convex order. The last coordinate is a closed
form: given all else the gain rises from R to S, and is 0 at the end of a half-line.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arms", "Weights", "alone_against", "apart", "loose", "opposed", "tied"]

Array = NDArray[np.float64]
# Masses, and three densities
Atoms = tuple[Array, Array, Array, Array]

# Pieces of a density between its largest and its smallest value, at least, and how wide they are at most; and of the
# density of a point that is alone.
_PIECES, _FEW = (12, 0.15), (8, 0.3)
# s₁ as a share of s: pieces that are narrow at both ends.
_SHARES = 0.5 - 0.5 * np.cos(np.pi * np.linspace(0.0, 1.0, 29))
# Ends of intervals of r₁/r, where S and R are not tied.
_AGAINST = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# Arms and pieces of arms are at least as long.
_SHORTEST = 1e-9
# Pieces that are narrower than this are not cut off.
_NARROW = 0.01


class Weights(NamedTuple):
    """w, a and b, one of each for every loss."""

    w: Array
    a: Array
    b: Array


@lru_cache(maxsize=4096)
def _side(near: float, far: float, least: int, widest: float) -> tuple[Array, Array]:
    """Places y from 0 to ``far``, ``near`` among them, and M's masses there, so that e^(2y) has its mean."""
    y = np.zeros(1)
    for start, end in ((0.0, near), (near, far)):
        if end - start > 0.0:
            pieces = max(least, math.ceil((end - start) / widest))
            y = np.append(y, np.linspace(start, end, pieces + 1)[1:])
    ratios, shares = np.exp(2 * y), -np.expm1(-np.diff(y))
    mass, moved = 0.5 * np.exp(-y[:-1]) * shares, 0.5 * np.exp(y[1:]) * shares
    up = np.clip((moved - mass * ratios[:-1]) / np.diff(ratios), 0.0, mass)
    masses = np.append(mass - up, 0.5 * math.exp(-far))
    masses[1:] += up
    return y, masses


@lru_cache(maxsize=4096)
def _coordinate(pieces: tuple[int, float], arm: float, one: float, other: float = 0.0) -> Atoms:
    """M's masses, the densities of a point that moves by ``arm``, and of two that move to the other side."""
    # longer arms have no less: those that are not to be told from others are as long
    arm, one, other = (max(x, _SHORTEST) if x > 0.0 else 0.0 for x in (arm, one, other))
    y, right = _side(0.0, arm, *pieces)
    if abs(one - other) < _SHORTEST:
        one = other = max(one, other)
    z, left = _side(min(one, other), max(one, other), *pieces)
    there = np.concatenate([np.full(z.size, math.exp(-arm)), np.exp(2 * y - arm)])
    back, more = (
        np.concatenate([np.exp(2 * np.minimum(z, point) - point), np.full(y.size, math.exp(-point))])
        for point in (one, other)
    )
    return np.concatenate([left, right]), there, back, more


def _gain(weights: Weights, atoms: Atoms, arm: float, against: float, *, both: bool = False) -> Array:
    """E[(wττ₂ − aρρ₂ − bσ)₊] over masses, τ, ρ and σ, where S moves by ``arm`` and R ``against`` it in a coordinate.

    With ``both`` S′ moves with R. Given x = wτ, y = aρ and z = bσ, the gain at a place t of the coordinate rises with
    t. At 0 it is xe^(−arm) − z − ye^(−against). If that is not above 0 it is 0 at t ≥ 0 where xe^(2t − arm) =
    ye^(−against) + z, or nowhere up to ``arm``; else where ye^(−2t − against) = xe^(−arm) − z, t ≤ 0, or nowhere.
    """
    mass, tau, rho, sigma = atoms
    x, y, z = (np.multiply.outer(of, density) for of, density in zip(weights, (tau, rho, sigma), strict=True))
    if both:
        y, z = y + z, np.zeros_like(z)
    beyond = x * math.exp(-arm) - z
    near = np.sqrt(x * (y * math.exp(-against) + z)) * math.exp(-arm / 2)
    far = np.minimum(np.sqrt(np.maximum(beyond, 0.0) * y) * math.exp(-against / 2), y)
    gain = np.where(beyond <= y * math.exp(-against), np.maximum(x - near, 0.0), x - z - far)
    return np.asarray((gain @ mass) * (1 + 1e-12) + 4e-15 * weights.w)


def _alone(atoms: Atoms, which: int, arm: float) -> Atoms:
    """With another coordinate, along which only one point moves: the density of ``which`` changes."""
    if arm == 0.0:
        return atoms
    mass, density, _, _ = _coordinate(_FEW, arm, 0.0)
    found = [np.repeat(x, mass.size) for x in atoms]
    found[0] *= np.tile(mass, atoms[0].size)
    found[which] *= np.tile(density, atoms[0].size)
    return found[0], found[1], found[2], found[3]


def opposed(weights: Weights, arms: tuple[float, float], other: float, against: float, alone: float = 0.0) -> Array:
    """D: S's ``arms`` s₁ and s₂, S′'s ``other``, R's ``against`` S along the second coordinate, and ``alone``."""
    mass, tau, sigma, _ = _coordinate(_PIECES, arms[0], other)
    return _gain(weights, _alone((mass, tau, np.ones(mass.size), sigma), 2, alone), arms[1], against)


def apart(weights: Weights, arm: float, other: tuple[float, float], third: tuple[float, float]) -> Array:
    """C: S's ``arm``, and what S′'s and R's have on the other side of it and alone."""
    return _gain(weights, _alone(_coordinate(_PIECES, arm, third[0], other[0]), 3, other[1]), 0.0, third[1])


def loose(weights: Weights, arms: tuple[float, float, float], other: float, third: tuple[float, float, float]) -> Array:
    """B: D with one more coordinate that moves S and R, by s₁, s₂ and more; R by as many, and alone by the last."""
    mass, tau, sigma, _ = _coordinate(_PIECES, arms[0], other)
    more, tau2, rho2, _ = _coordinate(_FEW, arms[2], third[1])
    atoms = (
        np.outer(mass, more).ravel(),
        np.outer(tau, tau2).ravel(),
        np.tile(rho2, mass.size),
        np.repeat(sigma, more.size),
    )
    return _gain(weights, _alone(atoms, 2, third[2]), arms[1], third[0])


def tied(weights: Weights, arm: float, near: float, other: tuple[float, float], third: tuple[float, float]) -> Array:
    """E: S by ``arm``, both others by ``near``; these by the first of theirs against each other, and alone."""
    mass, sigma, rho, _ = _coordinate(_PIECES, other[0], third[0])
    atoms = _alone(_alone((mass, np.ones(mass.size), rho, sigma), 3, other[1]), 2, third[1])
    return _gain(weights, atoms, arm, near, both=True)


def alone_against(weights: Weights, arm: float, others: tuple[float, float]) -> Array:
    """E[(wτ₁ − aρ₂ − bσ₂)₊]: S alone by ``arm``, and S′ and R along one coordinate, to opposite sides."""
    mass, sigma, rho, _ = _coordinate(_PIECES, *others)
    return _gain(weights, (mass, np.ones(mass.size), rho, sigma), arm, 0.0)


@dataclass(frozen=True)
class Arms:
    """All arms with t between ``start`` and ``end``, of which that of ``long`` is θ − t."""

    theta: float
    start: float
    end: float
    long: Literal["S", "S′", "R"]

    def mirrored(self) -> Arms:
        """With S and S′ exchanged."""
        if self.long == "R":
            return self
        return Arms(self.theta, self.start, self.end, "S" if self.long == "S′" else "S′")

    def opposed(self, weights: Weights, shares: tuple[float, float], against: tuple[float, float] = (1, 1)) -> Array:
        """At least D(s₁, r₁) for all s₁/s in ``shares`` and r₁/r in ``against``.

        S′'s arm, if long, and what R has against S come down to θ − ``end`` by (i). If S's is long, D is the largest at
        ``start`` by (ii) and (iii). By (ii) s₁ or s₂ is as small as may be, but where both are below α*: all of these
        are counted in pieces, with longer arms.
        """
        start, end, far, longest = self.start, self.end, self.theta - self.end, self.theta - self.start
        least, s = start, end
        if self.long == "S":
            least, s, arms = far, longest, [(start, start, start), (end, end, end)]
        elif self.long == "S′":
            arms = [(far, end, end)] * 2
        else:
            # what R has there must be enough
            enough = against[0] * far >= end - start
            arms = [(end, far if enough else longest, longest)] * 2
        known, most = ((other, against[1] * near, (1 - against[0]) * alone) for other, near, alone in arms)
        first, second = shares[0] * least, (1 - shares[1]) * least
        found = np.maximum(opposed(weights, (first, s - first), *known), opposed(weights, (s - second, second), *known))
        w, a, b = weights
        limit = (s + np.log(w / (a * math.exp(-most[1] - most[2]) + b * math.exp(-most[0])))) / 2 * (1 + 1e-9) + 1e-12
        low, high, total = (*shares, least) if self.long == "S" else (first / s, 1 - second / s, s)
        inner = _SHARES[np.abs(_SHARES - (low + high) / 2) < (high - low) / 2 - _NARROW]
        for one, two in itertools.pairwise([low, *inner, high]):
            some = (total * one <= limit) & (total * (1 - two) <= limit)
            if some.any():
                more = opposed(Weights(w[some], a[some], b[some]), (s * two, s * (1 - one)), *most)
                found[some] = np.maximum(found[some], more)
        return found

    def apart(self, weights: Weights, other: tuple[float, float], third: tuple[float, float]) -> Array:
        """At least C for s′₁ and s′₂ of at most ``other`` times s′, and r₁ and r₂ of at most ``third`` times r."""
        s, more, r = (self.theta - self.start if self.long == point else self.end for point in ("S", "S′", "R"))
        return apart(weights, s, (other[0] * more, other[1] * more), (third[0] * r, third[1] * r))

    def tied(self, weights: Weights, near: float, rest: float) -> Array:
        """At least E where s′₁ and r₁ are at most ``near`` times their arms, and what is not tied ``rest`` times."""
        s, other, r = (self.theta - self.start if self.long == point else self.end for point in ("S", "S′", "R"))
        return tied(weights, s, near * max(other, r), (other, rest * other), (r, rest * r))

    def loose(self, weights: Weights, shares: tuple[float, float], third: float, rest: float, least: Array) -> Array:
        """No more than ``least``, and at least what no triple passes whose S and R are not tied but for ``rest``.

        s₁/s is in ``shares``, and r₂/r at most ``third``. Where s₂ < 2α* it is ``least``.
        """
        low, s, other, r = self.start, self.end, self.end, self.end
        if self.long == "S":
            low, s = self.theta - self.end, self.theta - self.start
        elif self.long == "S′":
            other = self.theta - self.end
        else:
            r = self.theta - self.start
        w, a, b = weights
        limit = (s + np.log(w / (a * math.exp(-r) + b * math.exp(-other)))) / 2 * (1 + 1e-9) + 1e-12
        some = (1 - shares[1]) * low >= 2 * limit
        found, weights = least.copy(), Weights(w[some], a[some], b[some])
        if self.long == "S":
            # (iii), of the arms as they are: at the start. They are made longer after that, or too much would shrink
            other = r = self.start
        first, last = shares[0] * low, rest * (1 - shares[1]) * low
        more = loose(weights, (first, s - first - last, last), other, (r, rest * r, third * r))
        for against in itertools.pairwise([*_AGAINST, 1 - rest]):
            more = np.maximum(more, self.opposed(weights, shares, against))
        found[some] = np.minimum(found[some], more)
        return found
