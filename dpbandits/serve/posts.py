"""The requests that come many times a second: decisions, tickets and rewards.

They are answered from the bytes of their bodies, by the guard, before a framework sees them: its share of a request
would be larger than all that is done here. The framework knows of them for the schema.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError

from accounting.arrays import Array
from dpbandits.policy.choices import Law, Perturbed
from dpbandits.policy.private import PrivatePolicy
from dpbandits.policy.released import Released
from dpbandits.serve.config import Config, digest
from dpbandits.serve.desk import Away, Desk
from dpbandits.serve.messages import (
    Activations,
    Answer,
    Ask,
    Asked,
    Refusal,
    Rewarded,
    Rewards,
    Tickets,
    bounded,
    told,
    vectors,
)
from dpbandits.serve.store import Choice
from dpbandits.serve.tickets import punched, read
from dpkit.randomness import secure

__all__ = ["Post", "Posts"]

M = TypeVar("M", bound=BaseModel)
# one for all answers: to make an encoder takes as long as to use it
_encode = json.JSONEncoder(allow_nan=False).encode


@dataclass(frozen=True)
class Post:
    """A kind of request: what is asked and told, and who answers, given the header with the token, and the body."""

    asked: type[BaseModel]
    told: type[BaseModel]
    summary: str
    answer: Callable[[str, bytes], Awaitable[bytes]]


class Posts:
    """What a worker does many times a second.

    Parameters
    ----------
    config : Config
    probe : PrivatePolicy
        Checks what comes in.
    desk : Desk

    Attributes
    ----------
    table : dict of path to Post
    """

    def __init__(self, config: Config, probe: PrivatePolicy[Any], desk: Desk) -> None:
        self._config, self._probe, self._desk = config, probe, desk
        self._rng = secure()
        # what computes probabilities (of rare choices all of it) is loaded now, and not while a request waits
        basis = np.eye(min(max(4, probe.dim), 20))
        Perturbed(basis, -9.0 * basis[0]).chances()
        self._by_person = probe.persons is not None or config.budget.unit == "person"
        most = config.limits.batch
        self._asked = bounded(Asked, "decisions", most)
        self._tickets = bounded(Tickets, "tickets", most)
        self._rewards = bounded(Rewards, "rewards", most)
        self.table = {
            "/v1/decisions": Post(self._asked, Answer, "Choose, and wait for rewards", self.decisions),
            "/v1/activations": Post(
                self._tickets, Activations, "Learn from decisions that were answered with tickets; each counts once",
                self.activations,
            ),
            "/v1/rewards": Post(self._rewards, Rewarded, "Tell rewards; each counts once", self.rewards),
        }  # fmt: skip

    def newest(self) -> Released:
        """The newest release.

        Raises
        ------
        Refusal
            If there is none yet.
        """
        if self._desk.released is None:
            raise Refusal(503, "nothing is released yet: is the learner running?")
        return self._desk.released

    def role(self, header: str) -> str | None:
        """Whose token it is; every one is compared, in a time that tells nothing."""
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer":
            return None
        wanted, found = digest(token), None
        for role, digests in self._config.tokens.items():
            for one in digests:
                if hmac.compare_digest(one, wanted):
                    found = role
        return found

    def check(self, header: str, *allowed: str) -> None:
        """Refuse whoever has no token of these roles.

        Raises
        ------
        Refusal
        """
        found = self.role(header)
        if found is None:
            raise Refusal(401, "a valid token is needed: Authorization: Bearer …")
        if found not in allowed:
            raise Refusal(403, f"this needs a token of: {', '.join(allowed)}")

    async def decisions(self, header: str, content: bytes) -> bytes:
        """Choose, and write down what was chosen, or hand out tickets."""
        self.check(header, "decider")
        body = _body(content, self._asked)
        released = self.newest()
        found = [
            self._choose(ask, released, f"decisions.{i}", tell=body.probabilities)
            for i, ask in enumerate(body.decisions)
        ]
        ids: Sequence[str | None] = [None] * len(found)
        maybe: Sequence[str] = ["0-"] * len(found)
        if body.activate:
            try:
                ids = await self._desk.decide([choice for choice, _ in found])
            except Away as error:  # tickets, then
                maybe = error.ids or maybe
        answers = []
        for id, perhaps, (choice, bandit) in zip(ids, maybe, found, strict=True):
            answer = {
                "id": id,
                "index": choice.chosen,
                "probability": choice.probability,
                "release": released.number,
                "learned": id is not None and not id.startswith("0-"),
            }
            if self._config.apprentice:
                answer["bandit"] = bandit
            if id is None:
                answer["ticket"] = punched(choice, self._desk.key, perhaps)
            answers.append(answer)
        return _json({"decisions": answers})

    async def activations(self, header: str, content: bytes) -> bytes:
        """Write down what tickets hold."""
        self.check(header, "decider")
        body = _body(content, self._tickets)
        self.newest()  # the key is known with it
        read_ones = [read(ticket, self._desk.key) for ticket in body.tickets]
        made = iter(await self._desk.activate([one for one in read_ones if one is not None]))
        answers: list[dict[str, Any]] = []
        for one in read_ones:
            if one is None:
                answers.append({"id": None, "status": "unknown", "learned": False})
                continue
            id, new = next(made)
            status = "unknown" if id is None else "accepted" if new else "duplicate"
            answers.append({"id": id, "status": status, "learned": id is not None and not id.startswith("0-")})
        return _json({"activations": answers})

    async def rewards(self, header: str, content: bytes) -> bytes:
        """Write rewards down, each once."""
        self.check(header, "learner")
        body = _body(content, self._rewards)
        checked = []
        for i, one in enumerate(body.rewards):
            try:
                checked.append((one.id, self._probe.checked_reward(one.reward)))
            except ValueError:
                raise Refusal(422, "reward must lie in the policy's reward_range", [f"rewards.{i}"]) from None
        statuses = await self._desk.reward(checked)
        told_back = [{"id": id, "status": status} for (id, _), status in zip(checked, statuses, strict=True)]
        return _json({"rewards": told_back})

    def _choose(self, ask: Ask, released: Released, at: str, *, tell: bool) -> tuple[Choice, int]:
        """What is written down, and what the bandit would have chosen; ``tell`` with which probability."""
        limits = self._config.limits
        given, other = (ask.arms, ask.context) if self._probe.takes == "arms" else (ask.context, ask.arms)
        if given is None or other is not None:
            raise Refusal(422, f"this policy takes {self._probe.takes}, and nothing else", [at])
        if ask.arms is not None and len(ask.arms) > limits.arms:
            raise Refusal(422, f"at most {limits.arms} arms", [at])
        if (ask.chosen is None) == self._config.apprentice or (
            ask.probability is not None and not self._config.apprentice
        ):
            needed = "needed, and probability may be given," if self._config.apprentice else "(or probability) taken"
            raise Refusal(422, f"chosen is {needed} in apprentice mode, and only there", [at])
        try:
            X = self._probe.checked_arms(vectors(ask.arms) if ask.arms is not None else given)
            bandit, chance = _chosen(released, X, self._rng, tell=tell and not self._config.apprentice)
        except (ValueError, OverflowError):
            what = "arms must be rows" if self._probe.takes == "arms" else "context must be a list"
            raise Refusal(422, f"{what} of {self._probe.dim} numbers, of norm at most 1", [at]) from None
        index = bandit
        if ask.chosen is not None:
            index, chance = ask.chosen, ask.probability
            if index >= released._shell.count(X):
                raise Refusal(422, "chosen must be the index of an arm", [at])
        arm = X if self._probe.takes == "context" else X[index]
        who = self._person(ask.person, at) if self._by_person else None
        return Choice(index, chance, arm, who, bandit if self._config.apprentice else None), bandit

    def _person(self, given: str | None, at: str) -> str:
        if given is None or len(given) > self._config.limits.person:
            raise Refusal(422, f"person is needed, of at most {self._config.limits.person} letters", [at])
        try:
            given.encode()
        except UnicodeEncodeError:
            raise Refusal(422, "person must be a text", [at]) from None
        if "\0" in given:  # which PostgreSQL does not take
            raise Refusal(422, "person must not hold the character NUL", [at])
        return given


def _chosen(released: Released, arms: Array, rng: np.random.Generator, *, tell: bool) -> tuple[int, float | None]:
    """The choice, and its probability, which for some laws costs a hundred times what the choice does."""
    found = released._shell.score_elsewhere(arms)  # they are checked
    if not isinstance(found, Law):
        return int(found.argmax()), 1.0 if tell else None
    index = int(found.draw(rng).argmax())
    chance = found.chance(index)[0] if tell else 0.0
    return index, chance if 0 < chance <= 1 else None


def _body(content: bytes, model: type[M]) -> M:
    """The checked body; read from JSON at once, in a fifth of the time that two steps take."""
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise Refusal(422, "the request is not of the schema at /docs", told(found)) from None


def _json(content: Any) -> bytes:
    return _encode(content).encode()
