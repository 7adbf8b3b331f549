"""LDPGLM: generalized linear bandits in the local model, where every user randomizes its own record.

For whoever learns from people who trust no server. The server publishes θ and a root of its covariance; a user's
device chooses the arm, sees the reward, and sends *one* noisy record. The setting is that of Han, Liang, Wang & Zhang
(2021), "Generalized Linear Bandits with Local Differential Privacy", arXiv:2106.03365. Their LDP-SGD sends a randomized
gradient and plays greedily, their LDP-GLOC sends noisy second moments and plays optimistically. Here one record carries
both: that of :class:`~dpbandits.policies.OnePassPrivateGLM`, (ψs·x xᵀ, ψg·x) with the secant slope s at the θ that was
last published and g = clip(r − c₀, ±B), randomized. The server adds the messages up, and refits on a public schedule as
that policy does (``private.parts.one_pass``): no message is looked at twice. Devices play
argmax xᵀ(θ + β·U diag(√(f/p))ξ), with ξ of their own. The first rounds play the best arm in random directions.

Where no base rate is stated the level of rewards is learned, which takes few messages of its own: a message about one
number tells as much as some twenty of which it is one coordinate. Of early rounds some are asked for
(r − middle)/(high − low) in place of their record, by round number: one in two of the first batch, until they are
enough (52 at ε = 1, 12 at 4), and then one in four until it is clear whether rewards are far below the middle.
``private.parts.records.Levels`` says what is made of the answers.

Randomizers
-----------
* ``"sphere"``: that of Duchi, Jordan & Wainwright (2018), pure ε-DP;
* ``"cap"``: its refinement by Bhowmick et al. (2018), PrivUnit, pure ε-DP, with 0.86 of the sphere's variance at ε = 1,
  0.27 at 4 and 0.1 at 8;
* ``"gaussian"``: the record plus Gaussian noise, calibrated to its joint L2 sensitivity
  (:mod:`dpkit.moments.local` has them).

By default the one with the least variance, by calculation: a cap, or the Gaussian from about ε = 32 on.

Guarantee
---------
* Unit: one round, that is its user's arm set and reward. Neighbours: one user's round differs ("replace"), or its
  record is the null one ("zero_out"; for sphere and cap at the price of "replace").
* What leaves a device is the randomized record, or number, and nothing else. Scaled to (a·svec(w·x xᵀ), c·γ·x) with
  w = ψs and γ = ψg, 0 ≤ w‖x‖² ≤ W and |γ|·‖x‖ ≤ B as s and g are cut, at every level, and ψ‖x‖ ≤ 1 (always), two
  records are at most ``dpkit.geometry.pair_sensitivity(a, W, c, B)`` apart and none is longer than √(a²W² + c²B²).
  Two numbers are at most 1 apart, and none is more than ½ from the null number 0. They have the same price: they are
  sent by randomized response with the ε of sphere and cap, or with Gaussian noise of the same multiplier. So each
  message meets the budget by itself, against a server that is not trusted, all other users, and whoever sees the
  messages.
* Of which kind a message is follows from the round's number and from what had been released when it is sent, thus from
  messages of others: arms, rewards and whether there is a reward have no part in it.
* Each user sends one message: users compose in parallel, and the ledger holds the cost of one message, recorded when
  the policy is made. Later users' messages depend on earlier ones (sequential interaction); that costs nothing, since θ
  and the root are post-processing of messages.
* Not protected: whether and when a device sends. Where a reward's arrival is itself private, a device must send at a
  time that does not depend on it, and if there is no reward the null message of the kind that is due: a record of
  zeros, or the number 0, the middle of the range, randomized as any other (``Record``). It is as close to every other
  message as these are to each other.
* It holds for the program as it runs: Gaussian messages are on a lattice, with exact noise. A message from the sphere
  is one float vector or its negative, and which of the two is chosen with the stated odds, whatever the rounding; one
  from a cap is a vector drawn without regard to the record (:mod:`dpkit.moments.local`).

This object simulates both sides. ``select`` and ``update`` are the device's; what they pass to the server is the
message. The saved state holds the server's sums, and the arms of open decisions; in a deployment these stay on the
devices.

Regret: Han et al. prove Õ(√T/ε) for greedy play where the played arms' second moment is bounded from below; nothing is
proved for this policy.

Cost per round: O(Kd²) to select, O(d²) to update, O(d³) at each refit; memory O(d²).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import integer, positive
from dpbandits.policy.parameters import Exploration
from dpbandits.policy.private import PrivateOptions, PrivatePolicy
from dpbandits.policy.progress import Found, found_along
from dpbandits.policy.protocol import Pending
from dpbandits.policy.schedule import Schedule, first_length
from dpbandits.private.parts.older_messages import older
from dpbandits.private.parts.one_pass import Estimate, Refit
from dpbandits.private.parts.posterior_rule import PosteriorRule
from dpbandits.private.parts.records import Asked, Levels, never_cut
from dpkit.models.links import Link, get_link
from dpkit.models.prior import Prior
from dpkit.moments.local import PairMessages, Randomizer

__all__ = ["LDPGLM"]

# the gradients' share where one coordinate of a message has more noise than its record is long: 0.83 ± 0.07 of the
# regret at ε = 1, where 0.65 is better at 4
_LOUD = 0.87


@dataclass(frozen=True)
class Record:
    """(x, ψs, ψg) on the device, at the θ and the level in force; or how far the reward is from the middle.

    Without a reward it is the null record, or the null number, of the same kind as if one had come.
    """

    levels: Levels
    asked: Asked

    def __call__(
        self, pending: Pending, reward: float | None, public: Estimate
    ) -> tuple[Array, float, float, float | None]:
        x = pending.arm
        # of which kind the message is follows from the round's number and the public half alone
        asked = not public.levelled and self.asked(pending.round, public.level)
        if reward is None:
            return x, 0.0, 0.0, 0.0 if asked else None
        if asked:
            return x, 0.0, 0.0, self.levels.deviation(reward)
        return x, *self.levels.at(public.level).weigh(x, float(x @ public.theta), reward), None


class LDPGLM(PrivatePolicy[Estimate]):
    """A private bandit on features without a trusted server: every device randomizes its own record.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ).
    budget : Budget
        What each user's message may cost, or all messages of a person; δ > 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    theta_bound : float
        S ≥ ‖θ‖, which the level of rewards is not part of.
    randomizer : {"sphere", "cap", "gaussian"}, optional
        See the module. By default the one with the least variance.
    growth : float
        The server refits after numbers of rounds that grow by this factor, at least 1.
    first_batch : int, optional
        Rounds before the first fit. By default T/100, at least 4d and at most T/20.
    gradient_share : float, optional
        Share, in (0, 1), of the squared sensitivity that is given to ψg·x rather than to ψs·x xᵀ. By default from 0.65
        to 0.8 (``private.parts.records.Levels.gradient_share``); and 0.87 where one coordinate of a message has more
        noise than its record is long, as up to about ε = 2.
    clip : float, optional
        B. By default the largest |r − c₀|; for counts at most 0.8 × a typical one.
    exploration : float or "inverse_gap"
        β ≥ 0, or draws by the gaps of predicted rewards; see :class:`~dpbandits.policies.OnePassPrivateGLM`.
    gamma_scale : float
        Of "inverse_gap", by default that of Vowpal Wabbit.
    ridge : float
        Precision of the prior of θ, times S²/d.
    **options
        ``reward_range`` (by default that of the link; it must be finite), ``base_rate`` (by default learned where
        rewards are well below the middle of their range; not for counts), ``on_violation``, ``expire_after``, ``rng``,
        ``ledger``, ``label``, ``checkpoint``, ``rounds_per_person``: see :class:`dpbandits.PrivatePolicy`, also for
        errors.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = LDPGLM(dim=2, budget=Budget(4.0, 1e-6), horizon=1500, rng=rng)
    >>> reward = 0.0
    >>> for _ in range(1500):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     reward += (0.2, 0.8)[decision.index]
    >>> reward / 1500 > 0.7
    True
    >>> print(policy.privacy())
    (4, 1e-06)-DP local, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    trust: ClassVar[Literal["local"]] = "local"
    by_rows = True
    prices_persons = True
    kept_as: ClassVar[Mapping[str, str]] = {"clip": "stated_clip"}
    rule: PosteriorRule
    refit: Refit
    record: Record

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 3.0,
        randomizer: Randomizer | None = None,
        growth: float = 1.2,
        first_batch: int | None = None,
        gradient_share: float | None = None,
        clip: float | None = None,
        exploration: Exploration = 0.5,
        gamma_scale: float = 10.0,
        ridge: float = 1.0,
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, budget=budget, horizon=horizon, **options)
        S = self.theta_bound = positive("theta_bound", theta_bound)
        T = integer("horizon", horizon, at_least=1)
        self.first_batch, self.growth = first_length(first_batch, max(4 * dim, T // 100), T), growth
        self.schedule = Schedule.batches(T, self.first_batch, growth)
        self.ridge = positive("ridge", ridge)

        levels = Levels.of(self, clip, until=T // 5)
        self.stated_clip, self.clip = clip, levels.base.B

        def messages(share: float) -> PairMessages:
            pair, records = (dim, levels.base.W, levels.base.B, share), self.rounds_per_person
            return PairMessages(*pair, budget=budget, rng=self.rng, records=records, randomizer=randomizer)

        self.gradient_share = levels.gradient_share(gradient_share, dim)
        self.sums = messages(self.gradient_share)
        if gradient_share is None and self.sums.std > self.sums.longest:
            self.gradient_share, self.sums = _LOUD, messages(_LOUD)
        self.randomizer = self.sums.randomizer
        self.record = Record(levels, Asked.of(self.first_batch, self.sums.number_std, T))

        self.rule = PosteriorRule.of(self.link, exploration, gamma_scale, given=False, levels=levels.learned)
        self.exploration, self.gamma_scale = self.rule.exploration, self.rule.gamma_scale
        prior, alike = Prior.of(None, dim, self.ridge * dim / S**2, S), np.ones((dim, dim))
        # every message has noise of its own: what H and b tell of a batch is in no other metric
        self.refit = Refit(levels, prior, self.rule, alike, T, None, shapes=False)
        self.public = self.refit.nothing()
        self.open_run(self.sums.cost)

    def found(self) -> Found:
        # where the level has moved, a stated clip is another one
        cut = never_cut(self) if self.stated_clip is None else None
        return found_along(self.public.theta, self.public.covariance, self.refit.prior, cut)

    def resume(self, saved: Any) -> None:
        super().resume(older(self, saved))
