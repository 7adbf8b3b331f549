"""Many rounds at once: ``select_many`` and ``update_many`` of every policy.

Between two releases nothing changes that choices depend on, but what is learned; and a private policy's choices do not
depend on that. So the requests of one stretch (``Policy.steady`` says how long it is) are chosen for together: one
array of draws, one product with all arms, one record in the journal. What is due is done between stretches, at the same
decision as if requests came one by one. A policy that cannot tell has stretches of one decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import integer
from dpbandits.durability.pending import Pending, Together
from dpbandits.policy.checks import each_of, real_array
from dpbandits.policy.decision import Decision, Decisions, Stretch
from dpbandits.policy.many import Each, Index, Laws, Rounds, by_rows, together
from dpkit.states.entries import short
from dpkit.states.registry import kind_of

if TYPE_CHECKING:
    from dpbandits.policy.protocol import Policy

__all__ = ["ManyRounds", "check_admitted", "checked"]

_LONGEST = 2**62
_PASSED_OVER = (
    *("select", "update", "checked_arms", "chosen", "admit", "written", "counted", "decided"),
    *("score", "score_elsewhere", "due", "prepare", "learn", "teach", "checked_reward", "reward_of"),
)


class ManyRounds:
    """The part of a policy that is about many rounds at once.

    A subclass may say, so that requests are chosen for together and not one after the other:

    * ``by_rows``: whether in what ``score`` returns, scores or a ``Perturbed``, the part of every arm depends on its
      own row alone; or by ``score_many(rounds)`` what ``score`` would say of every request;
    * ``lasting``: whether what ``score`` and ``note`` read changes with rewards alone; or by ``steady()`` for how long
      it stays the same.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.policies import Uniform
    >>> len(Uniform(2).select_many(np.broadcast_to(np.eye(2), (5, 2, 2))))
    5
    """

    by_rows: ClassVar[bool] = False
    lasting: ClassVar[bool] = False
    # of the methods that are passed over unless a class has one of its own, those that it has
    own: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        made_by = {name: next((one for one in cls.__mro__ if name in vars(one)), cls) for name in _PASSED_OVER}
        cls.own = frozenset(name for name, one in made_by.items() if not _of_any_policy(name, one.__module__))
        # whoever says something else of one round says it of many
        for name in ("note", "decided", "learn"):
            if _place(cls, name) < _place(cls, many := f"{name}_many"):
                setattr(cls, many, vars(ManyRounds)[many])

    def select_many(
        self, arms: ArrayLike | Sequence[Any] | int, persons: Sequence[str | bytes | int] | None = None
    ) -> Decisions:
        """Choose for many requests at once, in their order, each an own round.

        The law, the noise, the privacy and the books are those of as many calls of ``select``. Releases that fall
        inside are made where they are due. The lock is taken once, and the journal is written once between two
        releases. Arms are kept together: that of a closed decision goes, at the latest, with half of those around it.

        Parameters
        ----------
        arms : array_like of shape (n, K, d), or a sequence of n arrays of shape (K_i, d)
            What each request offers, as for ``select``; n contexts, shape (n, d), for policies that take them. A whole
            number n where ``select`` needs nothing. They are not copied: leave them unchanged until probabilities were
            asked for.
        persons : sequence, optional
            Whose rounds they are, one for each.

        Returns
        -------
        Decisions
            A sequence of ``Decision``s. (Their ``scores`` are empty.)

        Raises
        ------
        ValueError
            As by ``select``, naming the request, or if the horizon has too few rounds left. All are checked first: the
            policy's state is as it was. Whatever else is raised comes from a release inside; decisions before it were
            made, and ``open_decisions`` has them.

        Examples
        --------
        >>> import numpy as np
        >>> from dpbandits.policies import LinearThompson
        >>> policy = LinearThompson(dim=3, rng=np.random.default_rng(0))
        >>> decisions = policy.select_many(np.tile(np.eye(3), (1000, 1, 1)))
        >>> len(decisions), decisions[7].arm.shape
        (1000, (3,))
        >>> policy.update_many(decisions, np.ones(1000))
        >>> policy.open_decisions
        []
        """
        return (_one_by_one if "select" in self.own else _select)(cast("Policy", self), arms, persons)

    def update_many(self, decisions: Sequence[Decision | int], rewards: Sequence[Any] | ArrayLike) -> None:
        """Learn the rewards of many decisions, in this order; see ``select_many`` for an example.

        With a checkpoint all are written through to the disk together, before the first is learned.

        Parameters
        ----------
        decisions : sequence of Decision or int
            Each once.
        rewards : array_like of shape (n,), or a sequence of what ``update`` takes: None is one that will never come

        Raises
        ------
        ValueError
            As by ``update``, naming the decision. All are checked first: the policy's state is as it was.
        """
        _update(cast("Policy", self), decisions, rewards)

    def score_many(self, rounds: Rounds) -> Laws:
        """What ``score`` says of every one of many requests, the first of which was prepared for."""
        score = cast("Policy", self).score
        return by_rows(score, rounds) if self.by_rows else Each([score(arms) for arms in rounds])

    def steady(self) -> int:
        """For how many decisions from now on ``prepare`` has nothing to do and ``score`` and ``note`` stay the same.

        Whatever is chosen in these; 1 where that cannot be told.
        """
        return _LONGEST if self.lasting else 1

    def checked_many(self, arms: Array) -> Array | None:
        """Arms (n, K, d) or contexts (n, d) of many requests, as ``checked_arms`` makes one's; None to ask that."""
        policy = cast("Policy", self)
        return None if "checked_arms" in self.own else policy.offer.checked_many(arms, policy.dim)

    def admit_many(self, made: Together) -> None:
        """Count decisions that were made together, and wait for their rewards; written down first, if at all."""
        policy = cast("Policy", self)
        for pending in made:
            policy.make(pending)

    def note_many(self, arms: Sequence[Array] | Array, indices: Sequence[int]) -> Iterable[tuple[int, ...]]:
        """What ``note`` says of every one of many choices."""
        return map(cast("Policy", self).note, arms, indices)

    def decided_many(self, made: Together) -> None:
        """As ``decided`` does one after the other."""
        for pending in made:
            cast("Policy", self).decided(pending)

    def learn_many(self, made: Together, rewards: Sequence[float]) -> None:
        """As ``learn`` does one after the other."""
        for pending, reward in zip(made, rewards, strict=True):
            cast("Policy", self).learn(pending, reward)

    def check_told(self, key: int, reward: Any) -> None:
        """Refuse what ``update`` would: asked of all rewards before the first, where a class has its own ``update``."""
        policy = cast("Policy", self)
        if (pending := policy.waiting.get(key)) is None:
            raise ValueError(f"decision must be one whose reward is still open, got decision id {key!r}")
        if reward is not None:
            policy.reward_of(pending, reward)

    def take_in_many(self, keys: Sequence[int], made: Together, rewards: Sequence[float | None]) -> None:
        """Close decisions and learn, in this order; where there is no reward, close."""
        policy = cast("Policy", self)
        for key, pending, reward in zip(keys, made, rewards, strict=True):
            if reward is None:
                del policy.waiting[key]
            else:
                policy.take_in(key, pending, reward)


