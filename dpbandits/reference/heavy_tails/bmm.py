"""BMM: every arm's mean by a median of ridge regressions, for finitely many arms and heavy tails. Not private.

An arm is played until r of its rewards have come, one for each of r groups; every group has a ridge regression, all
with the same matrix, and an arm's estimate is the median of what these say of it. For a fixed set of arms and noise
with a finite moment of order 1 + ε, independent from play to play. One round costs O(Kd²), an epoch O(rKd) more;
memory is O(rd) for each of O(log T) stages. Regret grows with √d, not d, and with ln K.

Source: Xue, Wang, Wang & Zhang, "Nearly Optimal Regret for Stochastic Linear Bandits with Heavy-Tailed Payoffs" (IJCAI
2020, arXiv:2004.13465), BMM with its sieve (SupBMM). Width as public code of a later paper states it, r sharper: for
weights β = xᵀV⁻¹Xᵀ that do not depend on the rewards, and h = ‖β‖_{1+ε},

* E|Σβ_sη_s|^{1+ε} ≤ 2ν^{1+ε}h^{1+ε} (von Bahr & Esseen 1965), so that a group is off by more than (12)^{1/(1+ε)}νh
  with probability at most 1/6, and the median of r groups with probability at most exp(−r·kl(½‖1/6)) =
  δ/(KT·stages), twice for its two sides counted, for r = ln(2KT·stages/δ)/kl(½‖1/6). (Published: 8 times that
  logarithm; this is 3.4 times.)
* h ≤ n^{(1−ε)/(2(1+ε))}‖x‖_{V⁻¹} for n epochs, and the ridge moves xᵀθ by at most √λ S‖x‖_{V⁻¹}.

So w(x) = (12^{1/(1+ε)}ν n^{(1−ε)/(2(1+ε))} + √λ S)‖x‖_{V⁻¹} holds for all epochs, arms and stages with probability
1 − δ. The sieve makes β independent of the rewards (:mod:`.stages`). Where arms change from round to round, an epoch
ends early when its arm is not offered, and groups without a reward are given the median of the others'; the guarantee
is then void. Rewards of an earlier epoch's arm that come late are not used.
"""

from __future__ import annotations

import math
from typing import NoReturn, Unpack

import numpy as np

from accounting.arrays import Array
from accounting.checks import fraction, integer, positive
from dpbandits.policy.choices import Law
from dpbandits.policy.parameters import Parameters
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import TimedOptions
from dpbandits.reference.heavy_tails.repeated import Epoch, InEpochs
from dpbandits.reference.heavy_tails.stages import EXPLOITS, sieved, stages
from dpkit.models.ellipsoid import norms

__all__ = ["BMM"]

_RATE = 0.5 * math.log(3.0) + 0.5 * math.log(0.6)  # kl(½‖1/6)


