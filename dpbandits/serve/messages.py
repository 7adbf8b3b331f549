"""What requests look like, and refusals that repeat nothing of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StrictInt, create_model

from accounting.arrays import Array

__all__ = [
    "Activated",
    "Activations",
    "Answer",
    "Ask",
    "Asked",
    "Decided",
    "Problem",
    "Refusal",
    "Reward",
    "Rewarded",
    "Rewards",
    "Tickets",
    "Told",
    "bounded",
    "document",
    "told",
    "vectors",
]

M = TypeVar("M", bound=BaseModel)

Number = Annotated[FiniteFloat, Field(strict=True)]
# whether they are finite is seen in their norm, for less than half of what asking each of them costs
# of a list, the first error is enough: a million of them take seconds, for which nobody else is answered
Vector = Annotated[list[Annotated[float, Field(strict=True)]], Field(min_length=1, fail_fast=True)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Ask(_Strict):
    """One decision to be made: among arms, or for a context."""

    arms: Annotated[list[Vector], Field(fail_fast=True)] | None = Field(
        None, min_length=1, description="K rows of d numbers, of norm at most 1"
    )
    context: Vector | None = Field(None, description="d numbers in [-1, 1], where arms stand")
    person: str | None = Field(None, min_length=1, description="whose round it is; needed where persons are protected")
    chosen: StrictInt | None = Field(None, ge=0, description="apprentice mode: the index that the old rule chose")
    probability: Annotated[float, Field(gt=0, le=1, strict=True)] | None = Field(
        None, description="apprentice mode: with which probability"
    )


class Asked(_Strict):
    """Decisions to be made, one or many."""

    decisions: list[Ask] = Field(min_length=1, fail_fast=True)
    probabilities: bool = Field(True, description="tell with which probability; up to milliseconds for some policies")
    activate: bool = Field(True, description="false: give tickets, and learn from those that are activated later")


class Decided(_Strict):
    """One decision.

    ``id`` names it when its reward comes. ``release`` is what it was chosen by. In apprentice mode ``index`` is the old
    rule's and ``bandit`` what the bandit would have chosen. ``learned`` is false beyond the horizon. A ``ticket`` is in
    the place of an id where that was asked for, and where the database is away: it is learned once it is activated.
    """

    id: str | None
    index: int
    probability: float | None
    release: int
    learned: bool
    bandit: int | None = None
    ticket: str | None = None


class Answer(_Strict):
    """Decisions, in the order in which they were asked for."""

    decisions: list[Decided]


class Tickets(_Strict):
    """Tickets of decisions that are to be learned from."""

    tickets: list[Annotated[str, Field(min_length=1)]] = Field(min_length=1, fail_fast=True)


class Activated(_Strict):
    """What became of a ticket: ``accepted`` and ``duplicate`` ones have an id; ``unknown`` is none of this service."""

    id: str | None
    status: Literal["accepted", "duplicate", "unknown"]
    learned: bool


class Activations(_Strict):
    """What became of tickets, in the order in which they were sent."""

    activations: list[Activated]


class Reward(_Strict):
    """The reward of a decision."""

    id: str = Field(min_length=1, max_length=60)
    reward: Number


class Rewards(_Strict):
    """Rewards, one or many."""

    rewards: list[Reward] = Field(min_length=1, fail_fast=True)


class Told(_Strict):
    """What became of a reward.

    ``accepted``: it is durable, and will be learned; ``duplicate``: its decision has one, which stays; ``late``: it
    came after the wait; ``closed``: the decision is forgotten; ``unknown``: there is no such decision.
    """

    id: str
    status: Literal["accepted", "duplicate", "closed", "late", "unknown"]


class Rewarded(_Strict):
    """What became of rewards, in the order in which they were sent."""

    rewards: list[Told]


def bounded(model: type[M], name: str, most: int) -> type[M]:
    """The model with at most so many in its list ``name``: a longer one is refused before its parts are read."""
    field = model.model_fields[name]
    fields: dict[str, Any] = {name: (Annotated[field.annotation, *field.metadata, Field(max_length=most)], ...)}
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)


class Refusal(Exception):
    """An answer in the four or five hundreds, in words that hold nothing of the request."""

    def __init__(self, status: int, error: str, where: list[str] | None = None) -> None:
        self.status, self.error, self.where = status, error, where or []

    @property
    def headers(self) -> dict[str, str]:
        """What goes with it."""
        return {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}.get(self.status, {})


class Problem(BaseModel):
    """A refusal: what was wrong, where, and nothing of what was sent."""

    error: str
    where: list[str] = []


_NAMES = {name for model in (Ask, Asked, Reward, Rewards, Tickets) for name in model.model_fields} | {
    "body",
    "header",
    "path",
}


def told(errors: Any) -> list[str]:
    """Where a request was wrong, and how; names that are not of the schema are not repeated."""
    found = []
    for error in list(errors)[:10]:
        parts = [str(part) if isinstance(part, int) or part in _NAMES else "?" for part in error["loc"]]
        found.append(f"{'.'.join(parts)}: {error['type']}")
    return found


def document(model: type[BaseModel]) -> dict[str, Any]:
    """A body of this model for OpenAPI, with what it refers to written out where it stands."""
    schema = model.model_json_schema()
    inner = schema.pop("$defs", {})

    def written(node: Any) -> Any:
        if isinstance(node, list):
            return [written(one) for one in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return written(inner[node["$ref"].rpartition("/")[-1]])
        return {key: written(value) for key, value in node.items()}

    return {"requestBody": {"required": True, "content": {"application/json": {"schema": written(schema)}}}}


def vectors(rows: list[list[float]]) -> Array:
    """Rows as an array.

    Raises
    ------
    ValueError
        If they differ in length.
    """
    return np.array(rows, dtype=np.float64)
