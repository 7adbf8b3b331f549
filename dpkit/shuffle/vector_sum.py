"""Sums of vectors in the shuffle model: calibration, and randomizer, shuffler and analyzer under one roof.

For anyone who wants a sum over users without trusting whoever computes it: each user randomizes its own vector, a
shuffler mixes the messages of all users, and the analyzer sees only what is left of them. Users, shuffler and analyzer
are separate objects (:class:`Randomizer`, :class:`Shuffler`, :class:`Analyzer`) that share the public constants of a
:class:`SumProtocol` and exchange messages; :class:`VectorSum` finds the constants for a budget and holds one of each.

Source: Cheu, Joseph, Mao & Peng (2022), "Shuffle private stochastic convex optimization", Section 3, as restated by
Sarmasarkar (2026, arXiv:2602.00417), Algorithms 4–6, with the scale of entries and the centre of the sum corrected.

Guarantee
---------
* Unit: one user. Neighbours differ in one user's input, which is replaced by any other (``"replace"``: at most 2Δ away
  in L2 norm), or by zero (``"zero_out"``: at most Δ). Who takes part is public.
* What leaves the shuffler is, in each coordinate, a number that depends on the inputs plus Bin(N, ½), with N = b × the
  number of users who follow the protocol. Exchanging one input moves the numbers before rounding by a vector of length
  at most g·distance/(2Δ): a ``ShuffledBinomial`` release.
* The honest fraction: of ``users`` users at least ⌊honest·users⌋ follow the protocol. The others may add no noise and
  tell everything they know; their bits are not counted.
* ``analysis="paper"`` states the theorem of the paper instead (p = ¼, ε ≤ 15, δ < ½), for comparison.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import ApproxDP, Budget, BudgetExceeded, Gaussian, Release, ShuffledBinomial, calibrate
from accounting.amplification.binomial_trade_off import LEFT_OUT
from accounting.checks import fraction, integer
from accounting.checks import positive as positive_number
from dpkit.shuffle.analyzer import Analyzer
from dpkit.shuffle.protocol import SumProtocol, Tally
from dpkit.shuffle.randomizer import Randomizer
from dpkit.shuffle.rounds import drawn_session
from dpkit.shuffle.shuffler import Shuffler
from dpkit.states import Unrepeatable

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["VectorSum", "check_delta"]

# Of the noise's standard deviation: what random rounding may add, with what it costs in privacy.
_OVERHEAD = 0.01
# Calibration takes longer than a second soon beyond these.
_MOST_ROUNDS = 10**6
_MOST_BITS = 2**36


class VectorSum(Unrepeatable):
    """Sums over users of vectors with ‖x‖₂ ≤ ``bound``, or of symmetric matrices with ‖M‖_F ≤ ``bound``.

    Parameters
    ----------
    dimension : int
        d: of the vectors, or of the d × d matrices if ``symmetric``.
    users : int
        n. The shuffler releases nothing before this many users took part; more may.
    bound : float
        Δ > 0.
    budget : Budget
        What all ``rounds`` releases together may cost one user. Its adjacency is ``"replace"`` or ``"zero_out"``.
    rounds : int
        How often the shuffler may release: the same users may take part in each, with inputs that depend on earlier
        estimates. At most 10⁶; the noise grows with their square root.
    symmetric : bool
        Sum symmetric matrices (of any other matrix, its symmetric part).
    positive : bool
        Inputs with a negative entry (matrices: eigenvalue) are refused. Any two that are left are at most √2·Δ apart
        instead of 2Δ: histograms, w·x xᵀ.
    distance : float, optional
        How far apart two inputs of one user can be in L2 norm, if the caller knows better. It is the caller's to
        guarantee: a distance cannot be checked on one input.
    honest : float
        The fraction of ``users`` that is counted on for noise, in (0, 1].
    analysis : {"numeric", "paper"}
        How g, b and p are found; see the module's text.
    clip : bool
        Scale longer inputs to the bound. By default they are refused.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with ``rounds`` × :attr:`cost` before anything leaves the shuffler for the first time.
    label : str
        For the reader of the ledger.
    session : str, optional
        Public; a message is valid in one session only. None draws a random one.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.

    Notes
    -----
    Guarantees, each with a test of the same name: cost_meets_the_budget, estimates_are_unbiased,
    noise_has_the_stated_scale, both_encodings_have_the_same_law, tallies_merge_in_any_order,
    messages_that_do_not_count_change_nothing, a_device_moves_a_sum_by_what_one_device_may,
    threads_never_make_more_releases_than_rounds, an_interrupt_leaves_it_right_or_stopped,
    inputs_never_differ_by_more_than_the_shift.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.shuffle import VectorSum
    >>> sums = VectorSum(3, 500, 1.0, budget=Budget(1.0, 1e-6))
    >>> messages = [sums.encode(x) for x in np.full((500, 3), 0.5)]    # on the users' devices
    >>> shuffled = sums.shuffle(messages)                               # by the shuffler
    >>> sums.decode(shuffled, 500).shape                                # by whoever wants to know
    (3,)
    >>> round(sums.noise_std, 2), sums.messages_per_user
    (8.59, 324)
    """

    def __init__(
        self,
        dimension: int,
        users: int,
        bound: float,
        *,
        budget: Budget,
        rounds: int = 1,
        symmetric: bool = False,
        positive: bool = False,
        distance: float | None = None,
        honest: float = 1.0,
        analysis: Literal["numeric", "paper"] = "numeric",
        clip: bool = False,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        label: str = "shuffled vector sum",
        session: str | None = None,
    ) -> None:
        d = integer("dimension", dimension, at_least=1)
        D = d * (d + 1) // 2 if symmetric else d
        n = integer("users", users, at_least=1)
        bound = positive_number("bound", bound)
        rounds = integer("rounds", rounds, at_least=1)
        if rounds > _MOST_ROUNDS:
            raise ValueError(
                f"rounds must be at most {_MOST_ROUNDS}, beyond which noise drowns any sum, got rounds={rounds}: plan "
                f"fewer, or make a sum for each part of the budget"
            )
        fraction("honest", honest, include_one=True)
        if not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget, got budget={budget!r}")
        if budget.adjacency == "add_remove":
            raise ValueError("budget must have adjacency 'replace' or 'zero_out': who sends messages is public")
        if budget.delta == 0:
            raise ValueError("budget must have a positive delta: binomial noise gives no pure differential privacy")
        if analysis == "numeric":
            apart = _distance(bound, D, budget, positive, distance)
            g, b, cost = _numeric(D, n, apart / (2.0 * bound), honest, budget, rounds)
            rate = 0.5
        elif analysis == "paper":
            if honest != 1 or distance is not None or budget.adjacency != "replace":
                raise ValueError(
                    "analysis='paper' must go with honest=1, no distance and adjacency 'replace', "
                    f"got honest={honest!r}, distance={distance!r}, adjacency={budget.adjacency!r}"
                )
            g, b, cost = _paper(D, n, budget, rounds)
            rate = 0.25
        else:
            raise ValueError(f"analysis must be 'numeric' or 'paper', got analysis={analysis!r}")
        #: The public constants, for users and analyzers elsewhere.
        self.protocol = SumProtocol(
            d,
            n,
            bound,
            resolution=g,
            noise_bits=b,
            cost=cost,
            rounds=rounds,
            noise_rate=rate,
            symmetric=bool(symmetric),
            positive=bool(positive),
            session=drawn_session(session),
        )
        self.randomizer = Randomizer(self.protocol, clip=clip, rng=rng)
        self.shuffler = Shuffler(self.protocol, rng=rng, ledger=ledger, label=label)
        self.analyzer = Analyzer(self.protocol)

    def __repr__(self) -> str:
        plan = self.protocol
        return (
            f"VectorSum(dimension={plan.dimension}, users={plan.users:,}, bound={plan.bound:g}): "
            f"{self.shuffler.rounds_left} of {plan.rounds} rounds left, noise of std {self.noise_std:.6g}, "
            f"{self.messages_per_user:,} bits a user"
        )

    @property
    def cost(self) -> Release:
        """What one release costs one user; all ``rounds`` of them meet the budget."""
        return self.protocol.cost

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise in each coordinate of a sum over ``users`` users, at most.

        Of a diagonal entry, for matrices; off the diagonal it is √2 times smaller.
        """
        return self.protocol.noise_std(self.protocol.users)

    @property
    def messages_per_user(self) -> int:
        """The labelled bits that one user sends in one round, D·(g + b)."""
        return self.protocol.messages_per_user

    def encode(self, x: ArrayLike) -> bytes:
        """One user's message for the open round; see :meth:`Randomizer.encode`."""
        return self.randomizer.encode(x, round=min(self.shuffler.round, self.protocol.rounds - 1))

    def tally(self, X: ArrayLike) -> Tally:
        """The added-up counts of several users; see :meth:`Randomizer.tally`."""
        return self.randomizer.tally(X)

    def shuffle(self, messages: Iterable[bytes] | bytes) -> bytes:
        """What the analyzer may see of the devices' messages; see :meth:`Shuffler.shuffle`."""
        return self.shuffler.shuffle(messages)

    def shuffle_tallies(self, tallies: Iterable[Tally | bytes] | Tally | bytes) -> bytes:
        """What it may see of the tallies of trusted workers; see :meth:`Shuffler.shuffle_tallies`."""
        return self.shuffler.shuffle_tallies(tallies)

    def decode(self, messages: bytes, users: int | None = None) -> NDArray[np.float64]:
        """The estimate of the sum; see :meth:`Analyzer.decode`."""
        return self.analyzer.decode(messages, users)

    def release(self, X: ArrayLike) -> NDArray[np.float64]:
        """The whole protocol at once, in the count encoding, for inputs ``X`` of shape (m, d) or (m, d, d)."""
        return self.decode(self.shuffle_tallies(self.tally(X)))