def checked(policy: Policy, arms: Any) -> Rounds:
    """What many requests offer, as arrays.

    Raises
    ------
    ValueError
        Naming the first request that offers something else than a round may.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.policies import Uniform
    >>> from dpbandits.policy.rounds import checked
    >>> len(checked(Uniform(2), [np.eye(2), np.eye(2)]))
    2
    """
    if isinstance(arms, (int, np.integer)) and not isinstance(arms, bool):
        return np.broadcast_to(one := policy.checked_arms(None), (integer("arms", arms, at_least=0), *one.shape))
    if isinstance(arms, np.ndarray) and arms.ndim > 1:
        found = policy.checked_many(real_array("arms", arms))
        if found is not None:
            return found
    if isinstance(arms, (str, bytes)) or not isinstance(arms, Iterable) or getattr(arms, "ndim", 1) == 0:
        raise ValueError(
            f"arms must be those of many requests, shape (n, K, d), or a list of arrays, got {short(arms)}"
        )
    return together(each_of("arms", policy.checked_arms, arms))


def _select(policy: Policy, arms: Any, persons: Sequence[Any] | None) -> Decisions:
    """Choose for many requests; see :meth:`dpbandits.Policy.select_many`."""
    rounds = checked(policy, arms)
    n = len(rounds)
    policy.check_process()
    stretches = []
    with policy.lock:
        who = check_admitted(policy, persons, n)
        at = 0
        while at < n:
            policy.prepare(rounds[at])
            part = slice(at, min(n, at + max(1, policy.steady())))
            stretches.append(_stretch(policy, rounds[part], None if who is None else who[part]))
            if policy.decision_log is not None:
                _log(policy, stretches[-1], rounds[part], (n * [None] if persons is None else persons)[part])
            at = part.stop
    return Decisions(stretches, policy.waiting.run)


def _one_by_one(policy: Policy, arms: Any, persons: Sequence[Any] | None) -> Decisions:
    """The same, by the policy's own ``select``."""
    rounds = checked(policy, arms)
    with policy.lock:
        if persons is not None:
            _whose(policy, persons, len(rounds))
        whose = repeat(None, len(rounds)) if persons is None else persons
        made = [policy.select(*one) for one in zip(rounds, whose, strict=True)]
    return Decisions.of(made, policy.waiting.run)


