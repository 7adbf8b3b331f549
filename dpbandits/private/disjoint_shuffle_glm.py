"""DisjointShuffleGLM: a shuffle-private bandit whose arms have a parameter each.

For whoever shows one of K standing things to people who trust a shuffler, but not the server. Model, records, and
how arms are chosen are those of :class:`~dpbandits.policies.DisjointPrivateGLM`; batches are those of
:class:`~dpbandits.policies.ShuffleOnePassGLM`: each round is one user of its batch, and sends a record of the arm that
it was shown, randomized in the coordinates of *all* arms, so that not even the arm shows. When batch j of n_j rounds
ends, its shuffled sums count with the weight ω_j = 1/(1 + n_0/n_j), n_0 the length at which the noise in b is as large
as what rewards add to it.

Guarantee
---------
* Unit: one round, that is its context and its reward: one user. Neighbours: two runs in which one round differs
  ("replace"), or counts for nothing ("zero_out").
* Every user is in exactly one batch, which is fixed by the number of *decisions* alone, and sends exactly one record:
  the null record if its reward does not come before the batch ends. Later rewards are accepted and count for nothing.
* Two records of a user, of one arm or of two, the null record among them, differ by at most
  ``moments.blocks.record_sensitivity``. A batch of n users is one :class:`~dpkit.shuffle.VectorSum` over n users,
  calibrated to the whole budget.
* What the server sees of earlier batches fixes what the users of a batch send as a function of their own data: the
  batches compose in parallel, adaptively, and the run costs the budget's (ε, δ), recorded when the policy is made.
* Which arms stand, and when, is public. An arm that comes in the middle of a batch sends null records until its end;
  the next batch has a sum with one block more, calibrated to the same budget: that costs nothing more.
* Shuffle privacy protects every user against the server; the rounds that others play are post-processing of what the
  shuffler lets out (the billboard lemma of Hsu, Huang, Roth, Roughgarden & Wu 2014).
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``). A saved state holds, of the
  open batch, randomized counts only, and the contexts of decisions that wait for their reward.

Cost per round: O(Kd²) to select; to update, a fixed number of random bits for each of K·d(d + 3)/2 coordinates, shared
by 64 users at a time: for tens of arms, not for thousands. Memory O(Kd²).

This policy belongs to this package. Its ingredients: Cheu, Joseph, Mao & Peng (2022) for the shuffled sum; Chowdhury &
Zhou (2022) for batches of users.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from accounting import ApproxDP, Budget
from accounting.arrays import Array
from accounting.checks import integer, positive
from dpbandits.arms.standing import StandingArms
from dpbandits.policy.choices import Law
from dpbandits.policy.parameters import Exploration
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, Schedule, finite_rewards
from dpbandits.policy.protocol import Pending
from dpbandits.private.parts.disjoint import Estimate, PlayedBlocks, middle
from dpkit.models.links import Link, get_link
from dpkit.models.prior import PriorLike, checked_prior
from dpkit.moments.blocks import FOURTH, TOTAL, Released, block_record, record_sensitivity
from dpkit.moments.shuffled import ShuffledBatches
from dpkit.states.entries import conform, in_units, short

__all__ = ["DisjointShuffleGLM"]

# a: less than without a shuffler, where a record's length costs nothing beside its distance from another
_MATRIX = 0.25


@dataclass(frozen=True)
class Weighted:
    """The public half: what choices follow from, and the weighted sums Σω_j·(released sums of batch j).

    ``noise`` (K,) is Σ(ω_j·σ_j)² over the batches that had the arm.
    """

    estimate: Estimate
    blocks: Array
    total: Array
    noise: Array


class BlockBatches:
    """The shuffled sums of batches, whose number of blocks grows between batches.

    Parameters
    ----------
    ends : sequence of int
        After how many decisions the batches end.
    dim, blocks : int
        m, and K at the start.
    c : float
        1/(2B).
    budget : Budget
    rng : numpy.random.Generator
    """

    def __init__(
        self, ends: Sequence[int], dim: int, blocks: int, c: float, *, budget: Budget, rng: np.random.Generator
    ) -> None:
        self._ends, self._dim, self._c, self._budget, self._rng = ends, dim, c, budget, rng
        d = dim + 1
        self._own, self._shared = d * (d + 3) // 2, d * (d + 1) // 2 + 1
        self.sums = self._batches(blocks)
        self.blocks = self.arms = blocks

    def _batches(self, blocks: int) -> ShuffledBatches:
        """Sums of so many blocks."""
        return ShuffledBatches(
            self._ends,
            blocks * self._own + self._shared,
            self._records,
            bound=math.sqrt(_MATRIX**2 + TOTAL**2 + 0.25 + FOURTH**2) * (1 + 2.0**-40),
            distance=record_sensitivity(self._budget.adjacency, _MATRIX),
            budget=self._budget,
            rng=self._rng,
        )

    def _resize(self, blocks: int, done: int) -> None:
        """From the batch that is open now, after those that are ``done``."""
        self.sums, self.blocks = self._batches(blocks), blocks
        self.sums.released = done

    def grow(self) -> None:
        """One more arm, whose block is there from the next batch on."""
        self.arms += 1

    def add(self, block: int, z: Array, g: float) -> None:
        """What one user tells: a record of an arm that has its block, or nothing."""
        if block < self.blocks:
            self.sums.add(np.concatenate([z, [g, block]]), self.sums.released)

    def _records(self, rows: Array) -> Array:
        """Records of rows (z, g, block)."""
        parts = block_record(rows[:, :-2], rows[:, -2], self._c, _MATRIX)
        found = np.zeros((len(rows), self.blocks * self._own + self._shared))
        first = rows[:, -1].astype(np.intp)[:, None] * self._own + np.arange(self._own)
        found[np.arange(len(rows))[:, None], first] = parts[:, : self._own]
        found[:, -self._shared :] = parts[:, self._own :]
        return found

    def release(self) -> tuple[Array, Array, float, int]:
        """Close the batch: noisy blocks and total, the noise in each entry, and how many users it had."""
        batch = self.sums.released
        noisy, std, users = self.sums.release(), self.sums.noise_std(batch), self.sums.protocols[batch].users
        split = self.blocks * self._own
        blocks = noisy[:split].reshape(self.blocks, self._own)
        if self.arms > self.blocks:
            self._resize(self.arms, batch + 1)
        return blocks, noisy[split:], std, users

    def kept(self) -> dict[str, Any]:
        """Randomized counts only."""
        units = np.array([self._c, _MATRIX, TOTAL, FOURTH])
        return {"blocks": self.blocks, "sums": self.sums.kept(), "units": units}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked; ``arms`` is that of the state already."""
        saved = in_units(saved, (self._c, _MATRIX, TOTAL, FOURTH))
        if not isinstance(saved, Mapping) or set(saved) != {"blocks", "sums"}:
            raise ValueError(f"sums must hold the entries ['blocks', 'sums'], got {short(saved)}")
        blocks = conform("blocks", saved["blocks"], 0)
        if not 0 < blocks <= self.arms:
            raise ValueError(f"blocks must be at most the number of arms {self.arms}, got blocks={blocks}")
        if blocks != self.blocks:
            self._resize(blocks, 0)
        self.sums.resume(saved["sums"])


