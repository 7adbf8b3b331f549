"""Rank, Reward and Activate: the wire of a commercial service that was retired, for clients that speak it already.

A request brings JSON features of a context and of actions, and is told which action to show; the reward comes later, by
the event's id. Features become arms by a public rule (:class:`dpkit.features.Hashed`), in rows of norm at most 1; from
there on a decision is one like any other, private by the same policy, with the same price.

Excluded actions are not offered to the policy. In the ranking they keep their places, with probability 0; the others
follow each other in theirs, the chosen one first and the rest by probability.

What is told. Whoever may rank may tell rewards too, as the wire has one key; so nothing here depends on rewards: a
reward or an activation that is of the schema is answered 204, whatever becomes of it; the service's reference has no
other answer for what it could read, either. An event's id that is there already is given its first answer, or 409 if it
came with another request.

Several slots (``multislot``) are a slate of a policy that shows k arms. Each slot has a row of every action, for which
its own features are part of the context. One draw says how good each row is, and slots are filled with different
actions, those whose sum is the largest. One request rewards all slots of an event; one that is missing there counts as
the default.

Sources: the service's public reference, and the code of its last clients (azure-cognitiveservices-personalizer 0.1.1
and azure-ai-personalizer 1.0.0b1 for Python). Not here: evaluations, settings.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from accounting.arrays import Array
from dpbandits.policy.choices import Law, Shares, Ties
from dpbandits.policy.private import PrivatePolicy
from dpbandits.policy.released import Released
from dpbandits.policy.slates import SlatePolicy
from dpbandits.serve.clients import Client
from dpbandits.serve.config import Config
from dpbandits.serve.events import InSlots, Ranked, secret
from dpbandits.serve.messages import Name, Number, Refusal, Route, bounded
from dpbandits.serve.store import Choice
from dpbandits.serve.tickets import punched
from dpbandits.serve.writer import Writer
from dpkit.randomness import secure

__all__ = [
    "KEY",
    "PREFIX",
    "MultiRankRequest",
    "MultiRewardRequest",
    "TOLD_NOBODY",
    "Personalizer",
    "RankRequest",
    "RewardRequest",
    "chances_told",
    "placed",
    "problem",
]

PREFIX = "/personalizer/"
# the header with the token
KEY = b"ocp-apim-subscription-key"
# of paths, and of those with several slots; the last clients name the version in the query, ?api-version=…
_AT = [f"{PREFIX}v1.0", f"{PREFIX}v1.1-preview.3", PREFIX.rstrip("/")]
_AT_SLOTS = [f"{PREFIX}v1.1-preview.1/multislot", *(f"{at}/multislot" for at in _AT[1:])]
# routes by which rewards come: when they do is a person's data
TOLD_NOBODY = frozenset(f"{at}/events/{{eventId}}/reward" for at in (*_AT, *_AT_SLOTS))
_LONGEST = 256
# features of an action times those of the context, over all actions: some 50 ms of work
_PRODUCTS = 2**18
# beyond so many actions, how many draws
_FEW, _DRAWS = 10, 512
_BOTH = ("decide", "reward")
_CODES = {400: "BadRequest", 404: "ResourceNotFound", 500: "InternalServerError"}

Features = Annotated[list[dict[str, Any]], Field(fail_fast=True)]


class _Loose(BaseModel):
    """What clients send besides, is not read."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class Action(_Loose):
    """What may be chosen."""

    id: Name
    features: Features


class RankRequest(_Loose):
    """One decision to be made."""

    actions: list[Action] = Field(min_length=1, fail_fast=True)
    contextFeatures: Features | None = None  # noqa: N815
    excludedActions: Annotated[list[str], Field(fail_fast=True)] | None = None  # noqa: N815
    eventId: Name | None = None  # noqa: N815
    deferActivation: bool | None = None  # noqa: N815


class RewardRequest(_Loose):
    """The reward of an event."""

    value: Number