def _distance(bound: float, D: int, budget: Budget, positive: bool, distance: float | None) -> float:
    """How far one user's input can move."""
    if distance is not None:
        return min(positive_number("distance", distance), 2.0 * bound)
    if budget.adjacency == "zero_out":
        return bound
    # ⟨x, x′⟩ ≥ 0 for positive inputs; the margin covers the negative ones that pass as rounding errors
    return math.sqrt(2.0) * bound * (1.0 + 2.0**-38 * math.sqrt(D)) if positive else 2.0 * bound


def _numeric(D: int, n: int, share: float, honest: float, budget: Budget, rounds: int) -> tuple[int, int, Release]:
    """g and the smallest b for it; an input moves by at most ``share``·g counts."""
    counted = max(1, math.floor(honest * n))
    check_delta(rounds * D, budget)
    # what exact Gaussian noise would need; the rest of the noise, relative to it, falls like 1/b
    z = calibrate(lambda z: rounds * Gaussian(z), budget)
    wanted = math.ceil((0.5 + 24.0 * z * math.sqrt(D) / counted) / _OVERHEAD)
    if counted * wanted > _MOST_BITS:
        raise ValueError(
            f"the users' noise bits for one coordinate must be at most 2**36 together, got {counted * wanted} for "
            f"users={n}, {D} coordinates, rounds={rounds} and {budget!r}: take fewer of them, or a larger budget"
        )
    sigma = math.sqrt(counted * wanted) / 2.0
    g = max(1, math.floor((sigma / z - 6.0 * math.sqrt(D) / sigma) / share))
    # the margin covers the rounding errors of scaling the inputs
    shift = share * g * (1.0 + 1e-9)

    def bits(z: float) -> int:
        return math.ceil((2.0 * z * shift) ** 2 / counted)

    def release(z: float) -> Release:
        return ShuffledBinomial(counted * bits(z), shift, D, rounded=True, adjacency=budget.adjacency)

    # μ is 1 % too high at most, and quick to find
    z = calibrate(lambda z: rounds * release(z), budget, bracket=(0.99 * z, 1.1 * z), accountant="gdp")
    return g, bits(z), release(z)


