"""What the policies share that protect persons by a total: everybody's statistics, refreshed at every release.

:mod:`~dpbandits.private.person_private_glm` says what they compute, step by step, and why it is private.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import numpy as np

from accounting import Budget, Gaussian, calibrate
from accounting.arrays import Array
from accounting.checks import fraction, integer, nonnegative, positive
from dpbandits.policy.choices import Law, Perturbed
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, Schedule, checked_budget, finite_rewards
from dpbandits.policy.protocol import Pending
from dpbandits.private.parts.cold_start import clarity, warn_of_cold_start
from dpbandits.private.parts.records import checked_slope
from dpkit.models.ellipsoid import norms
from dpkit.models.links import Link, get_link
from dpkit.models.prior import Prior, PriorLike, checked_prior, posterior
from dpkit.moments.people import People, PersonSums, Weigh
from dpkit.moments.shuffled_people import ShuffledPersonSums

__all__ = ["RefreshingPolicy"]

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


class RefreshingPolicy(PrivatePolicy[Estimate]):
    """Base of the policies that release everybody's refreshed statistics."""

    # where the sums come from
    _sums_of: ClassVar[type[PersonSums | ShuffledPersonSums]]
    choices_read = ("theta", "inverse")
    prices_totals = True
    sums: PersonSums | ShuffledPersonSums

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 3.0,
        growth: float = 1.2,
        first_batch: int | None = None,
        spending: float = 0.3,
        exploration: float = 0.5,
        prior: PriorLike | None = None,
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        checked_budget(budget, units=("person",))
        super().__init__(dim, self.link.reward_range, budget=budget, horizon=horizon, **options)
        self.rounds_per_person = None  # there is no cap
        self.theta_bound = positive("theta_bound", theta_bound)
        T = integer("horizon", horizon, at_least=1)
        self.growth = positive("growth", growth)
        if self.growth < 1.02:
            raise ValueError(f"growth must be at least 1.02, as every release is kept, got growth={growth!r}")
        if first_batch is None:
            # a release over n newcomers has noise in proportion to z/n: with little noise it is worth having sooner
            z = calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), budget)
            typical = math.ceil(self.dim * min(max(1.0 + 2.0 * z, 2.0), 4.0))
            first_batch = min(typical, -(-T // 20))
        self.first_batch = integer("first_batch", first_batch, at_least=1)
        self.schedule = Schedule.batches(T, self.first_batch, growth)
        self.spending = fraction("spending", spending)
        self.exploration = nonnegative("exploration", exploration)
        S = self.theta_bound
        self.prior = checked_prior(prior, self.dim, S)
        self._prior = Prior.of(self.prior, self.dim, self.dim / S**2, S)

        low, high = finite_rewards(self.reward_range)
        self._W = checked_slope(self.link.lipschitz(self.theta_bound))
        self._centre = float(self.link.mean(0.0))
        self._R = max(abs(low - self._centre), abs(high - self._centre))
        # F/c: the secant weight of arms with |xᵀθ| = S, which are what a good θ plays
        ends = np.array([-S, S])
        self._saturated = float(self._secants(ends, self.link.mean(ends)).max())
        self._grid = self._slopes_by_energy()
        d, m = self.dim, len(self.schedule.ends)
        self.sums = self._sums_of(d, budget=budget, releases=m, horizon=T, rng=self.rng)
        none, vectors = np.zeros(m), np.zeros((m, d))
        guess = self._prior
        self.public = Estimate(
            guess.mean, guess.covariance, np.zeros((m, d, d)), vectors, vectors, none, none, none, none, none
        )
        # at best everybody comes once, and spends all on one release
        newcomers = People(np.ones(1, dtype=np.intp), np.zeros(1, dtype=np.intp), np.zeros(1, dtype=np.intp))
        a, F, B = self._bounds(newcomers, 1.0)
        noise = self.sums.noise * float(self.sums.shifts(newcomers, a, F, B)[0])
        if self.prior is None:
            warn_of_cold_start(clarity(d, T, self._W, S, noise, noise / a), d, T, budget)
        self.open_run(self.sums.cost)

    @property
    def theta(self) -> Array:
        """θ as released."""
        return self.public.theta

    # ---------------------------------------------------------------------------------------------- choose

    def score(self, arms: Array) -> Array | Law:
        if self.releases == 0 and self.prior is None:
            # nothing is known yet: a random direction takes informative (long) arms and looks everywhere
            return Perturbed(arms)
        return arms @ self.public.theta + self.exploration * norms(arms, self.public.inverse)

    # ----------------------------------------------------------------------------------------------- learn

    def decided(self, pending: Pending) -> None:
        self.sums.rounds.decided(pending.round, pending.person)

    def learn(self, pending: Pending, reward: float) -> None:
        self.sums.rounds.rewarded(pending.round, pending.arm, reward)

    # ----------------------------------------------------------------------------------------------- state

    def check_releases(self) -> None:
        super().check_releases()
        # an interrupt may have left one more, which the next decision writes over
        if self.sums.rounds.count not in (self.decisions, self.decisions + 1):
            raise ValueError(f"rounds must be of {self.decisions} decisions, got {self.sums.rounds.count}")
        # whoever is left out would pay once more from the start
        paid = len(self.sums.rounds.people(self.schedule.start(self.releases)))
        if self.sums.persons != paid:
            raise ValueError(f"left must be of the {paid} persons who have paid, got {self.sums.persons}")

    @classmethod
    def elements(cls, config: Mapping[str, Any]) -> int:
        schedule = Schedule.batches(config["horizon"], config["first_batch"], config["growth"])
        return super().elements(config) * len(schedule.ends)

    # --------------------------------------------------------------------------------------------- release

    def close_batch(self) -> Estimate:
        j, last = self.releases, self.public
        people = self.sums.rounds.people(self.decisions)
        η = 1.0 if self.decisions < _RETURNS * len(people) else 0.0
        a, F, B = self._bounds(people, η)
        ω = self.sums.pay(people, self._share(people)) / self.sums.shifts(people, a, F, B)
        H, G = self.sums.release(people, self._weigh(last.theta, η), ω, a, F, B)

        # from here on all is post-processing
        Ω, z = float(ω.sum()), self.sums.noise
        h = H / Ω
        latest = [*last.curvatures[max(0, j - _LATEST + 1) : j], h]
        said = {
            "curvatures": h,
            "gradients": G / Ω,
            "points": last.theta,
            "centres": η,
            "slopes": self._slope(np.mean(latest, axis=0), last.theta),
            "variances": (z / Ω) ** 2,
            "rounds": Ω**2 / float((ω**2 / people.visits).sum()),
            "levels": z / (a * Ω),
        }
        history = {name: getattr(last, name).copy() for name in said}
        for name, value in said.items():
            history[name][j] = value
        return self._fitted(j + 1, history)

    def _share(self, people: People) -> float:
        """κ: a public number, which is 1 at the last release."""
        new = len(people) - self.sums.persons
        newcomers = new / (self.decisions - self.schedule.start(self.releases))
        left = len(self.schedule.ends) - self.releases
        return max(self.spending * (_SETTLED + (1 - _SETTLED) * newcomers), 1.0 / left)

    def _bounds(self, people: People, η: float) -> tuple[float, float, Array]:
        """a, F and everybody's B."""
        F = _MATRIX_BOUND * self._saturated
        share, clip = _SHARES[int(η)]
        a = clip * self._R / F * math.sqrt(2 * (1 - share) / share)
        if η:
            return a, F, np.full(len(people), _CLIP * self._R)
        return a, F, self._R * (_CLIP_LIMIT + _CLIP_FALL / np.sqrt(people.visits))

    def _secants(self, e: Array, mean: Array) -> Array:
        """w at e, where the link's mean is ``mean``."""
        near = np.abs(e) < 1e-6
        w = np.where(near, float(self.link.derivative(0.0)), (mean - self._centre) / np.where(near, 1.0, e))
        return np.asarray(np.fmin(np.fmax(w, self._W / 5), self._W))

    def _slopes_by_energy(self) -> tuple[Array, Array]:
        """(μ(e) − μ(0))·e, ascending, and slope over secant, for e in (0, S]; whatever a caller's link says."""
        e = np.linspace(0.0, self.theta_bound, 61)[1:]
        w = self._secants(e, self.link.mean(e))
        slopes = np.fmin(np.fmax(self.link.derivative(e) / w, _FLATTEST), 1.0)
        return np.maximum.accumulate(w * e**2), slopes

    def _slope(self, h: Array, theta: Array) -> float:
        """γ: how much flatter the link is than its secant, where the arms are that are played.

        Their typical e is where (μ(e) − μ(0))·e equals θᵀhθ, the mean of w·e².
        """
        energies, slopes = self._grid
        return float(slopes[min(int(np.searchsorted(energies, theta @ h @ theta)), len(slopes) - 1)])

    def _weigh(self, theta: Array, η: float) -> Weigh:
        """What forms w and g at θ: within public bounds whatever a caller's link says, and never NaN."""
        link = self.link
        # |r − μ(e)| ≤ R + W‖θ‖ and |w·e| ≤ W‖θ‖
        most = self._R + 2 * self._W * self.theta_bound

        def weigh(arms: Array, rewards: Array) -> tuple[Array, Array]:
            e = arms @ theta
            mean = link.mean(e)
            w = self._secants(e, mean)
            return w, np.fmin(np.fmax(rewards - mean + η * w * e, -most), most)

        return weigh

    def _fitted(self, k: int, history: dict[str, Array]) -> Estimate:
        """θ and its precision from the first k releases."""
        h, G, θ, η, γ, D, N, levels = (column[:k] for column in history.values())
        d, W, S = self.dim, self._W, self.theta_bound
        y = G + np.einsum("jik,jk->ji", h, (γ - η)[:, None] * θ)
        # what y_j is around the same number for: noise, and luck that the releases share
        luck = _VARIANCE * W / np.maximum.outer(N, N)
        u = np.maximum(np.linalg.solve(np.diag(D) + luck, np.ones(k)), 0.0)
        u /= u.sum()
        level = float(np.linalg.norm(u * γ * levels))
        λ, U = np.linalg.eigh(np.tensordot(u * γ, h, 1))
        # E‖noise‖ ≤ level·√(2d): raised by about that much, the curvature is seldom too small by far
        raised = np.maximum(λ + _RAISE * level * math.sqrt(2 * d), W / 20)
        right = U.T @ (u @ y) + _ANCHOR * (raised - λ) * (U.T @ ((u * (1.0 - η)) @ θ))
        variance = (u**2) @ D + (u @ luck @ u) / (_VARIANCE * W) * raised
        known = posterior(self._prior, raised**2 / variance, U, raised / variance * right, S)
        return Estimate(known.mean, known.covariance, **history)
