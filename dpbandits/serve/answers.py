"""What a service says besides decisions and rewards, as models: for the schema, and for whoever generates a client.

They describe answers and make none: a worker writes them as JSON at once.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "Apprentice",
    "Begin",
    "Closed",
    "Curve",
    "Health",
    "Live",
    "Privacy",
    "Ready",
    "ReleasedJson",
    "Releases",
    "Results",
    "Run",
    "RunClients",
    "Runs",
    "Stopped",
]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ReleasedJson(_Closed):
    """A release, as ``Released.from_json`` reads it; arrays are base64 of little-endian numbers."""

    format: str
    version: int
    policy: str
    config: dict[str, Any]
    public: dict[str, Any]
    releases: int
    number: int
    run: str
    price: str


class Release(_Closed):
    """A release, as the page shows it: at what time, after how many decisions; θ where there is one."""

    number: int
    at: float
    decisions: int
    theta: list[float] | None
    errors: list[float] | None
    shares: list[list[float]]


class Releases(_Closed):
    """All releases so far."""

    releases: list[Release]


class Pair(_Closed):
    """A guarantee."""

    epsilon: float
    delta: float


class Head(_Closed):
    """How far the ledger goes, and the hash of its last entry."""

    head: str
    entries: int


class Privacy(_Closed):
    """What a run costs, and what is left of its budget."""

    budget: Pair
    spent: Pair
    left: float
    unit: str
    adjacency: str
    trust: str
    simulation: bool
    horizon: int | None
    policy: str
    statement: str
    ledger: Head
    decisions: int
    releases: int


class Results(BaseModel):
    """What an experiment has found, as of the newest release; ``ExperimentResults.from_dict`` reads all of it."""

    model_config = ConfigDict(extra="allow")

    format: str
    version: int
    verdict: str
    best: str | None
    stopped: str | None
    simulation: bool
    means: dict[str, float | None]
    intervals: dict[str, list[float]]
    differences: dict[str, list[float]]
    assigned: dict[str, int]


class End(_Closed):
    """After which decision an experiment ends, and why."""

    after: int
    reason: str


class Stopped(_Closed):
    """That an experiment ends."""

    ended: End


class Part(_Closed):
    """RAW DATA: the mean reward in a part of the run."""

    part: int
    rewards: int
    mean: float


class Curve(_Closed):
    """RAW DATA: mean rewards in parts of the run."""

    raw: Literal[True]
    curve: list[Part]


class Estimates(_Closed):
    """The bandit's mean reward, without bias and self-normalized, with standard errors."""

    rounds: int
    ips: float
    ips_error: float
    snips: float
    snips_error: float
    effective_rounds: float


class Watched(_Closed):
    """RAW DATA: the apprentice's report on a part of the run, or on all of it (part −1)."""

    part: int
    rounds: int
    agreement: float | None
    incumbent: float | None
    bandit: Estimates | None


class Apprentice(_Closed):
    """RAW DATA: what the bandit would have got."""

    raw: Literal[True]
    apprentice: list[Watched]


class Health(_Closed):
    """By which release a worker decides, and whether it may write."""

    release: int
    database: Literal["there", "away", "unconfirmed"]


class Live(_Closed):
    """That a process answers."""

    live: Literal[True]


class Ready(_Closed):
    """That a worker can decide and write down."""

    ready: Literal[True]


class RunBudget(_Closed):
    """What a run may cost, of the ledger's budget; and the part of its people that it meets, by default all of them."""

    epsilon: float = Field(gt=0)
    delta: float = Field(ge=0, lt=1)
    scope: str | None = None


class RunRewards(_Closed):
    """After how many seconds a missing reward counts as the default."""

    wait: float
    default: float


class RunPage(_Closed):
    """What the owner's page shows."""

    curves: bool = False
    reference: list[Any] = []


class RunClient(_Closed):
    """A client of one run: digests of its tokens, its scopes, until when, and how many decisions a minute."""

    tokens: list[str] = []
    scopes: list[Literal["decide", "reward", "read", "own"]]
    expires: str | None = Field(None, description="a date or a time with its zone, in ISO 8601")
    decisions: float | None = None


class Begin(_Closed):
    """A run that is to begin; the tables of ``run.toml`` that are its own."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")
    policy: dict[str, Any] = Field(description="class, and every parameter under its own name")
    budget: RunBudget
    mode: Literal["bandit", "apprentice"] | None = None
    rewards: RunRewards | None = None
    page: RunPage | None = None
    features: dict[str, Any] | None = None
    simulation: dict[str, Any] | None = None
    clients: Annotated[dict[str, RunClient], Field(max_length=100)] = {}

    def described(self) -> dict[str, Any]:
        """As it is kept, without the name and what was not said."""
        return self.model_dump(mode="json", exclude={"name"}, exclude_none=True, exclude_unset=True)


class RunClients(_Closed):
    """The clients of a run, all of them."""

    clients: Annotated[dict[str, RunClient], Field(max_length=100)]

    def described(self) -> dict[str, Any]:
        """As they are kept."""
        told: dict[str, Any] = self.model_dump(mode="json", exclude_none=True, exclude_unset=True)["clients"]
        return told


State = Literal["unfinished", "starting", "running", "refused", "closed"]


class Run(_Closed):
    """A run. ``starting``: this worker opens it; ``refused``: the learner does not go on with it, for the ``reason``;
    ``unfinished``: its beginning was interrupted, and is finished by the same request again.
    """

    name: str
    state: State
    reason: str | None
    policy: str | None
    epsilon: float | None
    delta: float | None
    scope: str | None
    horizon: int | None
    decisions: int | None
    releases: int | None


class Runs(_Closed):
    """All runs, by name."""

    runs: list[Run]


class Closed(_Closed):
    """What was done to end a run."""

    said: list[str]