def check_delta(counts: int, budget: Budget) -> None:
    """Refuse a δ that so many rounded counts under binomial noise never meet, before any noise is tried."""
    if budget.delta <= counts * LEFT_OUT:
        raise BudgetExceeded(
            f"budget must have a delta above {counts * LEFT_OUT:.3g}, with which one of {counts} sums leaves the part "
            f"of the binomial law that is priced, got {budget!r}"
        )


def _paper(D: int, n: int, budget: Budget, rounds: int) -> tuple[int, int, Release]:
    """The constants of Equation 122 of arXiv:2602.00417, with the rounds of its Algorithm 7."""
    epsilon, delta = budget.epsilon, budget.delta
    if epsilon > 15 or delta >= 0.5:
        raise ValueError(f"analysis='paper' holds for epsilon <= 15 and delta < 0.5, got budget={budget!r}")
    if rounds > 1:
        epsilon, delta = epsilon / (2.0 * math.sqrt(2.0 * rounds * math.log(1.0 / delta))), delta / (rounds + 1)
    g = math.ceil(max(2.0 * math.sqrt(n), D, 4))
    b = math.ceil(24e4 * g**2 * math.log(4.0 * (D + 1) / delta) ** 2 / (epsilon**2 * n))
    return g, b, ApproxDP(epsilon, delta, adjacency=budget.adjacency)