class BMM(InEpochs):
    """A linear bandit for heavy-tailed rewards: medians of ridge regressions, arm by arm, with optimism.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    horizon : int
        T, which r needs.
    theta_bound : float
        S ≥ ‖θ‖.
    tail : float
        ε in (0, 1]: the noise η has E|η|^{1+ε} ≤ ν^{1+ε}.
    noise_scale : float
        ν.
    most_arms : int
        K of r: the theory's promise is for rounds of at most so many arms.
    parameters : {"practical", "theory"}
        ``"theory"``: the sieve, and r and the widths of the module, all of which hold with probability 1 −
        ``failure_probability``. ``"practical"``: no sieve, every epoch is used, r = ln(T/δ), and the widths are
        ``radius_scale`` times as large.
    radius_scale : float
        Factor on the widths, of the practical parameters.
    failure_probability : float
        δ.
    ridge : float
        λ > 0.
    **options
        ``reward_range``, ``base_rate``, ``on_violation``, ``expire_after``, ``rng``: see
        :class:`dpbandits.Policy`.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.

    Examples
    --------
    >>> import numpy as np
    >>> policy = BMM(dim=2, horizon=1000)
    >>> for _ in range(600):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.1, 0.9)[decision.index])
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("epoch", "stage", "counts", "matrices", "sums")
    notes = 1  # the stage

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        theta_bound: float = 1.0,
        tail: float = 1.0,
        noise_scale: float = 1.0,
        most_arms: int = 100,
        parameters: Parameters = "practical",
        radius_scale: float = 0.1,
        ridge: float = 1.0,
        **options: Unpack[TimedOptions],
    ) -> None:
        super().__init__(dim, (-math.inf, math.inf), theta_bound, parameters, radius_scale, horizon=horizon, **options)
        T = self._T = integer("horizon", horizon, at_least=1)
        self.tail = fraction("tail", tail, include_one=True)
        self.noise_scale = positive("noise_scale", noise_scale)
        self.most_arms = integer("most_arms", most_arms, at_least=1)
        self.ridge = positive("ridge", ridge)
        if parameters == "theory":
            count = stages(T)
            self.groups = math.ceil(math.log(2.0 * most_arms * T * count / self.failure_probability) / _RATE)  # r
        else:
            count, self.groups = 1, math.ceil(math.log(T / self.failure_probability))
        # of every stage: epochs n, V, and Σ_i y_{i,j} x_i of every group
        self.counts = np.zeros(count)
        self.matrices = np.tile(self.ridge * np.eye(dim), (count, 1, 1))
        self.sums = np.zeros((count, self.groups, dim))
        self.epoch = Epoch(dim, size=self.groups)
        self.stage = 1  # of the running epoch
        self._screened: tuple[Array, int] = (np.empty(0), EXPLOITS)

    def estimates(self, arms: Array, stage: int) -> tuple[Array, Array]:
        """The estimates of all arms by the rewards of a stage, and their widths, each of shape (K,)."""
        n, inverse = max(float(self.counts[stage - 1]), 1.0), np.linalg.inv(self.matrices[stage - 1])
        means = np.median(self.sums[stage - 1] @ (arms @ inverse).T, axis=0)
        power = (1.0 - self.tail) / (2.0 * (1.0 + self.tail))
        alpha = 12.0 ** (1.0 / (1.0 + self.tail)) * self.noise_scale * n**power
        return means, self.scaled(alpha + math.sqrt(self.ridge) * self.theta_bound) * norms(arms, inverse)

    def prepare(self, arms: Array) -> None:
        super().prepare(arms)
        if self.epoch.running:
            self._screened = self.epoch.same(arms).astype(np.float64), self.stage
        elif self.parameters == "theory":
            self._screened = sieved(lambda stage: self.estimates(arms, stage), len(arms), self._T)
        else:
            means, widths = self.estimates(arms, 1)
            self._screened = means + widths, 1

    def score(self, arms: Array) -> Array | Law:
        return self._screened[0]

    def believed(self) -> NoReturn:
        """There is no confidence set of θ: the bounds are for arms."""
        raise NotImplementedError(f"{type(self).__name__} has no confidence set of θ: see ``estimates``")

    def note(self, arm: Array, index: int) -> tuple[int, ...]:
        return (self._screened[1],)

    def decided(self, pending: Pending) -> None:
        if not self.epoch.running and pending.note != (EXPLOITS,):
            (self.stage,) = pending.note
            super().decided(pending)

    def learn(self, pending: Pending, reward: float) -> None:
        if pending.note != (EXPLOITS,):
            super().learn(pending, reward)

    def observe(self, arm: Array, means: Array) -> None:
        """Every group of the epoch's stage has one more reward."""
        y = np.full(self.groups, float(np.median(means)))
        y[: len(means)] = means
        at = self.stage - 1
        self.counts[at] += 1.0
        self.matrices[at] += arm[:, None] * arm
        self.sums[at] += (y - self.base_rate)[:, None] * arm
