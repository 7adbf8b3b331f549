"""What every private policy has in common: one run of releases, made of parts, whose state survives a crash.

A private policy has two halves. ``public`` is what it has released, and what follows from that: choices depend on
nothing else, arms and draws aside. The attributes named in ``secret`` are the open batch, the state of the noise and
rows that will be used again. A policy is record × sums × rule × trust, and a pure refit
(:mod:`dpbandits.policy.parts` says what each is):

* ``record(pending, reward, public)``: what one round tells, at the public half that is in force;
* ``sums``: noisy running sums of records, from :mod:`dpkit.moments`, which know what they cost;
* ``rule(public, arms, since)``: how arms are chosen from the public half;
* ``refit(public, released, ends)``: the next public half, from what the sums have released;
* ``trust``: whom persons trust, and with it which decisions count, in which batch (:mod:`dpbandits.policy.trust`).

``score``, ``learn`` and ``close_batch`` are written here in terms of them. A policy that does not fit writes its own.

Where the budget's unit is a person, ``select`` is told who comes, and a record is learned only if its person has taught
fewer than m = ``rounds_per_person`` records before, and none in the open batch; all others are dropped. That is decided
here, once for all policies (``teach``): a policy only says what m records in m batches cost. Everyone is served every
time. What a person does not teach needs no budget: it is that person's own data that decide which records are dropped.

``select`` first makes the releases that are due. Each is one transaction (:class:`dpkit.states.Run`): a policy that was
stopped in the middle of one refuses to go on, the ledger's marks tell the newest state from all others, and nothing is
seen of a release before it is durable.

With a checkpoint no acknowledged reward is lost in a crash: decisions and rewards since the last release stand in a
journal beside the checkpoint, written through to the disk before ``update`` returns; loading replays it. Journal and
checkpoint hold raw data, and are as confidential as it.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, Unpack

import numpy as np

from accounting import AdjacencyMismatch, Budget, Release
from accounting.arrays import Array
from accounting.checks import integer, ledger_or_none
from dpbandits.durability import state
from dpbandits.durability.checkpoint import Checkpoint, replay
from dpbandits.durability.pending import Pending, Together
from dpbandits.policy import progress, released, together
from dpbandits.policy.checks import checked_budget, checked_reward, checked_rounds, finite_rewards
from dpbandits.policy.choices import Law
from dpbandits.policy.learned_range import LearnedRange, units_of
from dpbandits.policy.many import Each, Laws, Rounds
from dpbandits.policy.options import CommonOptions, PrivateOptions, RewardRange
from dpbandits.policy.parts import Record, Refit, Rule, Terms
from dpbandits.policy.progress import Found, Progress
from dpbandits.policy.protocol import Policy
from dpbandits.policy.released import Released
from dpbandits.policy.schedule import Schedule
from dpbandits.policy.trust import AsRewarded, counting_of
from dpkit import randomness
from dpkit.states import Run, Unrepeatable, files
from dpkit.states.entries import conform, kept, plain, resume, short
from dpkit.states.registry import Registry, kind_of
from dpkit.states.run import Here

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["PrivateOptions", "PrivatePolicy", "Schedule", "checked_budget", "finite_rewards"]

Public = TypeVar("Public")

# it stands in ledgers and in messages
_LONGEST_LABEL = 1000


class PrivatePolicy(Policy, Generic[Public]):
    """Base of the private policies; the algorithm is in ``record``, ``sums``, ``rule`` and ``refit``.

    A constructor sets ``schedule``, the parts, the first ``public`` half and the attributes of ``secret`` (by default
    the sums), and ends with ``self.open_run(cost)``, which charges the ledger.

    Joint privacy is what all rounds but the protected one see. It takes for granted that their arms and rewards do not
    react to the protected round's own action: arms may be chosen with everything that was published and every other
    action in view, but an item that this round took out of stock, or the same user's next visit, is not covered
    (``docs/privacy-proofs.md``, F1).

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    rewards : (float, float)
        What ``reward_range`` is if it is not given.
    budget : Budget
        What the whole run may cost, for one round replaced (or zeroed out), or all that one person does in it
        (``unit="person"``); δ > 0, but for ``PrivateArms``, ``LDPArms``, ``DPSE`` and ``AdaPUCB``, also in epochs.
    horizon : int, optional
        T, the number of rounds that the policy will take part in.
    reward_range : (float, float) or "learned", optional
        Outside of it rewards are refused or clipped. "learned": the first rounds, a few hundred, tell where it ends,
        and what is beyond is clipped (:mod:`dpbandits.policy.learned_range`). A ``base_rate`` is one of rewards as they
        are then: in the range of the link, or [0, 1].
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
        ``base_rate``, ``on_violation``, ``expire_after``, ``decision_log``, ``rng``: see :class:`dpbandits.Policy`.

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

    Examples
    --------
    >>> from dpbandits.policies import OnePassPrivateGLM
    >>> issubclass(OnePassPrivateGLM, PrivatePolicy)  # examples/extend/policy.py is one of your own
    True
    """

    # the attributes of the secret half: parts that keep and resume themselves, arrays, and numbers
    secret: ClassVar[tuple[str, ...]] = ("sums",)
    # the fields of the public half that choices depend on; where neither this nor ``rule.reads`` names any, all of them
    choices_read: ClassVar[tuple[str, ...]] = ()
    # attributes besides ``public`` that are public, are no parameters, and change
    public_parts: ClassVar[tuple[str, ...]] = ()
    # fields of the public half that states of earlier versions lack: they go on with those of the start
    newer: ClassVar[tuple[str, ...]] = ()
    # whether the cost that a constructor states holds for m > 1 records of one person, too
    prices_persons: ClassVar[bool] = False
    # whether it prices all rounds of a person by a total of its own, with no cap on what it learns of each
    prices_totals: ClassVar[bool] = False
    # whether its noise can meet a budget with δ = 0
    takes_pure: ClassVar[bool] = False
    # whether it can learn the range of rewards, as those of one Gaussian or Laplace mechanism can that use ``clock``
    learns_range: ClassVar[bool] = False
    kept_as: ClassVar[Mapping[str, str]] = {"reward_range": "stated_range", "base_rate": "rate_to_keep"}

    schedule: Schedule
    public: Public
    ledger: Ledger
    run: Run

    record: Record[Public]
    sums: Any  # a NoisySums; a policy whose own code asks more of them says which
    rule: Rule[Public]
    refit: Refit[Public]

    __reduce_ex__ = Unrepeatable.__reduce_ex__

    def __init__(
        self,
        dim: int,
        rewards: tuple[float, float],
        *,
        budget: Budget,
        horizon: int | None,
        reward_range: RewardRange | None = None,
        ledger: Ledger | None = None,
        label: str | None = None,
        checkpoint: str | Path | None = None,
        rounds_per_person: int | None = None,
        **options: Unpack[CommonOptions],
    ) -> None:
        self.stated = reward_range
        stated = units_of(type(self), reward_range, rewards) if isinstance(reward_range, str) else reward_range
        super().__init__(dim, rewards, reward_range=stated, horizon=horizon, **options)
        # where the range of rewards is learned; ``reward_range`` is what the policy works in then
        self.scale: LearnedRange | None = None
        self.budget = checked_budget(budget, pure=self.takes_pure)
        self.rounds_per_person = checked_rounds(type(self), self.budget, rounds_per_person)
        self.persons: Registry | None = None
        if self.rounds_per_person is not None:
            self.persons = Registry(self.rounds_per_person)
        if self.prices_totals:
            self.rounds_per_person = None  # there is no cap
        if self.persons is not None:
            self.protects = "person"
        self.label = label or f"{type(self).__name__} {secrets.token_hex(4)}"
        if not isinstance(self.label, str) or len(self.label) > _LONGEST_LABEL:
            raise ValueError(f"label must be a text of at most {_LONGEST_LABEL} characters, got {short(label)}")
        if ledger is None:
            from accounting import Ledger

            self.ledger = Ledger(budget)
        else:
            self.ledger = ledger_or_none(ledger)
        counted = budget if self.ledger.budget is None else self.ledger.budget
        if (counted.unit == "person") != (budget.unit == "person"):
            raise AdjacencyMismatch(
                f"ledger must count what the budget counts, one {budget.unit}, got one that counts one {counted.unit}"
            )
        self.releases = 0
        simulation = randomness.is_simulation(self.rng)
        self.run = Run(self.label, ledger=ledger, simulation=simulation)
        self.lock = self.run.lock
        self.durable = Checkpoint(self.run)
        self.counting: AsRewarded = counting_of(self.trust, totals=self.prices_totals)
        self.drops_arms = self.counting.as_decided
        self.unseen: Public | None = None  # released, and not yet durable
        self._told: set[str] = set()  # of what has been warned
        self._new_checkpoint = None if checkpoint is None else Path(checkpoint).absolute()

    @property
    def stated_range(self) -> RewardRange:
        """What the constructor was told, for a state."""
        return "learned" if self.stated == "learned" else self.reward_range

    @property
    def rate_to_keep(self) -> float | None:
        """The base rate, for a state: as it was stated where a level is released, which is to be learned again."""
        return self.stated_base_rate if hasattr(self.public, "level") else self.base_rate

    @property
    def learned_range(self) -> tuple[float, float] | None:
        """The range of rewards that was learned; None before it is known, and where it was stated."""
        return None if self.scale is None else self.scale.found

    @property
    def clock(self) -> int:
        """How many decisions the algorithm knows of: those since the range of rewards is known."""
        return self.decisions if self.scale is None else self.scale.clock(self.decisions)

    @property
    def theta(self) -> Array:
        """θ as released, where there is one."""
        return self.public.theta  # type: ignore[attr-defined, no-any-return]

    @property
    def level(self) -> float:
        """The released level on the link's scale, where there is one: E[r | x] = μ(μ⁻¹(base_rate) + level + xᵀθ)."""
        return self.public.level  # type: ignore[attr-defined, no-any-return]

    def in_rewards(self, value: float) -> float:
        """A number in the units of ``reward_range``, in those of rewards; NaN before their range is known."""
        return value if self.scale is None else self.scale.original(value)

    def terms(self) -> Terms:
        """What running sums are told of the run."""
        horizon = integer("horizon", self.horizon, at_least=1)
        return {"budget": self.budget, "releases": len(self.schedule.ends), "horizon": horizon, "rng": self.rng}

    def open_run(self, cost: Release, scope: str | None = None, *, delay: int = 0) -> None:
        """Charge the whole run, before any noise is drawn, and make the checkpoint.

        ``delay`` is by how many rounds all rewards are known to come late.
        """
        if self.stated == "learned":
            horizon = integer("horizon", self.horizon, at_least=1)
            self.scale = LearnedRange(
                cost, horizon, self.reward_range, persons=self.persons is not None, delay=delay, rng=self.rng
            )
        checkpoint = self._new_checkpoint
        if checkpoint is not None:
            if checkpoint.exists():
                raise ValueError(
                    f"checkpoint must be a new file, got {checkpoint}, which exists: load it to go on with it"
                )
            self.run.keep_in(checkpoint)  # first: where there is no room for it, nothing is charged
        # of two runs that share a label, the second would find its later scopes charged already
        self.charge(cost, scope, unique=scope is not None)
        if checkpoint is not None:
            self.durable.open(checkpoint, lambda: state.tree_of(self), self.waiting)

    def promise(self) -> str:
        budget, seeded = self.budget, ", SIMULATION" if randomness.is_simulation(self.rng) else ""
        return (
            f"{self.releases} releases, {self.trust} ({budget.epsilon:g}, "
            f"{budget.delta:g})-DP of one {self.protects}{seeded}"
        )

    def charge(self, cost: Release, scope: str | None, *, unique: bool = False) -> None:
        """Record a cost under the run's label, or the scope's."""
        simulation = randomness.is_simulation(self.rng)
        unit = "person" if self.persons is not None else None
        self.ledger.spend(cost, label=scope or self.label, scope=scope, unit=unit, simulation=simulation, unique=unique)

    @property
    def checkpoint(self) -> Path | None:
        """Where the state is saved at every release."""
        return self.run.checkpoint

    # --------------------------------------------------------------------------------- the algorithm, by its parts

    def score(self, arms: Array) -> Array | Law:
        return self.rule(self.public, arms, self.schedule.start(self.releases))

    def score_many(self, rounds: Rounds) -> Laws:
        many = None if "score" in self.own else getattr(self.rule, "many", None)
        return many(self.public, rounds, self.schedule.start(self.releases)) if many else super().score_many(rounds)

    def steady(self) -> int:
        return super().steady() if {"score", "due", "prepare"} & self.own else together.until_scheduled(self)

    def learn(self, pending: Pending, reward: float) -> None:
        self.sums.add(*self.record(pending, reward, self.public))

    def learn_many(self, made: Together, rewards: Sequence[float]) -> None:
        """As ``learn`` does one after the other: at once, if records and sums can."""
        record: Any = getattr(self, "record", None)
        if hasattr(record, "many") and hasattr(self.sums, "add_many"):
            self.sums.add_many(*record.many(made, np.array(rewards), self.public))
        else:
            super().learn_many(made, rewards)

    def close_batch(self) -> Public:
        """Close the open batch, draw noise, and return what is public from now on; ``releases`` counts it later."""
        return self.refit(self.public, self.sums.release(), self.schedule.ends[: self.releases + 1])

    # ------------------------------------------------------------------------------------------- releases

    def last_release(self) -> int:
        """After how many decisions the last release was due; 0 before the first."""
        return self.decisions_at(self.schedule.start(self.releases))

    def decisions_at(self, clock: int) -> int:
        """How many decisions had been made when the clock showed this, with those that told the range of rewards."""
        return clock if self.learned_range is None or self.scale is None else clock + self.scale.rounds

    def due(self) -> bool:
        """Whether a release is to be made before the next decision."""
        return self.schedule.due(self.releases, self.clock)

    def prepare(self, arms: Array) -> None:
        """Make the releases that are due."""
        before, scale = self.releases, self.scale
        if scale is not None and scale.due(self.decisions):
            self.run.begin()
            scale.release()
            self.keep()
            scale.expose()
            self.run.end()
            scale.warn()
        while self.due():
            self.run.begin()
            self.advance()
            self.keep()
            self.expose()
            self.run.end()
        if self.releases > before:
            self.counting.tell(self)
            progress.look(self, self._told)

    def publicly(self, change: Callable[[], None]) -> None:
        # like a release: durable before a decision depends on it
        self.run.begin()
        change()
        self.keep()
        self.run.end()

    def settle(self) -> None:
        """Make the releases that are due. ``select`` and ``register`` do so first; whoever asks for ``released`` may.

        Rewards that come later enter the next batch; in the shuffle model they are dropped.
        """
        self.check_process()
        with self.lock:
            self.check_open()
            self.prepare(np.empty((0, self.dim)))

    def advance(self) -> None:
        """Release; nobody sees it yet."""
        self.unseen = self.close_batch()
        self.releases += 1

    def keep(self) -> None:
        """Make durable what was released, before it is seen."""
        self.durable.keep(lambda: state.tree_of(self), self.waiting)

    def expose(self) -> None:
        """Choose by what was released from now on."""
        if self.unseen is not None:
            self.public, self.unseen = self.unseen, None
        self.counting.released(self)

    def check_process(self) -> None:
        if self.run.process != Here.process:
            self.run.check_process()

    def check_open(self) -> None:
        if self.run.stopped is not None:
            self.run.check()

    def found(self) -> Found:
        """What was found so far, for :meth:`progress`: by default the length of θ, where there is one."""
        theta = getattr(self.chooser().public, "theta", None)
        length = float(np.linalg.norm(theta, axis=-1).max()) if isinstance(theta, np.ndarray) else None
        why = f"{type(self.chooser()).__name__} does not keep it"
        return Found(length=length, missing=dict.fromkeys(("signal", "theta_length", "predicted", "seen"), why))

    def progress(self) -> Progress:
        """How far the run has come, from what was released: signal over noise, levels, lengths; costs nothing."""
        self.check_process()
        with self.lock:
            return progress.of(self)

    def released(self) -> Released:
        """What is public: a value that makes the same choices, anywhere."""
        self.check_process()
        with self.lock:
            self.check_open()
            return released.value_of(self)

    @contextmanager
    def upcoming(self) -> Iterator[Released]:
        """In the middle of a release, what :meth:`released` will be; for whoever makes it durable, and nobody else."""
        changed = [(one, one.public) for one in {self, self.chooser()} if one.unseen is not None]
        try:
            for one, _ in changed:
                one.public = one.unseen
            yield released.value_of(self)
        finally:
            for one, public in changed:
                one.public = public

    def number(self) -> int:
        return self.run.step

    def chooser(self) -> PrivatePolicy[Any]:
        """The policy by whose public half choices are made."""
        return self

    def score_elsewhere(self, arms: Array) -> Array | Law:
        """The choice where only ``released`` is known: as by ``score``, if that does not ask whose turn it is."""
        return self.score(arms)

    def score_many_elsewhere(self, rounds: Rounds) -> Laws:
        """The same for many requests."""
        own = "score_elsewhere" in self.own
        return Each([self.score_elsewhere(arms) for arms in rounds]) if own else self.score_many(rounds)

    def with_room(self, public: Public) -> Public:
        """``public``, in the shape that other public parts ask for."""
        return public

    def grow(self) -> None:
        self.sums.grow()
        self.public = self.with_room(self.public)

    def who(self, person: object) -> int:
        persons = self.persons
        if persons is None:
            return super().who(person)
        if person is None:
            raise ValueError(
                "person must be given where the budget protects persons: select(arms, person=id), in an "
                "experiment assign(person=id), or a budget with unit='round', got person=None"
            )
        key = persons.key(person)
        if not persons.kind:
            kind = kind_of(person)
            self.run.stop("was interrupted while it decided")
            self.durable.add(kind)
            persons.kind = kind
            self.run.end()
        return key

    def make(self, pending: Pending) -> None:
        # what was written and not made would stand in the journal; and a class's own books may count it in two steps
        if self.durable.journal is not None or "admit" in self.own:
            self.run.stop("was interrupted while it decided")
        super().make(pending)
        self.run.end()

    def written(self, pending: Pending) -> Pending:
        if self.scale is not None and self.drops_arms and self.scale.idle(pending):
            pending = replace(pending, arm=np.empty(0))
        else:
            pending = self.counting.admitted(self, pending)
        self.durable.add(pending)
        return pending

    def counted(self, pending: Pending) -> None:
        self.counting.counted(self, pending)
        if self.scale is None:
            super().counted(pending)
        elif not self.scale.first(pending):
            super().counted(self.scale.later(pending))

    def admit_many(self, made: Together) -> None:
        together.admit(self, made)

    def checked_reward(self, reward: float) -> float:
        if self.stated == "learned":
            return checked_reward(reward, -math.inf, math.inf, clip=False)
        return super().checked_reward(reward)

    def take_in(self, key: int, pending: Pending, reward: float) -> None:
        # a record that was half learned must not be learned again, nor one in the journal take another reward
        self.run.stop("was interrupted while it learned")
        self.durable.add((key, reward))
        del self.waiting[key]
        self.teach(pending, reward)
        self.run.end()

    def take_in_many(self, keys: Sequence[int], made: Together, rewards: Sequence[float | None]) -> None:
        together.take_in(self, keys, made, rewards)

    def together(self) -> AbstractContextManager[None]:
        return self.durable.together()

    def teach(self, pending: Pending, reward: float) -> None:
        """Learn, where the record is to enter a batch and its person may teach once more."""
        if self.scale is not None:
            if self.scale.takes(pending, reward):
                return
            pending, reward = self.scale.later(pending), self.scale.scaled(reward)
        if self.counting.teaches(self, pending):
            self.learn(pending, reward)

    def give_up(self, key: int) -> None:
        self.run.stop("was interrupted while it forgot")
        self.durable.add(key)
        super().give_up(key)
        self.run.end()

    def kept(self) -> dict[str, Any]:
        public = self.public if self.unseen is None else self.unseen
        return state.with_names(self, {"public": plain(public), **kept(self, self.secret)})

    def resume(self, saved: Any) -> None:
        found = state.renamed(state.without_names(self, saved), self.secret)
        resume(self, ("public", *self.secret), state.with_newer(self, found))

    def books(self) -> dict[str, Any]:
        persons = {} if self.persons is None else {"persons": self.persons.kept()}
        scale = {} if self.scale is None else {"scale": self.scale.kept()}
        return {"releases": self.releases, **persons, **scale, **self.durable.place()}

    def save(self, path: str | Path) -> None:
        """Write the whole state to a file that only its owner can read; not to the checkpoint, which keeps itself.

        The file holds unreleased sums and open decisions: it is as confidential as the data. It replaces an older one
        atomically. Of a secure generator nothing is written, so noise is never drawn twice.
        """
        if self.checkpoint is not None and Path(path).resolve() == self.checkpoint.resolve():
            raise ValueError(f"path must not be the checkpoint, which is kept at every release, got path={str(path)!r}")
        super().save(path)

    def resume_books(self, tree: Mapping[str, Any], loader: state.Loader) -> None:
        self.releases = conform("releases", tree["releases"], 0)
        self.check_releases()
        if self.persons is not None:
            self.persons.resume(tree["persons"], batch=self.counting.batch(self))
        if self.scale is not None:
            self.scale.resume(tree["scale"])
            if self.learned_range is None and self.decisions > self.scale.rounds:
                raise ValueError(f"the range must be known after {self.decisions} decisions, got a state without it")
        if loader.ledger is not None:
            self.ledger = state.charged(self.ledger, loader.ledger)
        self.run.resume(tree["run"], ledger=loader.ledger, unattended=loader.unattended, digest=loader.digest)
        if loader.hold is not None:
            journal = self.durable.reopen(loader.path, loader.hold, tree["journal"])
            replay(self, journal)
            journal.only_this_one()
            for draft in files.drafts(loader.path):  # never marked, so that nobody saw what is in them
                draft.unlink()
            return
        super().resume_books(tree, loader)
        if loader.checkpoint is not None:
            path = Path(loader.checkpoint)
            self.run.keep_in(path)
            self.durable.open(path, lambda: state.tree_of(self), self.waiting)

    def most_releases(self) -> int:
        """How many releases are scheduled."""
        return len(self.schedule.ends)

    def check_releases(self) -> None:
        """Refuse a state with more releases than are scheduled."""
        if self.releases > (most := self.most_releases()):
            raise ValueError(f"releases must be at most {most}, got releases={self.releases}")
