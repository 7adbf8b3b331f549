"""What requests and answers look like, who may ask for what, and refusals that repeat nothing of a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StrictInt, ValidationError, create_model

__all__ = [
    "Activated",
    "Activations",
    "Answer",
    "Ask",
    "Asked",
    "AskedSlates",
    "Decided",
    "Problem",
    "Refusal",
    "Reward",
    "Rewarded",
    "Rewards",
    "Route",
    "Slates",
    "Tickets",
    "Told",
    "bounded",
    "parsed",
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


Name = Annotated[str, Field(min_length=1, max_length=256)]


class AskSlate(_Strict):
    """One slate to be chosen, such as a page of articles, of k candidates."""

    names: Annotated[list[Name], Field(fail_fast=True)] = Field(min_length=1, description="at least k, all different")
    arms: Annotated[list[Vector], Field(fail_fast=True)] = Field(
        min_length=1, description="by name, rows of d numbers, of norm at most 1"
    )
    person: str | None = Field(None, min_length=1, description="whose round it is; needed where persons are protected")


class AskedSlates(_Strict):
    """Slates to be chosen, one or many."""

    slates: list[AskSlate] = Field(min_length=1, fail_fast=True)
    activate: bool = Field(True, description="false: give tickets, and learn from those that are activated later")


class DecidedSlate(_Strict):
    """One slate: the names of what to show, by position, from the top; else as a decision."""

    id: str | None
    slate: list[str]
    release: int
    learned: bool
    ticket: str | None = None


class Slates(_Strict):
    """Slates, in the order in which they were asked for."""

    slates: list[DecidedSlate]


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
    """The reward of a decision; of a slate a list, of the positions that were seen, from the top."""

    id: str = Field(min_length=1, max_length=100)
    # in this order, which takes less time than to look for the better fit
    reward: Number | Annotated[list[Number], Field(max_length=1000, fail_fast=True)] = Field(union_mode="left_to_right")


class Rewards(_Strict):
    """Rewards, one or many."""

    rewards: list[Reward] = Field(min_length=1, fail_fast=True)


class Told(_Strict):
    """What became of a reward.

    ``accepted``: it is durable, and will be learned; ``duplicate``: its decision has one, which stays;
    ``defaulted``: it came after the default was taken in its place; ``late``: it came after the wait; ``closed``: the
    decision is forgotten; ``unknown``: the id is none of this run's.
    """

    id: str
    status: Literal["accepted", "duplicate", "defaulted", "closed", "late", "unknown"]


class Rewarded(_Strict):
    """What became of rewards, in the order in which they were sent."""

    rewards: list[Told]


@lru_cache
def bounded(model: type[M], name: str, most: int) -> type[M]:
    """The model with at most so many in its list ``name``: a longer one is refused before its parts are read."""
    field = model.model_fields[name]
    fields: dict[str, Any] = {name: (Annotated[field.annotation, *field.metadata, Field(max_length=most)], ...)}
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)


class Refusal(Exception):
    """An answer in the four or five hundreds, in words that hold nothing of the request."""

    def __init__(self, status: int, error: str, where: list[str] | None = None, **headers: str) -> None:
        self.status, self.error, self.where = status, error, where or []
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        self.headers = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}.get(status, {}) | more


class Problem(BaseModel):
    """A refusal: what was wrong, where, and nothing of what was sent."""

    error: str
    where: list[str] = []


@dataclass(frozen=True)
class Route:
    """A kind of request.

    Attributes
    ----------
    method, path : str
        The method "*" is any. A part of the path in braces stands for any text, which ``answer`` is given.
    answer : callable
        What is answered to a body (a value of ``asked``, or None) and whoever asks; the first line of its
        docstring says in the schema what it is.
    scopes : tuple of str
        A client needs one of them; if empty, nobody needs a token.
    asked, told : type, optional
        The models of the body, and of an answer in JSON.
    media : str
        The type of the answer.
    headers : mapping
        What goes with the answer.
    status : int
        Of an answer that is no refusal; 204 has no content.
    listed : bool
        Whether the schema has it.
    """

    method: str
    path: str
    answer: Callable[..., Awaitable[str]]
    scopes: tuple[str, ...] = ()
    asked: type[BaseModel] | None = None
    told: type[BaseModel] | None = None
    media: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    listed: bool = True

    @property
    def summary(self) -> str:
        """In a line."""
        return (self.answer.__doc__ or "").partition("\n")[0].removesuffix(".")


@lru_cache
def _names(model: type[BaseModel]) -> frozenset[str]:
    """The names of a schema, which may be told."""
    tree = model.model_json_schema()
    parts = [tree, *tree.get("$defs", {}).values()]
    return frozenset(name for part in parts for name in part.get("properties", ()))


def parsed(content: bytes, model: type[M]) -> M:
    """A checked body; read from JSON at once, in a fifth of the time that two steps take.

    Raises
    ------
    Refusal
        Saying where it is wrong, and how; names that are not of the schema are not repeated.
    """
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        where, names = [], _names(model)
        for one in error.errors(include_url=False, include_context=False, include_input=False)[:10]:
            parts = [str(part) if isinstance(part, int) or part in names else "?" for part in one["loc"]]
            where.append(f"{'.'.join(parts)}: {one['type']}")
        raise Refusal(422, "the request is not of the schema at /docs", where) from None
