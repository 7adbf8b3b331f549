"""The one learner: it registers decisions and learns rewards in the order in which they came, and publishes releases.

Its state is the policy's own, a checkpoint with a journal and the ledger's marks; :mod:`dpbandits.serve.store` has the
argument why it may be killed at any instant. It never repairs anything itself: at an error it ends, and whoever starts
it again goes on from the checkpoint.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, suppress
from typing import Any

import numpy as np

from dpbandits.experiment.policy import ExperimentPolicy
from dpbandits.experiment.published import results_of
from dpbandits.policy.private import PrivatePolicy
from dpbandits.policy.released import Released
from dpbandits.policy.slates import SlatePolicy, shown_of
from dpbandits.serve.config import Config
from dpbandits.serve.contract import amend, terms_of
from dpbandits.serve.database import Mismatch, named
from dpbandits.serve.events import expire
from dpbandits.serve.lineage import Trail, trail_of
from dpbandits.serve.store import Choice, Event, LeaseLost, Store
from dpbandits.serve.trial import RESULTS

__all__ = ["AGAIN", "MOST", "PAUSE", "Learner", "RunClosed", "learn"]

log = logging.getLogger("dpbandits.serve")

# seconds that a lease holds without being prolonged, that a learner pauses where little has come, and before it tries
# again to lead
LEASE, PAUSE, AGAIN = 5.0, 0.05, 0.5
MOST = 200  # decisions of one pass, and twice as many rewards
MOST_ERASED = 2_000  # of one transaction
SKEW = 60.0  # seconds by which clocks may differ
_RESTORE = (
    ". Stop the service; `dpbandits serve doctor run.toml` says what is wrong, and `dpbandits serve restore` mends it"
)
_PARTS = 100  # of the owner's curve


class RunClosed(RuntimeError):
    """The run has made its last release, and its raw data are erased."""


class Learner:
    """The secret half at work; one at a time.

    Parameters
    ----------
    config : Config
    clock : callable, optional
        Seconds since 1970, in place of the database's: decides when a reward is late, and nothing of what is released.
    holder : str, optional
        A name for the lease, by which one process goes on where another one has ended; by default nobody's.
    lease : float
        Seconds that the lease holds without being prolonged; a fifth of it passes between two times.

    Attributes
    ----------
    policy : PrivatePolicy
    store : Store

    Raises
    ------
    LeaseLost
        If there is another learner.
    BlockingIOError
        If another process holds the checkpoint.
    Mismatch
        If the file, the checkpoint, the ledger and the database do not belong together, or one of them went back.
    """

    def __init__(
        self, config: Config, *, clock: Callable[[], float] | None = None, holder: str = "", lease: float = LEASE
    ) -> None:
        self._config, self._lease = config, lease
        self._name = holder or secrets.token_hex(16)
        self.store = Store(config.database, clock=clock)
        self._skewed = False
        try:
            self.closed = self.store.fact("closed")
            if self.closed is not None:
                raise RunClosed(str(self.closed["reason"]))
            if not self.store.lead(self._name, self.store.time(), lease):
                raise LeaseLost("another learner has the lease")
            self.policy: PrivatePolicy[Any] = config.open_policy()
            if self.store.fact("run") != self.policy.run.id:
                raise Mismatch(
                    f"storage.database must be of the checkpoint's run, got {named(config.database)} of another one: "
                    f"put the database back that belongs to {config.checkpoint}"
                )
            self._trail = self._opened_trail()
            self._follow([])
            with self.leading():
                amend(self.store, terms_of(config, self.policy), self.store.now)
            if config.wait is not None:
                self.store.order_by_time()
            self._experiment = self.policy if isinstance(self.policy, ExperimentPolicy) else None
            if config.together:
                self.policy.run.also = self._released_together
            # a release that a crash kept from being published; the decision after it may be registered already
            schedule = getattr(self.policy, "schedule", None)
            made = self.policy.decisions if schedule is None else self.policy.last_release()
            publish = self._publication(self.policy.released(), made)
            with self.leading():
                publish()
            self._forget_bit_by_bit(self.store.decided() if self._ended else made)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another one lead; also after an error."""
        try:
            with suppress(OSError):  # the lease runs out by itself
                self.store.resign(self._name)
        finally:
            self.store.close()
            if "policy" in vars(self):
                self.policy.run.release_hold()

    @property
    def _ended(self) -> str:
        """Of an experiment, why no decision counts any more; empty while it runs."""
        return "" if self._experiment is None else self._experiment.public.stopped

    def _opened_trail(self) -> Trail:
        path = trail_of(self._config.checkpoint)
        try:
            trail = Trail.read(path)
        except FileNotFoundError:
            raise Mismatch(f"{path} must be beside its checkpoint, and is missing: put it back{_RESTORE}") from None
        except ValueError as error:
            raise Mismatch(f"{error}: put it back{_RESTORE}") from None
        if trail.at(self.policy.decisions) is None:
            raise Mismatch(
                f"{path} must be as new as its checkpoint, which has {self.policy.decisions} decisions, got one that "
                f"knows of {trail.first} to {trail.first + len(trail.digests) - 1}{_RESTORE}"
            )
        return trail

    def _follow(self, decisions: Sequence[tuple[int, Choice, str]]) -> bool:
        """Go on from what was learned, if the database does; whether a worker waits for being told.

        Raises
        ------
        Mismatch
            If it went back, or has another history.
        """
        here, trail = self.policy.decisions, self._trail
        count, digest, incarnation, knocked = self.store.chain()
        told = [(number, str(choice.token), after) for number, choice, after in decisions]
        following = told or (self.store.next_link(here) if count > here else [])
        same = incarnation == trail.incarnation and count >= here and trail.follow(here, following)
        # decisions that were learned from once, and erased: then the learner's own state went back
        same = same and not (following and self.store.erased_after(here))
        if not same or (count == here and digest != trail.at(here)):
            log.error("the database has %d decisions, and the learner knows %d of another history", count, here)
            raise Mismatch(
                f"storage.database must go on from what was learned, {here} decisions, got "
                f"{named(self._config.database)} with {count} and another history: it (or the learner's "
                f"own disk) went back, as when a standby is promoted or a copy put back. Numbers were given twice, so "
                f"nothing is learned, and workers write nothing{_RESTORE}"
            )
        if decisions:
            trail.keep()
        return knocked

    def leading(self, connection: Any = None) -> AbstractContextManager[None]:
        """A write transaction, or a part of one of ``connection``, that prolongs the lease."""
        self._renewed = self.store.now if connection is not None else self.store.time()
        return self.store.leading(self._name, self._renewed, self._lease, connection)

    def settle(self) -> None:
        """Make the releases that are due, before the next decision asks for them."""
        step = self.policy.run.step
        self.policy.settle()
        if self.policy.run.step != step:
            self._published(self.policy.decisions)

    def renew(self) -> None:
        """Begin a new journal, of the decisions that are open, and erase the others' records with the old one."""
        self.policy.durable.renew()
        self.policy.publicly(lambda: None)
        self._published(self.policy.decisions)

    def gauges(self) -> dict[str, float]:
        """For monitoring: where the run is, and when it last looked."""
        policy = self.policy
        known = {"leads": 1, "rounds": policy.decisions, "releases": policy.releases, "heartbeat": time.time()}
        known["open_rounds"] = len(policy.open_decisions)
        return known if policy.horizon is None else {**known, "rounds_left": policy.horizon - policy.decisions}

    def step(self) -> int:
        """Take in what has come, and return how many decisions and rewards.

        Raises
        ------
        LeaseLost
            If another learner has taken over.
        """
        config, now = self._config, self.store.time()
        if not self._renewed <= now < self._renewed + self._lease / 5:
            self._follow([])
            point = self._trail.mark(self.policy.decisions)
            with self.leading():
                self.store.note("learned", point)
                if config.wait is not None and self._clocks_agree():
                    self.store.default(now - config.wait, config.default, MOST)
                    expire(self.store.database, now - config.wait, MOST)
        horizon = self.policy.horizon
        room = MOST if horizon is None else min(MOST, horizon - self.policy.decisions)
        experiment, end = self._experiment, self._end(now)
        if end is not None:
            room = max(0, min(room, end["after"] - self.policy.decisions))
        # in this order: a reward that is read has all decisions before it in the table, and waits for them
        decisions = self.store.decisions(self.policy.decisions, room)
        events = self.store.rewards(2 * MOST)
        if self._follow(decisions):
            with self.leading():
                self.store.confirm()
        waiting, taken = deque(events), list[Event]()
        with self.policy.together():  # in the journal, and on disk at the end; until then in the database
            for following in [*decisions, None]:
                while waiting and (waiting[0].after <= self.policy.decisions or self._ended):
                    taken.append(waiting.popleft())
                    # they were checked when they came: one that is refused was learned before a crash, or has expired
                    with suppress(ValueError):
                        self.policy.update(taken[-1].decision - 1, self._told(taken[-1]))
                if following is not None and not self._ended:
                    self._register(*following[:2])
        if experiment and end and not self._ended and not events and self.policy.decisions == end["after"]:
            experiment.end(end["reason"])
            self._published(self.policy.decisions)
        if taken:
            part = max(1, (horizon or 100_000) // _PARTS) if config.curves else None
            with self.leading():
                self.store.taken(taken, part)
        return len(decisions) + len(taken)

    def _told(self, event: Event) -> Any:
        """What the policy learns of a reward; the default of a slate is that of every position that was shown."""
        if event.positions is not None:
            return event.by_position
        if not isinstance(self.policy, SlatePolicy):
            return event.reward
        pending = self.policy.waiting.get(event.decision - 1)
        return None if pending is None else [event.reward] * shown_of(pending)

    def _clocks_agree(self) -> bool:
        """Whether nobody's clock is so wrong that rounds would be given up that are not."""
        agree = abs(self.store.skew) <= SKEW
        if not agree and not self._skewed:
            log.warning(
                "the database's clock and this machine's differ by %.0f s: no missing reward counts as the default "
                "until they agree to %.0f s; set the clocks right",
                abs(self.store.skew),
                SKEW,
            )
        self._skewed = not agree
        return agree

    def _end(self, now: float) -> dict[str, Any] | None:
        """Of an experiment, after which decision it ends, once that is settled."""
        if self._experiment is None:
            return None
        end: dict[str, Any] | None = self.store.fact("ended")
        reason = self._ended or self._experiment.overdue(now)
        if end is None and reason:
            with self.leading():
                end = self.store.end(reason, self.policy.decisions if self._ended else None)
        return end

    def _register(self, number: int, choice: Choice) -> None:
        policy = self.policy
        before = policy.decisions
        if number != before + 1:
            raise ValueError(f"the next decision must have number {before + 1}, got {number}: is this its database?")
        step = policy.run.step
        if self._experiment is not None:
            self._experiment.settle()
        if self._ended:
            pass  # a release that was due has ended it: this decision does not count
        elif policy.takes == "context":
            policy.register(choice.arm, choice.chosen, choice.person, probability=choice.probability)
        elif isinstance(policy, SlatePolicy):  # what is kept are the arms that were shown, in their order
            shown = choice.arm.reshape(-1, policy.dim)
            policy.register(shown, range(len(shown)), choice.person)
        else:  # only the chosen arm is kept, as the only one
            policy.register(choice.arm[None], 0, choice.person, probability=choice.probability)
        if policy.run.step != step:
            self._published(before)

    def _published(self, decisions: int) -> None:
        """After a release was made: let workers know it, and erase what it covers."""
        if not self._config.together:
            publish = self._publication(self.policy.released(), decisions)
            with self.leading():
                publish()
        self._forget_bit_by_bit(self.store.decided() if self._ended else decisions)
        self.store.database.clear()

    def _released_together(self, number: int) -> Callable[[Any], None]:
        """What is written in the transaction of the ledger's mark: the release."""
        with self.policy.upcoming() as released:
            publish = self._publication(released, self.policy.decisions)

        def write(connection: Any) -> None:
            with self.leading(connection):
                publish()

        return write

    def _forget_bit_by_bit(self, decisions: int) -> None:
        """Erase what a release covers, with room for workers in between. A start goes on with what a crash left."""
        # nobody waits for rewards of older ones any more
        expire = self.policy.expire_after
        expired = 0 if expire is None else self.policy.decisions - expire
        more = True
        while more:
            begun = time.monotonic()
            with self.leading():
                more = self.store.forget(decisions, expired, MOST_ERASED)
            if more:
                time.sleep(time.monotonic() - begun)

    def _publication(self, released: Released, decisions: int) -> Callable[[], None]:
        """What publishes a release in a write transaction, for which workers wait: what takes long is done before."""
        policy = self.policy
        # what would be chosen among public arms: no one's data are in it
        shares = [released.probabilities(one).tolist() for one in self._config.reference]
        shown = json.dumps(_shown(policy) | {"shares": shares}, allow_nan=False)
        report = policy.privacy(policy.budget.delta)
        text, now = released.to_json(), self.store.now
        ledger = policy.ledger
        facts = {
            "budget": {"epsilon": policy.budget.epsilon, "delta": policy.budget.delta},
            "spent": {"epsilon": report.epsilon, "delta": report.delta},
            **{name: getattr(report, name) for name in ("left", "unit", "adjacency", "trust", "simulation")},
            "horizon": policy.horizon,
            "policy": type(policy).__name__,
            "statement": str(report),
            "ledger": {"head": ledger.head, "entries": ledger.entries},
        }
        told = self._config.label, released.number, ledger.entries, ledger.head
        log.info("%s: release %d: the ledger has %d entries, head %s", *told)
        results = None if self._experiment is None else results_of(self._experiment).to_dict()
        ended, after = self._ended, policy.decisions

        def publish() -> None:
            self.store.publish(released.number, now, decisions, text, shown)
            self.store.note("privacy", facts)
            if results is not None:
                self.store.note(RESULTS, results)
            if ended:
                self.store.end(ended, after)

        return publish


def _shown(policy: PrivatePolicy[Any]) -> dict[str, Any]:
    """θ and its standard errors, where the public half has them as vectors."""
    public = policy.public
    theta, covariance = getattr(public, "theta", None), getattr(public, "covariance", None)
    if not (isinstance(theta, np.ndarray) and theta.ndim == 1 and np.isfinite(theta).all()):
        return {"theta": None, "errors": None}
    errors = None
    if isinstance(covariance, np.ndarray) and covariance.shape == (len(theta), len(theta)):
        squares = np.diag(covariance)
        errors = np.sqrt(np.maximum(squares, 0.0)).tolist() if np.isfinite(squares).all() else None
    return {"theta": theta.tolist(), "errors": errors}


def learn(config: Config, stop: threading.Event, gauges: dict[str, float] | None = None) -> None:
    """Be the learner, as soon as nobody else is, until ``stop``; ``gauges`` is kept up to date, for monitoring."""
    told = {} if gauges is None else gauges
    away = False
    while not stop.is_set():
        try:
            with closing(Learner(config)) as learner:
                while not stop.is_set():
                    few = learner.step() < MOST  # else there is more; many at once cost one commit
                    away = False
                    told.update(learner.gauges())
                    if few:
                        stop.wait(PAUSE)
        except RunClosed as error:
            told["leads"] = 0
            log.warning("the run is closed (%s): nothing more is learned", error)
            stop.wait()
        except (LeaseLost, BlockingIOError):  # another one leads, or holds the checkpoint
            told["leads"] = 0
            stop.wait(AGAIN)
        except OSError as error:
            # whatever was being done, the next one goes on from the checkpoint
            if not away:
                log.warning("the learner waits: the database or the disk cannot be used (%s)", type(error).__name__)
            away = True
            told["leads"] = 0
            stop.wait(AGAIN)