class Slot(_Loose):
    """A place where an action may be shown."""

    id: Name
    features: Features | None = None
    excludedActions: Annotated[list[str], Field(fail_fast=True)] | None = None  # noqa: N815


class MultiRankRequest(RankRequest):
    """One decision to be made, of an action for each slot."""

    slots: list[Slot] = Field(min_length=1, fail_fast=True)


class SlotReward(_Loose):
    """The reward of a slot."""

    slotId: Name  # noqa: N815
    value: Number


class MultiRewardRequest(_Loose):
    """The rewards of an event's slots."""

    reward: list[SlotReward] = Field(min_length=1, fail_fast=True)


class Personalizer:
    """What a worker answers on this wire.

    Parameters
    ----------
    config : Config
        With ``features``.
    probe : PrivatePolicy
        Checks rewards.
    writer : Writer
    newest : callable
        The newest release.

    Attributes
    ----------
    routes : list of Route
    """

    def __init__(
        self, config: Config, probe: PrivatePolicy[Any], writer: Writer, newest: Callable[[], Released]
    ) -> None:
        if config.features is None:
            raise ValueError("features must be given")
        self._hashed, self._probe, self._writer, self._newest = config.features, probe, writer, newest
        # choices are drawn from the first; the second only measures how probable the others were
        self._rng, self._quick = secure(), np.random.default_rng()
        # how many slots there may be, where a decision fills several
        self._k: int | None = None
        if isinstance(probe, SlatePolicy):
            from scipy.optimize import linear_sum_assignment  # now, and not while a request waits

            self._k, self._assigned = probe.k, linear_sum_assignment
        self._default = config.default
        asked, many = (bounded(model, "actions", config.limits.arms) for model in (RankRequest, MultiRankRequest))
        # no event has more slots than actions; every name is hashed, and meanwhile nobody else is answered
        rewards = bounded(MultiRewardRequest, "reward", config.limits.arms)
        kinds: list[tuple[list[str], Any, Any, Any, Any]] = [
            (_AT, self.rank, asked, self.reward, RewardRequest),
            (_AT_SLOTS, self.fill, many, self.reward_slots, rewards),
        ]
        self.routes: list[Route] = []
        for places, choose, ranked, learn, rewarded in kinds:
            for at in places:
                event = f"{at}/events/{{eventId}}"
                self.routes += [
                    Route("POST", f"{at}/rank", choose, ("decide",), ranked, status=201, listed=False),
                    Route("POST", f"{event}/activate", self.activate, ("decide",), status=204, listed=False),
                    Route("POST", f"{event}/reward", learn, _BOTH, rewarded, status=204, listed=False),
                ]

    async def rank(self, body: RankRequest, _: Client | None) -> str:
        """Choose among actions."""
        if self._k is not None:
            raise Refusal(400, "this policy fills slots: rank at multislot/rank", ["actions"])
        released = self._newest()  # the key is known with it
        excluded = set(body.excludedActions or ())
        offered = [i for i, one in enumerate(body.actions) if one.id not in excluded]
        _differ([one.id for one in body.actions], "actions")
        if not offered:
            raise Refusal(400, "at least one action must not be excluded", ["excludedActions"])
        X = self._arms(body.contextFeatures or [], [body.actions[i].features for i in offered])
        found = released._shell.score_elsewhere(X)
        if isinstance(found, Law):
            index = int(found.draw(self._rng).argmax())
            chances = chances_told(found, index, self._quick)
        else:
            index = int(found.argmax())
            chances = np.zeros(len(offered))
            chances[index] = 1.0
        probability = float(chances[index])
        choice = Choice(index, probability if probability > 0 else None, X[index])
        order, told = placed(len(body.actions), offered, index, chances.tolist())
        event, (chosen, order, told) = await self._ranked(body, [offered[index], order, told], choice)
        names = [one.id for one in body.actions]
        ranking = [{"id": names[i], "probability": p} for i, p in zip(order, told, strict=True)]
        return json.dumps({"ranking": ranking, "eventId": event, "rewardActionId": names[chosen]})

    async def fill(self, body: MultiRankRequest, _: Client | None) -> str:
        """Choose a different action for each slot."""
        if self._k is None:
            raise Refusal(400, "this policy chooses one action: rank at /rank", ["slots"])
        if len(body.slots) > self._k:
            raise Refusal(400, f"at most k={self._k} slots", ["slots"])
        released = self._newest()
        _differ([one.id for one in body.actions], "actions")
        _differ([one.id for one in body.slots], "slots")
        names, actions = [one.id for one in body.actions], [one.features for one in body.actions]
        contexts = [[*(body.contextFeatures or []), {"slot": one.features or []}] for one in body.slots]
        X = np.concatenate([self._arms(context, actions, len(contexts)) for context in contexts])
        found = released._shell.score_elsewhere(X)
        scores = found.draw(self._rng) if isinstance(found, Law) else found
        excluded = [{*(body.excludedActions or ()), *(one.excludedActions or ())} for one in body.slots]
        allowed = np.array([[name not in those for name in names] for those in excluded])
        try:
            _, picks = self._assigned(np.where(allowed, scores.reshape(allowed.shape), -np.inf), maximize=True)
        except ValueError:
            picks = []
        if len(picks) < len(body.slots):
            raise Refusal(400, "every slot must have an action that is not excluded, all different", ["slots"])
        shown = X.reshape(*allowed.shape, -1)[np.arange(len(picks)), picks]
        slots = [self._secret("slot", one.id) for one in body.slots]
        event, (chosen, _) = await self._ranked(body, [picks.tolist(), slots], Choice(int(picks[0]), None, shown))
        told = [{"id": slot.id, "rewardActionId": names[i]} for slot, i in zip(body.slots, chosen, strict=True)]
        return json.dumps({"slots": told, "eventId": event})

    async def _ranked(self, body: RankRequest, answer: list[Any], choice: Choice) -> tuple[str, list[Any]]:
        """Write an event down; its id, and its answer, which is that of the first time."""
        event = body.eventId or str(uuid.uuid4())
        ranked = Ranked(
            self._secret("event", event),
            self._secret("request", body.model_dump_json(exclude={"eventId"})),
            json.dumps(answer, separators=(",", ":")),
            choice,
            punched(choice, self._writer.key) if body.deferActivation else None,
        )
        (found,) = await self._writer.ask("rank", [ranked])
        if found is None:
            raise Refusal(409, "this event was ranked before, with another request", ["eventId"])
        return event, json.loads(found)

    async def activate(self, _: None, caller: Client | None, event: str) -> str:
        """Learn from an event that waits for it."""
        await self._writer.ask("show", [self._event(event)])
        return ""

    async def reward(self, body: RewardRequest, _: Client | None, event: str) -> str:
        """Tell the reward of an event."""
        if self._k is not None:
            raise Refusal(400, "this policy fills slots: tell rewards at multislot/events", ["value"])
        try:
            value = self._probe.checked_reward(body.value)
        except ValueError:
            raise Refusal(400, "value must lie in the policy's reward_range", ["value"]) from None
        await self._writer.ask("praise", [(self._event(event), value)])
        return ""

    async def reward_slots(self, body: MultiRewardRequest, _: Client | None, event: str) -> str:
        """Tell the rewards of an event's slots."""
        if self._k is None:
            raise Refusal(400, "this policy chooses one action: tell rewards at /events", ["reward"])
        _differ([one.slotId for one in body.reward], "reward")
        told: dict[str, float] = {}
        check: Any = self._probe.checked_reward
        for i, one in enumerate(body.reward):
            try:
                (told[self._secret("slot", one.slotId)],) = check([one.value])
            except ValueError:
                raise Refusal(400, "value must lie in the policy's reward_range", [f"reward.{i}"]) from None
        await self._writer.ask("praise", [(self._event(event), InSlots(told, self._default))])
        return ""

    def _event(self, event: str) -> str:
        if len(event) > _LONGEST:
            raise Refusal(400, f"an event's id has at most {_LONGEST} characters", ["eventId"])
        return self._secret("event", event)

    def _secret(self, purpose: str, text: str) -> str:
        self._newest()  # the key is known with it
        return secret(purpose, text.encode("utf-8", "surrogatepass"), self._writer.key)

    def _arms(self, context: Sequence[Any], actions: Sequence[Any], times: int = 1) -> Array:
        """Rows of actions; ``times`` says how often that is done for one request."""
        if sum((_leaves(context) + 1) * (_leaves(one) + 1) for one in actions) * times > _PRODUCTS:
            raise Refusal(400, "too many features: of the context times those of all actions", ["actions"])
        try:
            return self._probe.checked_arms(self._hashed.arms(context, actions))
        except (ValueError, OverflowError):
            raise Refusal(400, "features must be JSON of finite numbers, of at most 32 levels", ["actions"]) from None