def _update(policy: Policy, decisions: Sequence[Decision | int], rewards: Any) -> None:
    """Learn many rewards; see :meth:`dpbandits.Policy.update_many`."""
    waiting = policy.waiting
    keys = decisions.keys(waiting.run) if isinstance(decisions, Decisions) else [*map(waiting.key, decisions)]
    values = rewards if isinstance(rewards, (list, tuple)) else real_array("rewards", rewards).tolist()
    if not isinstance(values, (list, tuple)) or len(values) != len(keys):
        raise ValueError(f"rewards must be as many as decisions, {len(keys)}, got {short(rewards)}")
    if len(set(keys)) != len(keys):
        raise ValueError("decisions must be given once each, got some twice")
    policy.check_process()
    if "update" in policy.own:
        with policy.lock:
            policy.check_open()
            each_of("rewards", policy.check_told, keys, values)
            with policy.together():
                for key, value in zip(keys, values, strict=True):
                    policy.update(key, value)
        return
    with policy.lock:
        policy.check_open()
        made = waiting.those(keys)
        told = _told(policy, made, values)
        policy.take_in_many(keys, made, told)
        if policy.decision_log is not None:
            for key, reward in zip(keys, told, strict=True):
                policy.decision_log.closed(key, reward)


def _told(policy: Policy, made: Sequence[Pending], values: Sequence[Any]) -> Sequence[float | None]:
    """The rewards of decisions, checked: at once where all are numbers within their range."""
    if not {"checked_reward", "reward_of"} & policy.own and {*map(type, values)} <= {float, int, np.float64}:
        found, (low, high) = np.asarray(values), policy.reward_range
        if found.dtype.kind in "if" and ((low <= found) & (found <= high) & np.isfinite(found)).all():
            return cast("list[float]", found.astype(np.float64).tolist())

    def told(pending: Pending, value: Any) -> float | None:
        return None if value is None else policy.reward_of(pending, value)

    return each_of("rewards", told, made, values)


def check_admitted(policy: Policy, persons: Sequence[Any] | None, n: int) -> list[int] | None:
    """Refuse n rounds that there must not be, before the first; else whose they are. Behind the policy's lock.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> from dpbandits.policies import Uniform
    >>> from dpbandits.policy.rounds import check_admitted
    >>> check_admitted(Uniform(2), None, 3) is None
    True
    """
    policy.check_open()
    if policy.horizon is not None and policy.decisions + n > policy.horizon:
        raise ValueError(
            f"arms must be those of at most {policy.horizon - policy.decisions} requests, what is left of "
            f"horizon={policy.horizon}, got {n}: start a policy with a longer one, or Doubling, which needs none"
        )
    return _whose(policy, persons, n)


def _whose(policy: Policy, persons: Sequence[Any] | None, n: int) -> list[int] | None:
    """Whose rounds they are, as it is kept; None where nothing is. Nothing is noted before all are checked."""
    if persons is None:
        if n:
            policy.who(None)  # refused where one is needed
        return None
    if isinstance(persons, (str, bytes)) or not hasattr(persons, "__len__") or len(persons) != n:
        raise ValueError(f"persons must be one for each of {n} requests, got {short(persons)}")
    if len(kinds := {*each_of("persons", kind_of, persons)}) > 1:
        raise ValueError(f"persons must be of one type, got {sorted(kinds)}")
    return [policy.who(person) for person in persons]


def _chosen(policy: Policy, rounds: Rounds, picks: Index) -> Array | Sequence[Array]:
    """What is kept of many choices."""
    found = None
    if "chosen" not in policy.own and isinstance(rounds, np.ndarray):
        found = policy.offer.chosen_many(rounds, picks)
    return [*map(policy.chosen, rounds, picks.tolist())] if found is None else found


def _stretch(policy: Policy, rounds: Rounds, who: list[int] | None) -> Stretch:
    """Choose for requests between which nothing is due, and wait for the rewards."""
    laws = policy.score_many(rounds)
    first, release, picks = policy.decisions, policy.number(), laws.draw(policy.rng)
    indices = picks.tolist()
    arms = _chosen(policy, rounds, picks)
    ids = range(first, first + len(indices))
    notes = [*policy.note_many(arms, indices)] if policy.notes else ()
    made = Together(arms, indices, ids, notes, () if who is None else who)
    names = {index: policy.name_of(index) for index in {*indices}}
    policy.admit_many(made)
    return Stretch(ids, picks, arms, laws, names, release)


def _log(policy: Policy, made: Stretch, rounds: Rounds, persons: Sequence[Any]) -> None:
    if policy.decision_log is not None:
        for i, (arms, person) in enumerate(zip(rounds, persons, strict=True)):
            policy.decision_log.decided(made.decision(i, policy.waiting.run), arms, person, made.release)


def _place(kind: type, name: str) -> int:
    """How far up a class has a method from."""
    return next(i for i, one in enumerate(kind.__mro__) if name in vars(one))


def _of_any_policy(name: str, module: str) -> bool:
    """Whether a method from there is what every policy has; pages of several arms are chosen in their own way."""
    return module.startswith("dpbandits.policy.") and (name == "update" or module != "dpbandits.policy.slates")
