"""One policy on one seed: what every process of a simulation does."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from accounting.checks import integer
from dpbandits.durability.state import config_of
from dpbandits.lab.environments.base import Environment, Round
from dpbandits.lab.environments.slates import outcome
from dpbandits.lab.simulation.runs import Run
from dpbandits.policy.decision import PrivacyReport
from dpbandits.policy.offers import NOTHING
from dpbandits.policy.protocol import Decision, Policy

__all__ = ["Game", "Played", "PolicyFactory", "Task", "Tick", "generator", "parameters"]

# of a generator; and, where it has the attribute ``public_arms``, of the arms of the first round
PolicyFactory = Callable[..., Policy]
# a policy's name and a seed
Task = tuple[str, int]
# told how many more rounds are done
Tick = Callable[[int], None]
# a run and its policy's parameters
Played = tuple[Run, dict[str, str]]
# policies that have played in this process, by identity
_USED: WeakValueDictionary[int, Policy] = WeakValueDictionary()


@dataclass(frozen=True)
class Game:
    """What the runs of a simulation share: policies, environment, and the rounds after which sums are noted."""

    policies: Mapping[str, PolicyFactory]
    environment: Environment
    grid: NDArray[np.int64]

    def play(self, name: str, seed: int, tick: Tick) -> Played:
        """Play ``grid[-1]`` rounds and note the sums after those of ``grid``."""
        try:
            environment, grid = self.environment, self.grid
            policy = self.policy(name, seed)
            if _USED.get(id(policy)) is policy:  # what it learned on other luck would count in this run
                raise ValueError(
                    f"policies[{name!r}] must make a new policy in every call, got one that has played: make it inside "
                    "the function"
                )
            _USED[id(policy)] = policy
            known = parameters(policy)
            episode = environment.episode(generator(seed))
            reward = regret = seconds = 0.0
            played = missing = 0
            # rewards on their way, by the number of rounds after which they are told
            waiting: dict[int, list[tuple[Decision, Any]]] = {}
            noted = np.empty((3, len(grid)))
            for i, end in enumerate(grid.tolist()):
                for now in islice(episode, end - played):
                    _check_round(now)
                    offered = _offered(policy, now)
                    started = perf_counter()
                    decision = policy.select(offered, person=now.person)
                    seconds += perf_counter() - started
                    gain, loss, told = outcome(now, decision)
                    reward, regret = reward + gain, regret + loss
                    played += 1
                    if now.delay is None:
                        policy.forget(decision)
                        missing += 1
                    else:
                        due = played + (now.delay and integer("delay", now.delay, at_least=0))
                        waiting.setdefault(due, []).append((decision, told))
                    if played in waiting:
                        due_now = waiting.pop(played)
                        started = perf_counter()
                        for earlier, value in due_now:
                            policy.update(earlier, value)
                        seconds += perf_counter() - started
                if played < end:
                    raise ValueError(f"{environment.name} must have at least {grid[-1]} rounds, got {played}")
                noted[:, i] = reward, regret, seconds
                tick(end - (int(grid[i - 1]) if i else 0))
            untold = missing + sum(map(len, waiting.values()))
            curves = noted[0], noted[1], noted[2]
            # an algorithm as published has no privacy
            private = policy.privacy() if hasattr(policy, "privacy") else PrivacyReport.of(policy, None)
            return Run(name, type(policy).__name__, seed, grid, *curves, private, untold), known
        except Exception as error:
            error.add_note(f"in the run of policy {name!r} on seed {seed}")
            raise

    def policy(self, name: str, seed: int) -> Policy:
        """The policy of a run."""
        make = self.policies[name]
        if getattr(make, "public_arms", False):
            first, *more = self._two(seed)
            for now in more:
                if now.arms is not first.arms and not _rows(now.arms) <= _rows(first.arms):
                    raise self._changing("is told them, such as StandingPrivateGLM")
            return make(generator(seed, name), first.arms)
        policy = make(generator(seed, name))
        if policy.offer is NOTHING:
            first, *more = self._two(seed)
            # where there are contexts, rows are the same arms in every round
            changed = (now.context is None and not np.array_equal(now.arms, first.arms) for now in more)
            if any(changed):
                raise self._changing("knows their names only, such as PrivateArms")
            if (known := policy.count(first.arms)) != (there := len(first.arms)):
                raise ValueError(f"policies[{name!r}] must have the {there} arms of the environment, got {known}")
        return policy

    def _two(self, seed: int) -> list[Round]:
        """The first rounds of a run."""
        return list(islice(self.environment.episode(generator(seed)), 2))

    def _changing(self, what: str) -> ValueError:
        return ValueError(
            f"environment must have fixed arms for a policy that {what}, got {self.environment.name}, whose arms "
            "change: take OnePassPrivateGLM"
        )


def _check_round(now: Round) -> None:
    arms = (len(now.arms),)
    if np.shape(now.rewards) != arms or (now.means is not None and np.shape(now.means) != arms):
        wrong = "rewards" if np.shape(now.rewards) != arms else "means"
        raise ValueError(
            f"{wrong} of a round must have shape {arms}, a number for each of its arms, got shape "
            f"{np.shape(getattr(now, wrong))}"
        )


def _rows(arms: Array) -> set[tuple[float, ...]]:
    return set(map(tuple, arms.tolist()))


def _offered(policy: Policy, now: Round) -> Array | None:
    if policy.takes == "arms":
        return now.arms
    if now.context is None and policy.offer is not NOTHING:
        raise ValueError(f"environment must have contexts for a {type(policy).__name__}, got rounds without")
    return now.context


def generator(seed: int, name: str | None = None) -> np.random.Generator:
    """The environment's generator of a seed, or a policy's: keyed by seed and name, so that order does not matter."""
    key = (0,) if name is None else (1, *hashlib.sha256(name.encode()).digest())
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def parameters(policy: Policy) -> dict[str, str]:
    """The policy's class and parameters as text, as far as it keeps them under their names."""
    try:
        config = config_of(policy)
    except AttributeError:
        config = {}
    # a label is drawn anew for every policy, and a checkpoint or a log is a place
    named = {name: repr(value) for name, value in config.items() if name not in ("label", "checkpoint", "decision_log")}
    return {"algorithm": type(policy).__name__} | named
