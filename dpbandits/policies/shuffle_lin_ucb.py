"""ShuffleLinUCB: linear bandits in the shuffle model, by one vector summation per batch.

For linear rewards of people who trust a shuffler, but not the server. Rounds come in batches of public length; the
users of a batch send their outer products x xᵀ and vectors r·x through the shuffled vector sum, and the server, after m
batches, plays LinUCB on what it has:

    argmax xᵀθ + β_m‖x‖_Q,   H = Σ x xᵀ + noise + ridge·I,   θ = H⁻¹(Σ r·x + noise),

with Q = H⁻¹ and the β_m of a confidence ellipsoid, or what is much narrower in practice (see ``parameters``).

Source: Chowdhury & Zhou (2022), "Shuffle Private Linear Contextual Bandits" (ICML), Algorithm 1 with their protocol for
vector summation (there with batches of one size; here they may grow, so that the noise of fewer batches adds up). Two
things differ. One sum of the stacked pair takes the whole budget and is calibrated numerically, where the paper sums
matrices and vectors apart. And the first batch, in which the paper's rule would play the longest arm again and again,
plays the best arm in random directions.

Guarantee
---------
* Unit: one round, that is its arm set and its reward: one user. Neighbours: two runs in which one round differs
  ("replace"), or counts for nothing ("zero_out").
* Every user is in exactly one batch, fixed by the number of decisions alone, and sends exactly one record: the null
  record if its reward does not come before the batch ends. Later rewards are accepted and count for nothing.
* With |r| ≤ B (checked or clipped, always) and ‖x‖ ≤ 1, two records (a·svec(x xᵀ), c·r·x) of a user differ by at
  most ``dpkit.geometry.pair_sensitivity(a, 1, c, B)``. A batch of n users is one
  :class:`~dpkit.shuffle.VectorSum` over n users, calibrated to the whole budget; batches compose in parallel.
* The choice of the arm is post-processing of released sums and the user's own arms. Privacy holds in both settings of
  ``parameters``; they only move the ridge and the width.
* An older state is refused after a crash, as in :class:`~dpbandits.policies.ShuffleOnePassGLM`.

Cost per round: O(Kd²) to select, O(d²) to update, with a fixed number of random bits for each of d(d + 3)/2
coordinates; O(d³) per batch; memory O(d²).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np

from accounting import Budget, Ledger
from accounting.checks import fraction, integer, nonnegative, positive
from dpbandits.mathematics.ellipsoid import norms
from dpbandits.policies._parameters import Parameters, checked_parameters
from dpbandits.policies._private import ReleasingPolicy, bounded_rewards, checked_budget, release_ends
from dpbandits.policies._records import pair_scales
from dpbandits.policies._shuffled import ShuffledBatches, without_arms
from dpbandits.policy import Array
from dpkit import randomness
from dpkit.geometry import pair_sensitivity, smat, svec

__all__ = ["ShuffleLinUCB"]


class ShuffleLinUCB(ReleasingPolicy):
    """LinUCB on shuffled sums over batches.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    budget : Budget
        What the whole run may cost one user, replaced (or zeroed out); δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    theta_bound : float
        S ≥ ‖θ*‖.
    growth : float
        Length of a batch over the length of the one before; 1 for the paper's batches of one size.
    first_batch : int, optional
        Length of the first batch. By default 8d, at most T/20.
    reward_share : float
        Share, in (0, 1), of the squared sensitivity that is given to r·x rather than to x xᵀ.
    parameters : {"practical", "theory"}
        How ridge and width follow from the noise. ``"theory"``: with probability 1 − ζ the operator norm of the
        noise is at most Υ = 2σ√(2(d ln 9 + ln(8m²/ζ))), and the length of the noise in Σ r·x at most
        γ = 2σ′√(2(d ln 5 + ln(8m²/ζ))), where σ and σ′ are the standard deviations in m batches together; the ridge
        is 2Υ, at least 1, and β_m = ½(r_max − r_min)·√(2 ln(3/ζ) + d ln(1 + n/(d·ridge/2))) + √(3·ridge/2)·S +
        γ/√(ridge/2) covers θ* for all batches at once. ``"practical"``: the ridge is 1 + σ√(2d), which the noise seldom
        exceeds, β the ``exploration``, and Q = ¼(r_max − r_min)²·H⁻¹ + σ′²·H⁻² the variance of chance and noise.
    exploration : float
        β of the practical parameters.
    failure_probability : float
        ζ of the theory's.
    reward_range : (float, float)
        Finite.
    on_violation, rng
        See :class:`dpbandits.policy.Policy`.
    ledger, label, checkpoint
        See :class:`~dpbandits.policies.ShuffleOnePassGLM`.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.
    AdjacencyMismatch
        If the budget counts rows added or removed, or a unit other than a round.
    BudgetExceeded
        If the ledger has not enough left.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = ShuffleLinUCB(dim=2, budget=Budget(1.0, 1e-6), horizon=2000, rng=rng)
    >>> reward = 0.0
    >>> for _ in range(2000):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     reward += (0.2, 0.8)[decision.index]
    >>> reward / 2000 > 0.7
    True
    """

    trust: ClassVar[Literal["shuffle"]] = "shuffle"
    _learned = ("theta", "shape", "H", "b", "noise", "releases")

    def __init__(
        self,
        dim: int,
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 1.0,
        growth: float = 1.7,
        first_batch: int | None = None,
        reward_share: float = 0.75,
        parameters: Parameters = "practical",
        exploration: float = 1.5,
        failure_probability: float = 0.01,
        reward_range: tuple[float, float] = (0.0, 1.0),
        on_violation: Literal["raise", "clip"] = "raise",
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        label: str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        super().__init__(
            dim, reward_range=reward_range, on_violation=on_violation, horizon=horizon, rng=rng, ledger=ledger
        )
        self.budget = checked_budget(budget)
        low, high = bounded_rewards(self.reward_range)
        self.theta_bound = positive("theta_bound", theta_bound)
        self.growth = positive("growth", growth)
        T = integer("horizon", horizon, at_least=1)
        self.first_batch = (
            min(8 * dim, -(-T // 20)) if first_batch is None else integer("first_batch", first_batch, at_least=1)
        )
        self.reward_share = fraction("reward_share", reward_share)
        self.parameters = checked_parameters(parameters)
        self.exploration = nonnegative("exploration", exploration)
        self.failure_probability = fraction("failure_probability", failure_probability)
        books = self._open_run(budget, ledger, label, checkpoint)

        # scales a, c that split the squared sensitivity, were the two parts replaced independently
        bound = max(abs(low), abs(high))
        self._a, self._c = pair_scales(1.0, bound, self.reward_share)
        self._ends = list(release_ends(T, "scheduled", self.first_batch, self.growth))
        self._sums = ShuffledBatches(
            self._ends,
            dim * (dim + 1) // 2 + dim,
            self._records,
            bound=math.hypot(self._a, self._c * bound),
            distance=pair_sensitivity(self._a, 1.0, self._c, bound, budget.adjacency),
            budget=budget,
            rng=self.rng,
        )
        books.spend(self._sums.cost, label=self.label, simulation=randomness.is_simulation(self.rng))
        self.theta = np.zeros(dim)
        self.shape = np.zeros((dim, dim))  # β_m²·Q
        # Σ x xᵀ and Σ r·x as released, and the variance of the noise in the scaled records' sum
        self.H = np.zeros((dim, dim))
        self.b = np.zeros(dim)
        self.noise = 0.0
        self.releases = 0

    def _score(self, arms: Array) -> Array:
        if self.releases < len(self._ends) and self.decisions == self._ends[self.releases]:
            self._release()
        if self.releases == 0:
            # nothing is known yet: a random direction takes informative (long) arms and looks everywhere
            return np.asarray(arms @ self.rng.standard_normal(self.dim))
        return arms @ self.theta + norms(arms, self.shape)

    def _learn(self, arm: Array, reward: float) -> None:
        if not math.isnan(arm[0]):  # NaN: its batch is closed
            self._sums.add(np.concatenate([arm, (reward,)]))

    def _records(self, rows: Array) -> Array:
        """(a·svec(x xᵀ), c·r·x) of every row (x, r)."""
        X, r = rows[:, :-1], rows[:, -1, None]
        return np.concatenate([svec((self._a * X)[:, :, None] * X[:, None, :]), self._c * r * X], axis=1)

    def _release(self) -> None:
        """Close the batch and refit. All but the shuffled sum itself is public, or post-processing."""
        noisy = self._sums.release()
        self._open = without_arms(self._open)
        self.noise += self._sums.noise_std(self.releases) ** 2
        self.releases += 1
        D = self.dim * (self.dim + 1) // 2
        self.H += smat(noisy[:D] / self._a)
        self.b += noisy[D:] / self._c
        d, m, spread = self.dim, self.releases, 0.5 * (self.reward_range[1] - self.reward_range[0])
        sigma, sigma_b = math.sqrt(self.noise) / self._a, math.sqrt(self.noise) / self._c
        eigenvalues, U = np.linalg.eigh(self.H)
        if self.parameters == "practical":
            eigenvalues = np.maximum(eigenvalues + 1.0 + sigma * math.sqrt(2 * d), 1.0)
            axes = self.exploration**2 * (spread**2 / eigenvalues + (sigma_b / eigenvalues) ** 2)
        else:
            # xᵀNx is σ-sub-Gaussian for every unit x, uᵀn is σ′-sub-Gaussian; nets of 9^d and 5^d points cover
            # the sphere. Then N + ridge·I lies between half·I and 3·half·I.
            failure = math.log(8.0 * m * m / self.failure_probability)
            half = max(2.0 * sigma * math.sqrt(2.0 * (d * math.log(9.0) + failure)), 0.5)
            gamma = 2.0 * sigma_b * math.sqrt(2.0 * (d * math.log(5.0) + failure))
            growth = d * math.log(1.0 + self._ends[m - 1] / (d * half))
            chance = math.sqrt(2.0 * math.log(3.0 / self.failure_probability) + growth)
            beta = spread * chance + math.sqrt(3.0 * half) * self.theta_bound + gamma / math.sqrt(half)
            eigenvalues = np.maximum(eigenvalues + 2.0 * half, half)
            axes = beta**2 / eigenvalues
        self.theta = U @ ((U.T @ self.b) / eigenvalues)
        self.shape = (U * axes) @ U.T
        self._keep_release()

    def _state(self) -> dict[str, Any]:
        return super()._state() | {"sums": self._sums.state()}

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self._sums.restore(state["sums"])
