"""What a worker answers: it chooses by the newest release, writes down what it chose, and takes rewards in.

Of each kind of request there is one method; :mod:`dpbandits.serve.app` has read the body and seen the token.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic_core import to_json

from accounting.arrays import Array
from dpbandits.policy.choices import Law, Perturbed
from dpbandits.policy.chosen import Choices
from dpbandits.policy.many import Rounds, together
from dpbandits.policy.offers import NOTHING
from dpbandits.policy.private import PrivatePolicy
from dpbandits.policy.released import Released
from dpbandits.policy.slates import SlatePolicy
from dpbandits.serve.answers import (
    Apprentice,
    Curve,
    Health,
    Live,
    Privacy,
    Ready,
    ReleasedJson,
    Releases,
    Results,
    Stopped,
)
from dpbandits.serve.clients import Client
from dpbandits.serve.config import Config
from dpbandits.serve.messages import (
    Activations,
    Answer,
    Ask,
    Asked,
    AskedSlates,
    Refusal,
    Rewarded,
    Rewards,
    Route,
    Slates,
    Tickets,
    bounded,
)
from dpbandits.serve.metrics import Meter, gauge_lines
from dpbandits.serve.openapi import manual, schema
from dpbandits.serve.personalizer import TOLD_NOBODY, Personalizer
from dpbandits.serve.store import Choice, Store
from dpbandits.serve.tickets import punched, read
from dpbandits.serve.trial import RESULTS, page_of, visit_key
from dpbandits.serve.writer import Away, Writer
from dpkit.randomness import secure

__all__ = ["Endpoints", "page_route", "routes_of"]

# one for all answers: to make an encoder takes as long as to use it
_json = json.JSONEncoder(allow_nan=False).encode


def _quick(answer: dict[str, Any]) -> str:
    """JSON in a quarter of the time, of what surely holds no NaN."""
    return to_json(answer).decode()


_PAGE = Path(__file__).with_name("page.html")
_NOTHING = "nothing is released yet: is the learner running?"


def _learned(id: str | None) -> bool:
    return id is not None and not id.startswith("0-")


def _nowhere(count: int) -> list[str]:
    """Of so many decisions, that each is surely not written down without an id."""
    return ["0-"] * count


def page_route(path: str, answer: Any, *allowed: str) -> Route:
    """A page that loads nothing from elsewhere."""
    policy = "; ".join(["default-src 'none'", "style-src 'unsafe-inline'", *allowed])
    headers = {"content-security-policy": policy, "referrer-policy": "no-referrer", "cache-control": "no-store"}
    return Route("GET", path, answer, media="text/html; charset=utf-8", headers=headers, listed=False)


@lru_cache
def _loaded(dim: int) -> None:
    """Load what computes probabilities (of rare choices all of it) now, and not while a request waits."""
    basis = np.eye(dim)
    Perturbed(basis, -9.0 * basis[0]).chances()


def routes_of(of: Endpoints | type[Endpoints], batch: int, *, experiment: bool) -> list[Route]:
    """What a run answers: by an object, or (for the schema alone) by the class."""
    lists = ((Asked, "decisions"), (AskedSlates, "slates"), (Tickets, "tickets"), (Rewards, "rewards"))
    asked, slates, tickets, rewards = (bounded(model, name, batch) for model, name in lists)
    html = "text/html; charset=utf-8"
    headers = {
        "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
        "cache-control": "no-store",
    }
    of_experiments = [
        Route("GET", "/v1/results", of.results, ("own",), told=Results),
        Route("GET", "/v1/results.html", of.results_page, ("own",), media=html, headers=headers),
        Route("POST", "/v1/stop", of.stop, ("own",), told=Stopped),
    ]
    return [
        Route("POST", "/v1/decisions", of.decide, ("decide",), asked, Answer),
        Route("POST", "/v1/slates", of.decide_slates, ("decide",), slates, Slates),
        Route("POST", "/v1/activations", of.activate, ("decide",), tickets, Activations),
        Route("POST", "/v1/rewards", of.reward, ("reward",), rewards, Rewarded),
        Route("GET", "/v1/released", of.released, ("decide", "read"), told=ReleasedJson),
        Route("GET", "/v1/releases", of.releases, ("read",), told=Releases),
        Route("GET", "/v1/privacy", of.privacy, ("read",), told=Privacy),
        *(of_experiments if experiment else ()),
        Route("GET", "/v1/raw/curve", of.curve, ("own",), told=Curve),
        Route("GET", "/v1/raw/apprentice", of.apprentice, ("own",), told=Apprentice),
        Route("GET", "/healthz", of.health, told=Health),
        Route("GET", "/livez", of.live, told=Live),
        Route("GET", "/readyz", of.ready, told=Ready),
        Route("GET", "/metrics", of.metrics, media="text/plain; charset=utf-8"),
        page_route("/", of.page, "script-src 'unsafe-inline'", "connect-src 'self'"),
        page_route("/docs", of.docs),
        Route("GET", "/openapi.json", of.openapi, listed=False),
    ]


class Endpoints:
    """What a worker answers.

    Parameters
    ----------
    config : Config
    probe : PrivatePolicy
        Checks what comes in.
    writer : Writer
        The way to the database.
    meter : Meter
        What has been counted of requests.

    Attributes
    ----------
    routes : list of Route
    """

    def __init__(self, config: Config, probe: PrivatePolicy[Any], writer: Writer, meter: Meter) -> None:
        self._config, self._probe, self._writer, self._meter = config, probe, writer, meter
        self._rng = secure()
        _loaded(min(max(4, probe.dim), 20))
        # whether a person has one decision, which is given again
        self._once = config.experiment and probe.persons is not None
        # how many arms a decision shows, where that is more than one
        self._k = probe.k if isinstance(probe, SlatePolicy) else None
        number = "lie in the policy's reward_range"
        each = "one for each position that was seen, from the top, in the policy's reward_range"
        self._rewards = f"be a number and {number}" if self._k is None else f"be a list of at most k={self._k}, {each}"
        self._by_person = probe.persons is not None or config.budget.unit == "person"
        self.routes = routes_of(self, config.limits.batch, experiment=config.experiment)
        self._rewarding = frozenset({"/v1/rewards"})
        if config.features is not None:
            self.routes += Personalizer(config, probe, writer, self.newest).routes
            self._rewarding |= TOLD_NOBODY

    def newest(self) -> Released:
        """The newest release.

        Raises
        ------
        Refusal
            If there is none yet.
        """
        if self._writer.released is None:
            raise Refusal(503, _NOTHING)
        return self._writer.released

    async def decide(self, body: Asked, _: Client | None) -> str:
        """Choose, and wait for rewards."""
        if self._k is not None:
            raise Refusal(422, f"this policy shows k={self._k} arms: ask for them at /v1/slates", ["decisions"])
        released = self.newest()
        found = self._choose(body.decisions, released, tell=body.probabilities)
        if self._once:
            if not body.activate:
                raise Refusal(422, "activate must be true where a person has one decision", ["activate"])
            seen = await self._writer.ask("visit", [choice for choice, _ in found])
            ids: Sequence[str | None] = [id for id, _, _ in seen]
            maybe: Sequence[str] = _nowhere(len(found))
            found = [
                (choice if new else replace(choice, chosen=index, probability=None), bandit)
                for (choice, bandit), (_, index, new) in zip(found, seen, strict=True)
            ]
        else:
            ids, maybe = await self._written([choice for choice, _ in found], activate=body.activate)
        answers = []
        for id, perhaps, (choice, bandit) in zip(ids, maybe, found, strict=True):
            own = {"index": choice.chosen, "probability": choice.probability}
            if self._config.apprentice:
                own["bandit"] = bandit
            answers.append(self._told(own, id, perhaps, choice, released))
        return _quick({"decisions": answers})

    async def decide_slates(self, body: AskedSlates, caller: Client | None) -> str:
        """Choose slates, such as pages of articles, and wait for rewards by position."""
        if self._k is None:
            raise Refusal(422, "this policy shows one arm: ask for it at /v1/decisions", ["slates"])
        released = self.newest()
        asks = [Ask.model_construct(arms=one.arms, person=one.person) for one in body.slates]
        whose = [self._checked(ask, f"slates.{i}") for i, ask in enumerate(asks)]
        for i, one in enumerate(body.slates):
            if not self._k <= len(set(one.names)) == len(one.names) == len(one.arms):
                raise Refusal(
                    422, f"names must be k={self._k} or more, all different, one for each arm", [f"slates.{i}"]
                )
        pages = [self._page(released, X) for X in self._offered(asks, "slates")]
        choices = [Choice(int(page[0]), None, shown, who) for (page, shown), who in zip(pages, whose, strict=True)]
        ids, maybe = await self._written(choices, activate=body.activate)
        answers = []
        for one, (page, _), choice, id, perhaps in zip(body.slates, pages, choices, ids, maybe, strict=True):
            own = {"slate": [one.names[row] for row in page]}
            answers.append(self._told(own, id, perhaps, choice, released))
        return _quick({"slates": answers})

    async def _written(
        self, choices: Sequence[Choice], *, activate: bool
    ) -> tuple[Sequence[str | None], Sequence[str]]:
        """The ids of decisions, and by which they may be there all the same where they have none.

        They have none where they are not to be learned from yet, and where the database is away.
        """
        none, nowhere = [None] * len(choices), _nowhere(len(choices))
        if not activate:
            return none, nowhere
        try:
            return await self._writer.ask("decide", choices), nowhere
        except Away as error:  # tickets, then
            return none, error.ids or nowhere

    def _told(
        self, own: dict[str, Any], id: str | None, perhaps: str, choice: Choice, released: Released
    ) -> dict[str, Any]:
        """A decision as it is answered, with a ticket where it has no id."""
        answer = {"id": id, **own, "release": released.number, "learned": _learned(id)}
        return answer if id is not None else answer | {"ticket": punched(choice, self._writer.key, perhaps)}

    async def activate(self, body: Tickets, _: Client | None) -> str:
        """Learn from decisions that were answered with tickets; each counts once."""
        self.newest()  # the key is known with it
        read_ones = [read(ticket, self._writer.key) for ticket in body.tickets]
        made = iter(await self._writer.ask("activate", [one for one in read_ones if one is not None]))
        answers: list[dict[str, Any]] = []
        for one in read_ones:
            if one is None:
                answers.append({"id": None, "status": "unknown", "learned": False})
                continue
            id, new = next(made)
            status = "unknown" if id is None else "accepted" if new else "duplicate"
            answers.append({"id": id, "status": status, "learned": _learned(id)})
        return _quick({"activations": answers})

    async def reward(self, body: Rewards, _: Client | None) -> str:
        """Tell rewards; each counts once."""
        checked = []
        for i, one in enumerate(body.rewards):
            try:
                if isinstance(one.reward, list) is (self._k is None):
                    raise ValueError
                checked.append((one.id, self._probe.checked_reward(one.reward)))  # type: ignore[arg-type]
            except ValueError:
                raise Refusal(422, f"reward must {self._rewards}", [f"rewards.{i}"]) from None
        statuses = await self._writer.ask("reward", checked)
        told_back = [{"id": id, "status": status} for (id, _), status in zip(checked, statuses, strict=True)]
        return _quick({"rewards": told_back})

    async def released(self, *_: Any) -> str:
        """The newest release, as Released.from_json reads it."""
        return self.newest().to_json()

    async def releases(self, *_: Any) -> str:
        """All releases so far, as the page shows them."""
        return _json({"releases": await self._writer.ask("read", Store.history)})

    async def privacy(self, *_: Any) -> str:
        """What the run costs, and what is left."""
        return _json(await self._published("privacy") | await self._writer.ask("read", Store.counts))

    async def results(self, *_: Any) -> str:
        """What the experiment has found, as of the newest release; looking costs nothing."""
        return _json(await self._published(RESULTS))

    async def results_page(self, *_: Any) -> str:
        """The same, as a page."""
        return await asyncio.to_thread(page_of, await self._published(RESULTS))

    async def _published(self, name: str) -> dict[str, Any]:
        """A fact that comes with every release."""
        found: dict[str, Any] | None = await self._writer.ask("read", lambda store: store.fact(name))
        if found is None:
            raise Refusal(503, _NOTHING)
        return found

    async def stop(self, *_: Any) -> str:
        """End the experiment after the decisions made so far; the results follow once their values are taken in."""
        self.newest()
        return _json({"ended": await self._writer.ask("read", lambda store: store.end("its owner stopped it"))})

    async def curve(self, *_: Any) -> str:
        """RAW DATA, for the owner: means of rewards in parts of the run."""
        if not self._config.curves:
            raise Refusal(403, "page.curves is not set: no raw means are kept")
        return _json({"raw": True, "curve": await self._writer.ask("read", Store.curve)})

    async def apprentice(self, *_: Any) -> str:
        """RAW DATA, for the owner: what the bandit would have got."""
        if not (self._config.curves and self._config.apprentice):
            raise Refusal(403, "page.curves is not set, or the mode is not apprentice: nothing raw is kept")
        return _json({"raw": True, "apprentice": await self._writer.ask("read", Store.apprentice)})

    async def health(self, *_: Any) -> str:
        """Whether this worker can decide."""
        writer = self._writer
        database = "away" if writer.away else "there" if writer.confirmed else "unconfirmed"
        return _json({"release": self.newest().number, "database": database})

    async def live(self, *_: Any) -> str:
        """Whether this process answers: if not, start it again."""
        return _json({"live": True})

    async def ready(self, *_: Any) -> str:
        """Whether this worker can decide and write down: if not, send requests elsewhere."""
        writer = self._writer
        wanted = {
            "a release": writer.released,
            "the database": not writer.away,
            "a confirmed lineage": writer.confirmed,
        }
        missing = [name for name, there in wanted.items() if not there]
        if missing:
            raise Refusal(503, f"not ready: it lacks {' and '.join(missing)}")
        return _json({"ready": True})

    async def metrics(self, _: None, caller: Client | None) -> str:
        """Counts and times; of rewards, for the owner alone.

        That a reward came, and when, is a person's data (it may be missing).
        """
        lines = []
        for name, number in (await self._writer.ask("read", Store.counts)).items():
            lines += [f"# TYPE dpbandits_{name}_total counter", f"dpbandits_{name}_total {number}"]
        gauges: dict[str, float] = {
            "clock_skew_seconds": round(self._writer.skew, 1),
            "confirmed": self._writer.confirmed,
        }
        if self._writer.released is not None:
            gauges["release"] = self._writer.released.number
        owner = caller is not None and caller.may(["own"])
        if owner:
            gauges["rewards_waiting"] = await self._writer.ask("read", Store.waiting)
        lines += gauge_lines(gauges)
        privacy = await self._writer.ask("read", lambda store: store.fact("privacy"))
        if privacy is not None and "ledger" in privacy:
            head, entries = privacy["ledger"]["head"], privacy["ledger"]["entries"]
            lines += ["# TYPE dpbandits_ledger_entries gauge", f'dpbandits_ledger_entries{{head="{head}"}} {entries}']
        lines += self._meter.text(private=frozenset() if owner else self._rewarding)
        return "\n".join(lines) + "\n"

    async def page(self, *_: Any) -> str:
        """The owner's page."""
        return _PAGE.read_text(encoding="utf-8")

    @cached_property
    def _schema(self) -> dict[str, Any]:
        return schema(self.routes)

    async def docs(self, *_: Any) -> str:
        """The schema, for people."""
        return manual(self._schema)

    async def openapi(self, *_: Any) -> str:
        """The schema."""
        return _json(self._schema)

    def _choose(self, asks: Sequence[Ask], released: Released, *, tell: bool) -> list[tuple[Choice, int]]:
        """What is written down, and what the bandit would have chosen; ``tell`` with which probability."""
        whose = [self._checked(ask, f"decisions.{i}") for i, ask in enumerate(asks)]
        offered = self._offered(asks)
        shell = released._shell  # which takes them as they are checked
        tell = tell and not self._config.apprentice
        indices, chances = self._drawn(shell, offered, tell=tell)
        found = []
        for i, (ask, X, who, bandit) in enumerate(zip(asks, offered, whose, indices, strict=True)):
            # estimates may be no probabilities
            index, chance = bandit, chances[i] if tell and 0 < chances[i] <= 1 else None
            if ask.chosen is not None:
                index, chance = ask.chosen, ask.probability
                if index >= shell.count(X):
                    raise Refusal(422, "chosen must be the index of an arm", [f"decisions.{i}"])
            arm = X if self._probe.takes == "context" else X[index]
            visit = visit_key(who, self._writer.key) if who is not None and self._once else None
            old = bandit if self._config.apprentice else None
            found.append((Choice(index, chance, arm, who, old, visit=visit), bandit))
        return found

    def _page(self, released: Released, X: Array) -> tuple[list[int], Array]:
        """The rows to show, by position, and their arms."""
        shell: Any = released._shell
        rows = shell.page(X, 1, shell.score_elsewhere, self._rng).rows
        return rows.tolist(), X[rows]

    def _drawn(self, shell: PrivatePolicy[Any], offered: Rounds, *, tell: bool) -> tuple[list[int], list[float]]:
        """The chosen indices, and how likely they were, which for some laws costs a hundred times what they do."""
        if len(offered) > 1:
            laws = shell.score_many_elsewhere(offered)
            made = Choices(laws.draw(self._rng), laws)
            return made.indices.tolist(), made.probabilities.tolist() if tell else [0.0] * len(made)
        law = shell.score_elsewhere(offered[0])  # of one, its own: the way of many takes longer for it
        if not isinstance(law, Law):
            return [int(law.argmax())], [1.0]
        index = int(law.draw(self._rng).argmax())
        return [index], [law.chance(index)[0] if tell else 0.0]

    def _checked(self, ask: Ask, at: str) -> str | None:
        """Whose decision it is, if all that it has besides numbers is what this service takes."""
        limits = self._config.limits
        given, other = (ask.arms, ask.context) if self._probe.takes == "arms" else (ask.context, ask.arms)
        if (given is None and self._probe.offer is not NOTHING) or other is not None:
            raise Refusal(422, f"this policy takes {self._probe.takes}, and nothing else", [at])
        if ask.arms is not None and len(ask.arms) > limits.arms:
            raise Refusal(422, f"at most {limits.arms} arms", [at])
        if (ask.chosen is None) == self._config.apprentice or (
            ask.probability is not None and not self._config.apprentice
        ):
            needed = "needed, and probability may be given," if self._config.apprentice else "(or probability) taken"
            raise Refusal(422, f"chosen is {needed} in apprentice mode, and only there", [at])
        return self._person(ask.person, at) if self._by_person else None

    def _offered(self, asks: Sequence[Ask], at: str = "decisions") -> Rounds:
        """The arms (or contexts) of decisions, checked: all at once where they have one shape."""
        if self._probe.takes == "arms" and len(asks) > 1 and len({len(ask.arms or ()) for ask in asks}) == 1:
            with suppress(ValueError, OverflowError):  # which of them it is, is found below
                stack = self._probe.checked_many(np.array([ask.arms for ask in asks], dtype=np.float64))
                if stack is not None:
                    return stack
        rounds = []
        for i, ask in enumerate(asks):
            given = [0.0] if ask.arms is None and ask.context is None else ask.context
            try:
                numbers = given if ask.arms is None else np.array(ask.arms, dtype=np.float64)
                rounds.append(self._probe.checked_arms(numbers))
            except (ValueError, OverflowError):
                what = "arms must be rows" if self._probe.takes == "arms" else "context must be a list"
                told = f"{what} of {self._probe.dim} numbers, of norm at most 1"
                raise Refusal(422, told, [f"{at}.{i}"]) from None
        return together(rounds) if len(rounds) > 1 else rounds

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
