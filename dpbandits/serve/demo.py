"""``dpbandits serve --demo``: a service, a crowd that it has never met, and the owner's page, in one command."""

from __future__ import annotations

import math
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from dpbandits.lab.environments import GLM, Slates
from dpbandits.serve.client import Client
from dpbandits.serve.clients import digest
from dpbandits.serve.config import Config
from dpbandits.serve.operate import init
from dpbandits.serve.supervise import Service

__all__ = ["CLIENTS", "configuration", "demo", "readers", "visitors"]

_ROUNDS, _TOGETHER = 20_000, 10  # people who come, and at once
_K, _RATE = 3, 0.1  # articles of a page, and how often one is clicked that is looked at
# of the demonstration, with their scopes
CLIENTS = {"decider": ["decide"], "learner": ["reward"], "owner": ["own"]}
_say = partial(print, flush=True)


def configuration(
    tokens: dict[str, str],
    *,
    dim: int,
    horizon: int,
    kind: str = "OnePassPrivateGLM",
    policy: str = "",
    storage: str = "",
    more: str = "",
) -> str:
    """A service's file for rewards of 0 and 1 at ε = 1; what is given goes behind the lines of a table."""
    digests = "\n".join(
        f'[clients.{name}]\ntokens = ["{digest(token)}"]\nscopes = {CLIENTS[name]}' for name, token in tokens.items()
    )
    reference = np.eye(dim)[: min(dim, 5)].tolist()
    return (
        f'[policy]\nclass = "{kind}"\ndim = {dim}\nhorizon = {horizon}\n{policy}\n'
        f'[budget]\nepsilon = 1.0\ndelta = 1e-6\nunit = "round"\n[storage]\n{storage}\n{digests}\n'
        f"[page]\ncurves = true\nreference = [{reference}]\n{more}\n"
    )


def demo(port: int = 8000, *, pages: bool = False) -> None:
    """Run it until Ctrl-C, with ``pages`` of three arms or with one; all is in a temporary folder, which is deleted."""
    tokens = {role: secrets.token_urlsafe(24) for role in CLIENTS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.toml"
        shown = {"kind": "SlatePrivateGLM", "policy": f"k = {_K}\nbase_rate = {_RATE}"} if pages else {}
        text = configuration(tokens, dim=5, horizon=_ROUNDS, more=f"[service]\nport = {port}", **shown)
        path.write_text(text, encoding="utf-8")
        init(Config.read(path))
        service, ended = Service(path), threading.Event()
        _say(f"the owner's page: {service.url}/#{tokens['owner']}")
        _say(f"a simulated crowd of {_ROUNDS} rounds comes in; Ctrl-C ends everything")
        crowd = readers if pages else visitors
        people = threading.Thread(target=_come, args=(crowd, service.url, tokens, ended), daemon=True)
        begun = time.monotonic()
        people.start()
        service.run()
        ended.set()
        people.join(5.0)
        _say(f"ended after {time.monotonic() - begun:.0f} s")


# of some people: what the choices gained, and what arms taken at random would have
Crowd = Iterator[tuple[float, float]]


def visitors(decider: Client, teller: Client) -> Crowd:
    """People who are shown one arm of ten, and send a reward."""
    source = GLM(5, arms=10).episode(np.random.default_rng())
    while True:
        people = [next(source) for _ in range(_TOGETHER)]
        decisions = decider.decide(*({"arms": one.arms.tolist()} for one in people))
        pairs = list(zip(people, decisions, strict=True))
        teller.reward(*((found["id"], one.reward(found["index"])) for one, found in pairs))
        means = [(one.means, found["index"]) for one, found in pairs if one.means is not None]
        yield sum(float(one[index]) for one, index in means), sum(float(one.mean()) for one, _ in means)


def readers(decider: Client, teller: Client) -> Crowd:
    """People who are shown a page of three articles of ten, and click on the first that attracts them."""
    world = Slates(5, arms=10, k=_K, offset=math.log(_RATE / (1.0 - _RATE)))
    source, names = world.episode(np.random.default_rng()), [f"article {n}" for n in range(10)]
    while True:
        people = [next(source) for _ in range(_TOGETHER)]
        pages = decider.slates(*({"names": names, "arms": one.arms.tolist()} for one in people))
        pairs = [
            (one, page["id"], [names.index(name) for name in page["slate"]])
            for one, page in zip(people, pages, strict=True)
        ]
        teller.reward(*((id, one.clicks(rows)) for one, id, rows in pairs))
        yield sum(one.value(rows) for one, _, rows in pairs), sum(one.value(range(_K)) for one in people)


def _come(crowd: Callable[[Client, Client], Crowd], url: str, tokens: dict[str, str], ended: threading.Event) -> None:
    """Let people come, one group after the other."""
    gained, chance, played = 0.0, 0.0, 0
    try:
        for more, random in crowd(Client(url, tokens["decider"]), Client(url, tokens["learner"])):
            gained, chance, played = gained + more, chance + random, played + _TOGETHER
            if played >= _ROUNDS or ended.is_set():
                break
    except Exception as error:
        _say(f"the crowd has gone: {type(error).__name__}")
        return
    gained, chance = gained / max(1, played), chance / max(1, played)
    _say(f"the crowd has gone: mean reward {gained:.3f}, of arms taken at random {chance:.3f}")
