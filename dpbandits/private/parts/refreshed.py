"""What the policies share that protect persons by a total: everybody's statistics, refreshed at every release.

:mod:`~dpbandits.private.person_private_glm` says what they compute, step by step, and why it is private.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from accounting import Budget, Gaussian, calibrate
from accounting.arrays import Array
from accounting.checks import integer
from dpbandits.policy.choices import Law, Perturbed
from dpbandits.private.parts.cold_start import clarity
from dpbandits.private.parts.records import Levels, checked_slope, lopsided
from dpkit.models.ellipsoid import norms
from dpkit.models.links import Link
from dpkit.models.prior import Prior, posterior
from dpkit.moments.people import People, PersonSums, Weigh
from dpkit.moments.shuffled_people import ShuffledPersonSums

__all__ = [
    "Estimate",
    "PersonRecord",
    "Refit",
    "Refreshed",
    "Rule",
    "check_rounds",
    "first_release",
    "record_at",
    "refreshed",
]

# visits per person on average from which residuals are taken at θ
_RETURNS = 1.4
# F over the secant weight at |xᵀθ| = S
_MATRIX_BOUND = 0.6
# B_p/R where η = 1, and where η = 0 its limit and how it falls with √n_p
_CLIP, _CLIP_LIMIT, _CLIP_FALL = 0.7, 0.1, 0.6
# share of the squared sensitivity that is b_p's, for the B_p/R that it is reckoned with, where η = 0 and where η = 1
_SHARES = (0.9, 0.45), (0.7, 0.7)
# κ where nobody new comes, over κ where every round is a newcomer's: what is paid for a release that few have a part in
# buys little, so that it is better paid while most of the others are only coming
_SETTLED = 0.25
# the variance of one round in a direction, over W, when releases are weighed against each other
_VARIANCE = 0.2
# by how many times its noise level the curvature is raised, and how much of that is laid on the last θ
_RAISE, _ANCHOR = 0.8, 0.5
# γ at least, and over how many releases it is reckoned
_FLATTEST, _LATEST = 0.3, 3


@dataclass(frozen=True)
class Estimate:
    """The public half: θ and P⁻¹, and of every release made so far what it says.

    Attributes
    ----------
    theta, inverse : ndarray of shape (d,), (d, d)
    curvatures : (releases, d, d) ndarray
        h_j = H_j/Ω_j, Ω_j = Σω_p.
    gradients : (releases, d) ndarray
        G_j/Ω_j.
    points : (releases, d) ndarray
        θ_j, at which they were formed.
    centres : (releases,) ndarray
        η_j.
    slopes : (releases,) ndarray
        γ_j.
    variances : (releases,) ndarray
        D_j, that of the noise of G_j/Ω_j.
    rounds : (releases,) ndarray
        N_j = Ω_j²/Σ(ω_p²/n_p): of how many rounds they are means, in effect.
    levels : (releases,) ndarray
        The standard deviation of the noise of h_j.
    level, levelled : float, bool
        At which contributions are formed, on the link's scale from the base rate; and whether that is final.
    deviations : (float, float)
        While it is not, of the means of rewards that releases told, from the middle of the range and in units of it,
        the sum of each over the variance of its noise; and the sum of one over these.
    before : int
        How many releases were made at another level, and do not count.
    """

    theta: Array
    inverse: Array
    curvatures: Array
    gradients: Array
    points: Array
    centres: Array
    slopes: Array
    variances: Array
    rounds: Array
    levels: Array
    level: float
    levelled: bool
    deviations: tuple[float, float]
    before: int


# what releases tell, in the order of :class:`Estimate`
_HISTORY = ("curvatures", "gradients", "points", "centres", "slopes", "variances", "rounds", "levels")


@dataclass(frozen=True)
class PersonRecord:
    """What each person contributes to a release, formed anew at θ: a mean of w·x xᵀ and one of g·x, both cut.

    Attributes
    ----------
    link : Link
    theta_bound : float
        S.
    centre, R : float
        μ(0), and the largest |r − μ(0)|.
    W, saturated : float
        The largest slope of the link, and F/c: the secant weight of arms with |xᵀθ| = S, which are what a good θ plays.
    energies, slopes : ndarray
        (μ(e) − μ(0))·e, ascending, and slope over secant, for e in (0, S].
    """

    link: Link
    theta_bound: float
    centre: float
    R: float
    W: float
    saturated: float
    energies: Array
    slopes: Array

    @classmethod
    def of(cls, link: Link, theta_bound: float, reward_range: tuple[float, float]) -> PersonRecord:
        """The levels for rewards in this range."""
        (low, high), S = reward_range, theta_bound
        W, centre = checked_slope(link.lipschitz(S)), float(link.mean(0.0))
        ends = np.array([-S, S])
        saturated = float(_secants(link, W, ends).max())
        # whatever a caller's link says
        e = np.linspace(0.0, S, 61)[1:]
        w = _secants(link, W, e)
        slopes = np.fmin(np.fmax(link.derivative(e) / w, _FLATTEST), 1.0)
        energies = np.maximum.accumulate(w * e**2)
        return cls(link, S, centre, max(abs(low - centre), abs(high - centre)), W, saturated, energies, slopes)

    def bounds(self, people: People, η: float) -> tuple[float, float, Array]:
        """a, F and everybody's B."""
        F = _MATRIX_BOUND * self.saturated
        share, clip = _SHARES[int(η)]
        a = clip * self.R / F * math.sqrt(2 * (1 - share) / share)
        if η:
            return a, F, np.full(len(people), _CLIP * self.R)
        return a, F, self.R * (_CLIP_LIMIT + _CLIP_FALL / np.sqrt(people.visits))

    def weigh(self, theta: Array, η: float) -> Weigh:
        """What forms w and g at θ: within public bounds whatever a caller's link says, and never NaN."""
        # |r − μ(e)| ≤ R + W‖θ‖ and |w·e| ≤ W‖θ‖
        most = self.R + 2 * self.W * self.theta_bound

        def weigh(arms: Array, rewards: Array) -> tuple[Array, Array]:
            e = arms @ theta
            mean = self.link.mean(e)
            w = _secants(self.link, self.W, e, mean)
            return w, np.fmin(np.fmax(rewards - mean + η * w * e, -most), most)

        return weigh

    def slope(self, h: Array, theta: Array) -> float:
        """γ: how much flatter the link is than its secant, where the arms are that are played.

        Their typical e is where (μ(e) − μ(0))·e equals θᵀhθ, the mean of w·e².
        """
        return float(self.slopes[min(int(np.searchsorted(self.energies, theta @ h @ theta)), len(self.slopes) - 1)])

    def clarity(self, dim: int, horizon: int, sums: PersonSums | ShuffledPersonSums) -> float:
        """The signal over the noise at the end, at best: everybody comes once, and spends all on one release."""
        newcomers = People(np.ones(1, dtype=np.intp), np.zeros(1, dtype=np.intp), np.zeros(1, dtype=np.intp))
        a, F, B = self.bounds(newcomers, 1.0)
        noise = sums.noise * float(sums.shifts(newcomers, a, F, B)[0])
        return clarity(dim, horizon, self.W, self.theta_bound, noise, noise / a)


