"""What every private policy has in common: one run of releases, whose state and rewards survive a crash.

A private policy has two halves. ``public`` is what it has released, and what follows from that: choices depend on
nothing else, arms and draws aside. The attributes named in ``_secret`` are the open batch, the state of the noise and
rows that will be used again. A subclass says

* ``_score``: how arms are chosen from the public half;
* ``_learn``: how a reward enters the secret half;
* ``_release``: how, at the public times of ``schedule``, the secret half makes a new public one.

Where the budget's unit is a person, ``select`` is told who comes, and a record is learned only if its person has taught
fewer than m = ``rounds_per_person`` records before, and none in the open batch; all others are dropped. That is decided
here, once for all policies (``_teach``): a policy only says what m records in m batches cost. Everyone is served every
time. What a person does not teach needs no budget: it is that person's own data that decide which records are dropped.

``select`` first makes the releases that are due. Each is one transaction (:class:`dpkit.states.Run`): a policy that was
stopped in the middle of one refuses to go on, the ledger's marks tell the newest state from all others, and nothing is
seen of a release before it is durable.

With a checkpoint no acknowledged reward is lost in a crash: decisions and rewards since the last release stand in a
journal beside the checkpoint, written through to the disk before ``update`` returns; loading replays it. Journal and
checkpoint hold raw data, and are as confidential as it.
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, Unpack

import numpy as np

from accounting import AdjacencyMismatch, Budget, Release
from accounting.arrays import Array
from accounting.checks import integer
from dpbandits.durability.checkpoint import Checkpointed
from dpbandits.durability.journal import Journal
from dpbandits.durability.registry import Registry, kind_of
from dpbandits.policy.checks import checked_budget, finite_rewards
from dpbandits.policy.protocol import CommonOptions, Policy
from dpbandits.policy.publishing import Publishing
from dpbandits.policy.schedule import Schedule
from dpkit import randomness
from dpkit.states import Run, Unrepeatable
from dpkit.states.entries import short
from dpkit.states.run import Here

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["PrivateOptions", "PrivatePolicy", "Schedule", "checked_budget", "finite_rewards"]

Public = TypeVar("Public")

# it stands in ledgers and in messages
_LONGEST_LABEL = 1000

# what a registry counts up to
_MOST_ROUNDS = 2**31


class PrivateOptions(CommonOptions, total=False):
    """The keywords that every private policy takes besides ``budget`` and ``horizon``; see :class:`PrivatePolicy`."""

    ledger: Ledger | None
    label: str | None
    checkpoint: str | Path | None
    rounds_per_person: int | None


class PrivatePolicy(Unrepeatable, Publishing, Checkpointed, Policy, Generic[Public]):
    """Base of the private policies; the algorithm is in ``_score``, ``_learn`` and ``_release``.

    A constructor sets ``schedule``, the first ``public`` half and the attributes of ``_secret``, and ends with
    ``self._open_run(cost)``, which charges the ledger.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    rewards : (float, float)
        What ``reward_range`` is if it is not given.
    budget : Budget
        What the whole run may cost, for one round replaced (or zeroed out), or all that one person does in it
        (``unit="person"``); δ > 0.
    horizon : int, optional
        T, the number of rounds that the policy will take part in.
    rounds_per_person : int, optional
        m, the number of records that a person may teach, each in another batch; 1 by default. Only where the unit is a
        person.
    ledger : Ledger, optional
        Charged once, when the policy is made; by default a ledger of the policy's own with the same budget.
    label : str, optional
        Names the run in the ledger; by default a fresh one.
    checkpoint : path, optional
        A new file, in which the state is saved at every release before anything that was released is used. Where the
        unit is a person that writes 16 bytes for everyone who has taught, so that with ``release="every_round"`` a
        round takes O(persons). After a
        crash, ``Policy.load(checkpoint, ledger=ledger)`` goes on without loss. It needs a ledger that survives, too, or
        the word ``unattended=True``. A crash in the instant between the charge and the first checkpoint leaves no file
        to load, and a charge for a run that never was: nothing was released, and it stays spent, as nobody can tell.
    **options
        ``reward_range``, ``base_rate``, ``on_violation``, ``expire_after``, ``rng``: see
        :class:`dpbandits.Policy`.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.
    AdjacencyMismatch
        If the budget counts rows added or removed, or a unit other than a round.
    BudgetExceeded
        If the ledger has not enough left.

    Notes
    -----
    ``select``, ``update``, ``forget`` and ``save`` raise :class:`dpkit.states.RunStopped` where the policy must not go
    on: after an exception in the middle of a release or of learning, in the child of a fork, or when another process
    has outrun this one. ``copy``, ``deepcopy`` and ``pickle`` refuse.
    """

    # whether the cost that a constructor states holds for m > 1 records of one person, too
    _prices_persons: ClassVar[bool] = False
    # whether it prices all rounds of a person by a total of its own, with no cap on what it learns of each
    _prices_totals: ClassVar[bool] = False

    schedule: Schedule
    public: Public
    ledger: Ledger

    def __init__(
        self,
        dim: int,
        rewards: tuple[float, float],
        *,
        budget: Budget,
        horizon: int | None,
        ledger: Ledger | None = None,
        label: str | None = None,
        checkpoint: str | Path | None = None,
        rounds_per_person: int | None = None,
        **options: Unpack[CommonOptions],
    ) -> None:
        super().__init__(dim, rewards, horizon=horizon, **options)
        self.budget = checked_budget(budget)
        self.rounds_per_person = self._checked_rounds(rounds_per_person)
        self._persons = None if self.rounds_per_person is None else Registry(self.rounds_per_person)
        if self._persons is not None:
            self._protects = "person"
        self.label = label or f"{type(self).__name__} {secrets.token_hex(4)}"
        if not isinstance(self.label, str) or len(self.label) > _LONGEST_LABEL:
            raise ValueError(f"label must be a text of at most {_LONGEST_LABEL} characters, got {short(label)}")
        if ledger is None:
            from accounting import Ledger

            self.ledger = Ledger(budget)
        else:
            self.ledger = ledger
        counted = budget if self.ledger.budget is None else self.ledger.budget
        if (counted.unit == "person") != (budget.unit == "person"):
            raise AdjacencyMismatch(
                f"ledger must count what the budget counts, one {budget.unit}, got one that counts one {counted.unit}"
            )
        self.releases = 0
        simulation = randomness.is_simulation(self.rng)
        self._run = Run(self.label, ledger=ledger, simulation=simulation)
        self._lock = self._run.lock
        self._journal: Journal | None = None
        self._unseen: Public | None = None  # released, and not yet durable
        self._new_checkpoint = None if checkpoint is None else Path(checkpoint).absolute()

    def _checked_rounds(self, rounds: int | None) -> int | None:
        """m, or None where the unit is not a person."""
        if self.budget.unit != "person":
            if rounds is not None:
                raise ValueError(
                    f"rounds_per_person must not be given where the budget's unit is a {self.budget.unit}: make it "
                    f"Budget(..., unit='person'), got rounds_per_person={rounds!r}"
                )
            return None
        m = 1 if rounds is None else integer("rounds_per_person", rounds, at_least=1)
        if m > (_MOST_ROUNDS if self._prices_persons else 1):
            most = f"at most {_MOST_ROUNDS}" if self._prices_persons else f"1 for {type(self).__name__}"
            raise ValueError(f"rounds_per_person must be {most}, got rounds_per_person={rounds!r}")
        return m

    def _open_run(self, cost: Release, scope: str | None = None) -> None:
        """Charge the whole run, before any noise is drawn, and make the checkpoint."""
        checkpoint = self._new_checkpoint
        if checkpoint is not None:
            if checkpoint.exists():
                raise ValueError(
                    f"checkpoint must be a new file, got {checkpoint}, which exists: load it to go on with it"
                )
            self._run.keep_in(checkpoint)  # first: where there is no room for it, nothing is charged
        # of two runs that share a label, the second would find its later scopes charged already
        self._charge(cost, scope, unique=scope is not None)
        if checkpoint is not None:
            self._first_checkpoint(checkpoint)

    def _promise(self) -> str:
        budget, seeded = self.budget, ", SIMULATION" if randomness.is_simulation(self.rng) else ""
        return (
            f"{self.releases} releases, {self.trust} ({budget.epsilon:g}, "
            f"{budget.delta:g})-DP of one {self._protects}{seeded}"
        )

    def _charge(self, cost: Release, scope: str | None, *, unique: bool = False) -> None:
        """Record a cost under the run's label, or the scope's."""
        simulation = randomness.is_simulation(self.rng)
        unit = "person" if self._persons is not None else None
        self.ledger.spend(cost, label=scope or self.label, scope=scope, unit=unit, simulation=simulation, unique=unique)

    def _charge_once(self, cost: Release, scope: str) -> None:
        """Record the cost of a scope of this run, unless it was recorded before a crash."""
        if not any((row.label, row.scope, row.release) == (scope, scope, cost) for row in self.ledger.rows()):
            self._charge(cost, scope)

    # ------------------------------------------------------------------------------------------- releases

    @abstractmethod
    def _release(self) -> Public:
        """Close the open batch, draw noise, and return what is public from now on; ``releases`` counts it later."""

    def _due(self) -> bool:
        """Whether a release is to be made before the next decision."""
        return self.schedule.due(self.releases, self.decisions)

    def _settle(self, arms: Array) -> None:
        while self._due():
            self._run.begin()
            self._advance()
            self._keep()
            self._expose()
            self._run.end()

    def _publicly(self, change: Callable[[], None]) -> None:
        # like a release: durable before a decision depends on it
        self._run.begin()
        change()
        self._keep()
        self._run.end()

    def settle(self) -> None:
        """Make the releases that are due. ``select`` and ``register`` do so first; whoever asks for ``released`` may.

        Rewards that come later enter the next batch; in the shuffle model they are dropped.
        """
        self._check()
        with self._lock:
            self._check_open()
            self._settle(np.empty((0, self.dim)))

    def _advance(self) -> None:
        """Release; nobody sees it yet."""
        self._unseen = self._release()
        self.releases += 1

    def _keep(self) -> None:
        """Make durable what was released, before it is seen."""
        journal = self._journal
        # leave records behind that no state needs any more, as soon as they are the most
        if journal is not None and self.checkpoint is not None and journal.records > 2 * len(self._open):
            self._journal = Journal.fresh(self.checkpoint, self._run.id, self._open)
        elif journal is not None:
            journal.sync()
        self._run.commit(self._tree)
        if self._journal is not None:
            self._journal.only_this_one()

    def _expose(self) -> None:
        """Choose by what was released from now on."""
        if self._unseen is not None:
            self.public, self._unseen = self._unseen, None

    def _check(self) -> None:
        if self._run.process != Here.process:
            self._run.check_process()

    def _check_open(self) -> None:
        if self._run.stopped is not None:
            self._run.check()

    # ---------------------------------------------------------------------------------- learning, durably

    def _who(self, person: object) -> int:
        persons = self._persons
        if persons is None:
            return super()._who(person)
        if person is None:
            raise ValueError(
                "person must be given where the budget protects persons: select(arms, person=id), or a budget with "
                "unit='round', got person=None"
            )
        key = persons.key(person)
        if not persons.kind:
            kind = kind_of(person)
            if self._journal is not None:
                self._journal.named(kind)
            persons.kind = kind
        return key