def _differ(ids: Sequence[str], where: str) -> None:
    if len(set(ids)) < len(ids):
        raise Refusal(400, f"ids of {where} must differ", [where])


def chances_told(law: Law, index: int, rng: np.random.Generator) -> Array:
    """The probability of every action, where ``index`` was chosen.

    Where that has no closed form and there are more than ten, only the chosen one's is computed. The others' are
    estimates, ± 0.02, from draws: all of them take 0.1 s for 50 actions, for which nobody else would be answered.

    Examples
    --------
    >>> from dpbandits.policy.choices import Shares
    >>> chances_told(Shares(np.array([0.25, 0.75])), 1, np.random.default_rng(0)).tolist()
    [0.25, 0.75]
    """
    if isinstance(law, (Shares, Ties)) or len(law) <= _FEW:
        return np.clip(law.chances(), 0.0, 1.0)
    chance = min(max(law.chance(index)[0], 0.0), 1.0)
    counts = np.bincount(law.draw_many(_DRAWS, rng).argmax(axis=1), minlength=len(law)) + 0.5
    counts[index] = 0.0
    told: Array = counts * ((1.0 - chance) / counts.sum())
    told[index] = chance
    return told


def placed(count: int, offered: Sequence[int], index: int, chances: Sequence[float]) -> tuple[list[int], list[float]]:
    """The ranking of actions, as their indices, and the probability of each: excluded ones where they were, with 0.

    Parameters
    ----------
    count : int
        How many actions there are.
    offered : sequence of int
        Those that are not excluded, in their order.
    index : int
        Which of ``offered`` was chosen.
    chances : sequence of float
        Of each of ``offered``.

    Examples
    --------
    >>> placed(4, [1, 2, 3], 2, [0.5, 0.2, 0.3])
    ([0, 3, 1, 2], [0.0, 0.3, 0.5, 0.2])
    """
    others = sorted((k for k in range(len(offered)) if k != index), key=lambda k: -chances[k])
    ranks, probability = iter([index, *others]), dict(zip(offered, chances, strict=True))
    order = [offered[next(ranks)] if i in probability else i for i in range(count)]
    return order, [probability.get(i, 0.0) for i in order]


def problem(error: Refusal) -> tuple[int, str]:
    """A refusal, in the words of this wire."""
    status = 400 if error.status == 422 else error.status
    text = "a valid key is needed: Ocp-Apim-Subscription-Key" if status == 401 else error.error
    where = f" ({'; '.join(error.where)})" if error.where else ""
    return status, json.dumps({"error": {"code": _CODES.get(status, str(status)), "message": text + where}})


def _leaves(value: Any) -> int:
    """How many features a value of JSON has, however deep it is."""
    found, rest = 0, [value]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            rest.extend(one.values())
        elif isinstance(one, list):
            rest.extend(one)
        else:
            found += 1
    return found
