"""A range of rewards that is learned in the first rounds of a run: ``reward_range="learned"``.

A private policy needs a finite range: noise is in proportion to its length. Where nobody can state one, a public number
of first rounds are a batch of their own, which tells where rewards end below and above, and nothing else
(:class:`dpkit.moments.windows.RecordWindow`). From then on a reward r counts as (r − low)/(high − low), cut to [0, 1]
and moved to the units in which the policy works: the range of its link, or [0, 1]. The algorithm itself knows nothing
of it: its clock starts when the range is known.

Privacy. What one of the first n rounds tells enters the range alone: a reward of one of them that comes after its
release is dropped. The numbers of rounds are public, so that a round, or when its reward comes, changes the range or
the sums of the policy, and never both. Each of them is no easier to tell than one release of the policy's own cost (see
``dpkit.moments.windows``), and so is the run. Where the unit is a person, whoever comes in the first n rounds tells one
reward of the range, of the end that the number of the first such round says, and nothing afterwards: also in rounds
that come later. Whose rounds are whose is public, and so is who does.

The range is released by a transaction of its own, as arms come and go: durable before anything depends on it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting import Gaussian, Laplace, Release
from dpbandits.durability.pending import Pending
from dpkit.moments.windows import RecordWindow
from dpkit.states.entries import conform, short

if TYPE_CHECKING:
    from dpbandits.policy.private import PrivatePolicy

__all__ = ["LearnedRange", "units_of"]

# at most this part of all rounds is spent on the range
_SHARE = 10
# shorter ranges than this one are the smallest there is
_SIGNS = 2.0**-38


def units_of(kind: type[PrivatePolicy[Any]], stated: str, rewards: tuple[float, float]) -> tuple[float, float]:
    """In which a policy works whose rewards would be these by default: the same, or [0, 1] where all numbers are.

    Raises
    ------
    ValueError
        For another word than "learned", a policy that cannot learn it, and rewards with an end on one side only.
    """
    if stated != "learned":
        raise ValueError(f"reward_range must be (low, high) or 'learned', got reward_range={stated!r}")
    if not kind.learns_range:
        raise ValueError(
            f"reward_range must be stated for {kind.__name__}, got reward_range='learned': take OnePassPrivateGLM, "
            "StandingPrivateGLM, DisjointPrivateGLM, PersonPrivateGLM or PrivateArms"
        )
    low, high = rewards
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    if math.isfinite(low) or math.isfinite(high):
        raise ValueError(
            "reward_range must be stated for a link over counts, whose rewards are no fraction of a range, got "
            "reward_range='learned'"
        )
    return 0.0, 1.0


class LearnedRange:
    """What the first rounds tell of the range of rewards, and what later rewards are in units of it.

    Parameters
    ----------
    cost : Release
        Of the policy's own sums, a Gaussian or a Laplace.
    horizon : int
        T.
    units : (float, float)
        In which the policy works.
    persons : bool
        Whether the unit is a person.
    delay : int
        By how many rounds all rewards are known to come late: the range is released so much later, and the policy's
        clock starts then. What is played in between teaches nothing.
    rng : numpy.random.Generator

    Attributes
    ----------
    telling : int
        n: the first n rounds tell the range.
    rounds : int
        After so many the range is released.
    found : (float, float) or None
        The range, once it was released.

    Raises
    ------
    ValueError
        If a tenth of the rounds is too few.
    """

    def __init__(
        self,
        cost: Release,
        horizon: int,
        units: tuple[float, float],
        *,
        persons: bool,
        delay: int,
        rng: np.random.Generator,
    ) -> None:
        if not isinstance(cost, (Gaussian, Laplace)):
            raise ValueError(
                "reward_range must be stated where a policy's cost is not one Gaussian or Laplace mechanism, got "
                "reward_range='learned'"
            )
        self._window = RecordWindow(cost, rng=rng)
        needed, enough = self._window.rounds
        self.telling = min(enough, horizon // _SHARE)
        self.rounds = self.telling + delay
        if self.telling < needed:
            raise ValueError(
                f"reward_range must be stated, or horizon be at least {_SHARE * needed:,} at this budget: a range is "
                f"learned from {needed:,} rounds or more, got horizon={horizon!r} and reward_range='learned'"
            )
        self._units, self._persons = units, persons
        self.found: tuple[float, float] | None = None
        self.unseen: tuple[float, float] | None = None  # released, and not yet durable
        # of a person who came in the first rounds the end that the first of them tells, and 2 more once it was told
        self._ends: dict[int, int] = {}

    # -------------------------------------------------------------------------------------------- rounds

    def clock(self, decisions: int) -> int:
        """How many of so many decisions were made after the first rounds."""
        return max(0, decisions - self.rounds)

    def first(self, pending: Pending) -> bool:
        """Note a decision; whether it is one of those that tell the range."""
        if pending.round >= self.rounds:
            return False
        if self._persons and pending.round < self.telling:
            self._ends.setdefault(pending.person, pending.round % 2)
        return True

    def later(self, pending: Pending) -> Pending:
        """A decision after the first rounds, by the policy's own clock."""
        return replace(pending, round=pending.round - self.rounds)

    def idle(self, pending: Pending) -> bool:
        """Whether the policy will learn nothing from a decision: public."""
        return pending.round < self.rounds or pending.person in self._ends

    def takes(self, pending: Pending, reward: float) -> bool:
        """Whether the policy learns nothing from a reward: it has told the range now, or counts for nothing."""
        if pending.round >= self.rounds:
            return pending.person in self._ends
        if self.found is None and pending.round < self.telling:
            end = self._ends.get(pending.person, pending.round % 2)
            if self._persons:
                self._ends[pending.person] = end % 2 + 2
            if end < 2:
                self._window.add(end, reward)
        return True

    # -------------------------------------------------------------------------------------------- release

    def due(self, decisions: int) -> bool:
        """Whether the range is to be released before the next decision."""
        return self.found is None and decisions >= self.rounds

    def release(self) -> None:
        """Draw the noise; nobody sees the range yet."""
        told = sum(end % 2 for end in self._ends.values()) if self._persons else self.telling // 2
        self.unseen = self._window.release(((len(self._ends) if self._persons else self.telling) - told, told))

    def expose(self) -> None:
        """The range is known from now on."""
        self.found, self.unseen = self.unseen, None

    def warn(self) -> None:
        """Say so where nothing but the signs of rewards is left."""
        if self.found is not None and self.found[1] - self.found[0] < _SIGNS:
            warnings.warn(
                f"nearly all rewards of the first {self.telling:,} rounds were 0, or had not come when the range was "
                "learned: of later ones no more than the sign counts. State a reward_range, if they differ in size",
                stacklevel=5,
            )

    def scaled(self, reward: float) -> float:
        """A reward in the policy's units, cut to them."""
        if self.found is None:
            raise RuntimeError("no range is known yet")
        (low, high), (start, end) = self.found, self._units
        share = (min(max(reward, low), high) - low) / (high - low)
        return min(max(start + share * (end - start), start), end)

    def original(self, value: float) -> float:
        """What a number in the policy's units is in those of rewards; NaN before the range is known."""
        if self.found is None:
            return math.nan
        (low, high), (start, end) = self.found, self._units
        return low + (value - start) / (end - start) * (high - low)

    # ---------------------------------------------------------------------------------------------- state

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        found = self.unseen or self.found
        persons = sorted(self._ends)  # in no order that tells who came first
        return {
            "telling": self.telling,
            "found": np.array([] if found is None else found, np.float64),
            "window": self._window.kept(),
            "persons": np.array(persons, np.int64),
            "ends": np.array([self._ends[one] for one in persons], np.int64),
        }

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        if not isinstance(saved, Mapping) or set(saved) != set(self.kept()):
            raise ValueError(f"scale must hold the entries {sorted(self.kept())}, got {short(saved)}")
        if conform("telling", saved["telling"], 0) != self.telling:
            raise ValueError(f"telling must be {self.telling} at this budget, got {saved['telling']}")
        found = saved["found"]
        if isinstance(found, np.ndarray) and found.size == 0:
            self.found = None
        else:
            low, high = conform("found", found, np.zeros(2)).tolist()
            if not low < high:
                raise ValueError(f"found must be increasing, got {[low, high]}")
            self.found = low, high
        self._window.resume(saved["window"])
        persons = saved["persons"]
        like = np.zeros(len(persons) if isinstance(persons, np.ndarray) else 0, np.int64)
        persons, ends = (conform(name, saved[name], like) for name in ("persons", "ends"))
        if len(persons) > (self.telling if self._persons else 0) or (persons[1:] <= persons[:-1]).any():
            raise ValueError("persons must ascend, and be no more than the first rounds, got others")
        if ((ends < 0) | (ends > 3)).any():
            raise ValueError("ends must be from 0 to 3, got others")
        self._ends = dict(zip(persons.tolist(), ends.tolist(), strict=True))