def _secants(link: Link, W: float, e: Array, mean: Array | None = None) -> Array:
    """w at e, where the link's mean is ``mean``."""
    near = np.abs(e) < 1e-6
    rise = (link.mean(e) if mean is None else mean) - float(link.mean(0.0))
    w = np.where(near, float(link.derivative(0.0)), rise / np.where(near, 1.0, e))
    return np.asarray(np.fmin(np.fmax(w, W / 5), W))


def first_release(first: int | None, dim: int, horizon: int, budget: Budget) -> int:
    """After how many rounds: by default (1 + 2z)d, from 2d to 4d and at most T/20."""
    if first is None:
        # a release over n newcomers has noise in proportion to z/n: with little noise it is worth having sooner
        z = calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), budget)
        typical = math.ceil(dim * min(max(1.0 + 2.0 * z, 2.0), 4.0))
        first = min(typical, -(-horizon // 20))
    return integer("first_batch", first, at_least=1)


@dataclass(frozen=True)
class Refreshed:
    """What a release says, and the noise in it; see :class:`Estimate`, whose next row it is."""

    curvature: Array
    gradient: Array
    centre: float
    variance: float
    rounds: float
    level: float
    deviation: tuple[float, float] | None


@lru_cache(maxsize=256)
def record_at(levels: Levels, o: float) -> PersonRecord:
    """What persons contribute at the level o."""
    link = levels.link.shifted(o)
    return PersonRecord.of(link, levels.theta_bound, levels.reward_range)


def refreshed(
    sums: PersonSums | ShuffledPersonSums,
    levels: Levels,
    known: Estimate,
    spending: float,
    *,
    batch: tuple[int, int],
    left: int,
) -> Refreshed:
    """Take what everybody pays, form everybody's contribution anew at θ, and release the sums.

    Parameters
    ----------
    sums, levels
        The secret half, and at which levels persons contribute.
    known : Estimate
        As last released.
    spending : float
        κ while every round is a newcomer's.
    batch : (int, int)
        How many decisions there were at its beginning and end.
    left : int
        How many releases there still are, with this one.
    """
    record, theta = record_at(levels, known.level), known.theta
    start, end = batch
    people = sums.rounds.people(end)
    newcomers = (len(people) - sums.persons) / (end - start)
    κ = max(spending * (_SETTLED + (1 - _SETTLED) * newcomers), 1.0 / left)
    η = 1.0 if end < _RETURNS * len(people) else 0.0
    a, F, B = record.bounds(people, η)
    α = sums.pay(people, κ)
    ω = α / sums.shifts(people, a, F, B)
    Ω, z = float(ω.sum()), sums.noise
    rounds = Ω**2 / float((ω**2 / people.visits).sum())
    if known.levelled:
        H, G = sums.release(people, record.weigh(theta, η), ω, a, F, B)
        return Refreshed(H / Ω, G / Ω, η, (z / Ω) ** 2, rounds, z / (a * Ω), None)
    H, G, total = sums.release_beside(people, record.weigh(theta, η), ω, a, F, B, levels.deviations)
    deviation = total / α.sum(), z / (math.sqrt(sums.level) * α.sum())
    z /= math.sqrt(1.0 - sums.level)
    return Refreshed(H / Ω, G / Ω, η, (z / Ω) ** 2, rounds, z / (a * Ω), deviation)


def check_rounds(sums: PersonSums | ShuffledPersonSums, decisions: int, released: int) -> None:
    """Refuse a state whose rounds are not those of so many decisions, of which so many were released.

    Raises
    ------
    ValueError
    """
    # an interrupt may have left one more, which the next decision writes over
    if sums.rounds.count not in (decisions, decisions + 1):
        raise ValueError(f"rounds must be of {decisions} decisions, got {sums.rounds.count}")
    # whoever is left out would pay once more from the start
    paid = len(sums.rounds.people(released))
    if sums.persons != paid:
        raise ValueError(f"left must be of the {paid} persons who have paid, got {sums.persons}")


@dataclass(frozen=True)
class Rule:
    """argmax xᵀθ + β‖x‖_{P⁻¹}; where nothing is known, without a prior, the best arm in a random direction."""

    exploration: float
    given: bool

    def __call__(self, public: Estimate, arms: Array, since: int) -> Array | Law:
        if not (self.given or public.theta[0] or public.theta.any()):
            # nothing is known yet: a random direction takes informative (long) arms and looks everywhere
            return Perturbed(arms)
        return arms @ public.theta + self.exploration * norms(arms, public.inverse)


@dataclass(frozen=True)
class Refit:
    """θ and its precision from all releases so far: post-processing.

    Releases at one level are biased at another, by (c₀ − c₀′) times the mean of w·x, which no sum tells. Once the level
    moves, those before it do not count if b says that the chosen arms have a mean in common; else they are carried
    along, as Σgx with g = r − c₀ and a curvature in proportion to the slope at the level.
    """

    levels: Levels
    prior: Prior

    def nothing(self, releases: int) -> Estimate:
        """What is known at the start, with room for so many releases."""
        m, d = releases, len(self.prior.mean)
        none, vectors = np.zeros(m), np.zeros((m, d))
        history = np.zeros((m, d, d)), vectors, vectors, none, none, none, none, none
        level = 0.0, not self.levels.learned, (0.0, 0.0), 0
        return Estimate(self.prior.mean, self.prior.covariance, *history, *level)

    def __call__(self, last: Estimate, released: Refreshed, ends: Sequence[int]) -> Estimate:
        j, h = len(ends) - 1, released.curvature
        latest = [*last.curvatures[max(last.before, j - _LATEST + 1) : j], h]
        said = {
            "curvatures": h,
            "gradients": released.gradient,
            "points": last.theta,
            "centres": released.centre,
            "slopes": record_at(self.levels, last.level).slope(np.mean(latest, axis=0), last.theta),
            "variances": released.variance,
            "rounds": released.rounds,
            "levels": released.level,
        }
        history = {name: getattr(last, name).copy() for name in said}
        for name, value in said.items():
            history[name][j] = value
        known = replace(last, **history)
        if released.deviation is not None:
            known = self._levelled(known, j + 1, *released.deviation)
        return self._fitted(known, j + 1)

    def _levelled(self, known: Estimate, k: int, mean: float, noise: float) -> Estimate:
        """After k releases, of which the last one told a mean deviation, too."""
        total, weight = known.deviations[0] + mean / noise**2, known.deviations[1] + noise**-2
        rounds = float(known.rounds[k - 1])
        last, mean, noise = known.level, total / weight, weight**-0.5
        level, levelled = self.levels.moved(last, rounds * mean, rounds * noise, rounds)
        known = replace(known, level=level, levelled=levelled, deviations=(float(total), float(weight)))
        if level == last:
            return known
        h, G, points, η, _, D, N, noises = (getattr(known, name)[:k] for name in _HISTORY)
        whole = G + (1.0 - η)[:, None] * np.einsum("jik,jk->ji", h, points)
        u = (1.0 / D) / (1.0 / D).sum()
        R = record_at(self.levels, 0.0).R
        if last or lopsided(u @ whole, math.sqrt(float(u**2 @ D)), R**2 / float(N.max())):
            return replace(known, before=k)
        steep, before = (float(record_at(self.levels, o).link.derivative(0.0)) for o in (level, last))
        flatter = steep / before
        moved = {"curvatures": flatter * h, "gradients": whole, "centres": np.ones(k), "levels": flatter * noises}
        history = {name: getattr(known, name).copy() for name in moved}
        for name, value in moved.items():
            history[name][:k] = value
        return replace(known, **history)

    def _fitted(self, known: Estimate, k: int) -> Estimate:
        """θ and its precision from the first k releases."""
        if known.before == k:
            return replace(known, theta=self.prior.mean, inverse=self.prior.covariance)
        h, G, θ, η, γ, D, N, noises = (getattr(known, name)[known.before : k] for name in _HISTORY)
        record = record_at(self.levels, known.level)
        d, W, S = θ.shape[1], record.W, record.theta_bound
        y = G + np.einsum("jik,jk->ji", h, (γ - η)[:, None] * θ)
        # what y_j is around the same number for: noise, and luck that the releases share
        luck = _VARIANCE * W / np.maximum.outer(N, N)
        u = np.maximum(np.linalg.solve(np.diag(D) + luck, np.ones(len(D))), 0.0)
        u /= u.sum()
        level = float(np.linalg.norm(u * γ * noises))
        λ, U = np.linalg.eigh(np.tensordot(u * γ, h, 1))
        # E‖noise‖ ≤ level·√(2d): raised by about that much, the curvature is seldom too small by far
        raised = np.maximum(λ + _RAISE * level * math.sqrt(2 * d), W / 20)
        right = U.T @ (u @ y) + _ANCHOR * (raised - λ) * (U.T @ ((u * (1.0 - η)) @ θ))
        variance = (u**2) @ D + (u @ luck @ u) / (_VARIANCE * W) * raised
        found = posterior(self.prior, raised**2 / variance, U, raised / variance * right, S)
        return replace(known, theta=found.mean, inverse=found.covariance)