class DisjointShuffleGLM(StandingArms, PrivatePolicy[Weighted]):
    """Posterior draws from weighted shuffled sums, a block for every arm.

    Parameters
    ----------
    dim : int
        m, the dimension of a context z, ‖z‖ ≤ 1; the constant is added here.
    arms : int or list of str
        The names of the arms at the start; a number K stands for "0", …, str(K − 1).
    link : str or Link
        μ: "linear" where nothing is known of the curve.
    budget : Budget
        What the whole run may cost one user, replaced (or zeroed out); δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    theta_bound, exploration, gamma_scale
        See :class:`~dpbandits.policies.DisjointPrivateGLM`.
    growth : float
        Length of a batch over the length of the one before, at least 1.
    first_batch : int, optional
        Rounds before the first release, in which all arms are played equally often. By default 20K, at most T/20.
    prior : (array_like, array_like), optional
        Mean, of shape (m + 1,), and precision of a normal prior of every arm's θ_k, public knowledge, by which the
        first batch plays, too; see :class:`~dpbandits.policies.DisjointPrivateGLM`.
    **options
        ``reward_range`` (by default that of the link; it must be finite), ``base_rate`` (here: of an arm of which
        nothing is known), ``on_violation``, ``expire_after``, ``rng``, ``ledger``, ``label``, ``checkpoint``: see
        :class:`dpbandits.PrivatePolicy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = DisjointShuffleGLM(1, ["left", "right"], budget=Budget(2.0, 1e-6), horizon=2000, rng=rng)
    >>> right = np.zeros(2000)
    >>> for t in range(2000):
    ...     z = rng.uniform(-1, 1)
    ...     decision = policy.select([z])
    ...     liked = 0.5 - 0.4 * z if decision.name == "left" else 0.5 + 0.4 * z
    ...     policy.update(decision, float(rng.random() < liked))
    ...     right[t] = decision.name == ("left" if z < 0 else "right")
    >>> bool(right[-1000:].mean() > 0.75)
    True
    >>> report = policy.privacy()
    >>> report.trust, report.epsilon <= 2.0
    ('shuffle', True)
    """

    trust: ClassVar[Literal["shuffle"]] = "shuffle"
    # the ledger holds what one batch costs, which says nothing of several together
    prices_persons = False
    choices_read = ("estimate",)
    public_parts = ("catalogue",)

    def __init__(
        self,
        dim: int,
        arms: int | Sequence[str],
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 3.0,
        growth: float = 1.7,
        first_batch: int | None = None,
        exploration: Exploration = 0.3,
        gamma_scale: float = 10.0,
        prior: PriorLike | None = None,
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, budget=budget, horizon=horizon, **options)
        self.open_slots(arms)
        K, T = len(self.catalogue), integer("horizon", horizon, at_least=1)
        S = self.theta_bound = positive("theta_bound", theta_bound)
        self._centre, self._spread = middle(finite_rewards(self.reward_range))
        self.growth = growth
        enough = max(1, min(20 * K, -(-T // 20)))
        self.first_batch = enough if first_batch is None else integer("first_batch", first_batch, at_least=1)
        self.schedule = Schedule.batches(T, self.first_batch, growth)
        self.prior = checked_prior(prior, self.dim + 1, math.inf)
        model = self.link, (self._centre, self._spread), S
        self._play = PlayedBlocks(self.dim + 1, *model, exploration, gamma_scale, T, self.prior)
        self.exploration, self.gamma_scale = self._play.exploration, self._play.gamma_scale
        self.sums = BlockBatches(self.schedule.ends, self.dim, K, 0.5 / self._spread, budget=budget, rng=self.rng)
        known = self._play.nothing(K)
        zeros = np.zeros((K, self.sums._own))
        self.public = Weighted(known, zeros, np.zeros(self.sums._shared), np.zeros(K))
        self.open_run(ApproxDP(budget.epsilon, budget.delta, adjacency=budget.adjacency))

    @property
    def theta(self) -> Array:
        """The released θ_k by slot, for the features (1, z)/√2: E[r | z, k] = μ(base + xᵀθ_k)."""
        return self.public.estimate.theta

    def grow(self) -> None:
        self.sums.grow()
        self.public = self.with_room(self.public)

    def with_room(self, public: Weighted) -> Weighted:
        while (arms := len(public.noise)) < len(self.catalogue):
            blocks, noise = np.zeros((arms + 1, public.blocks.shape[1])), np.zeros(arms + 1)
            blocks[:-1], noise[:-1] = public.blocks, public.noise
            public = replace(public, estimate=self._play.grown(public.estimate), blocks=blocks, noise=noise)
        return public

    def score(self, context: Array) -> Law:
        if self.releases == 0 and self.prior is None:
            return self.catalogue.alike()
        standing = self.catalogue.active
        return self._play.law(self.public.estimate, context, standing, self.schedule.start(self.releases))

    def learn(self, pending: Pending, reward: float) -> None:
        self.sums.add(pending.index, pending.arm, reward - self._centre)

    def close_batch(self) -> Weighted:
        """Close the batch and refit. All but the shuffled sum itself is public, or post-processing."""
        rounds = self.schedule.start(self.releases), self.schedule.ends[self.releases]
        (noisy, shared, std, users), last = self.sums.release(), self.public
        d, K, had = self.dim + 1, len(self.catalogue), len(noisy)
        # noise against the chance in a coordinate of one arm's b: K·d of them share the rounds
        n_0 = (2.0 * self._spread * std) ** 2 * K * d / self._spread**2
        weight = 1.0 / (1.0 + n_0 / users)
        blocks, noise = last.blocks.copy(), last.noise.copy()
        blocks[:had] += weight * noisy
        noise[:had] += (weight * std) ** 2
        total = last.total + weight * shared
        c = 0.5 / self._spread
        sums = Released.of(np.concatenate([blocks.ravel(), total]), K, d, c, np.sqrt(noise), _MATRIX)
        estimate = self._play.refit(last.estimate, sums, self.catalogue, rounds, self.rng)
        return Weighted(estimate, blocks, total, noise)
