"""``dpbandits serve --demo``: a service, a crowd that it has never met, and the owner's page, in one command."""

from __future__ import annotations

import secrets
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np

from dpbandits.lab.environments import GLM
from dpbandits.serve.client import Client
from dpbandits.serve.clients import digest
from dpbandits.serve.config import Config
from dpbandits.serve.operate import init
from dpbandits.serve.supervise import Service

__all__ = ["CLIENTS", "configuration", "demo"]

_ROUNDS, _TOGETHER = 20_000, 10  # people who come, and at once
# of the demonstration, with their scopes
CLIENTS = {"decider": ["decide"], "learner": ["reward"], "owner": ["own"]}
_say = partial(print, flush=True)


def configuration(
    tokens: dict[str, str], *, dim: int, horizon: int, policy: str = "", storage: str = "", more: str = ""
) -> str:
    """A service's file for rewards of 0 and 1 at ε = 1; what is given goes behind the lines of a table."""
    digests = "\n".join(
        f'[clients.{name}]\ntokens = ["{digest(token)}"]\nscopes = {CLIENTS[name]}' for name, token in tokens.items()
    )
    reference = np.eye(dim)[: min(dim, 5)].tolist()
    return (
        f'[policy]\nclass = "OnePassPrivateGLM"\ndim = {dim}\nhorizon = {horizon}\n{policy}\n'
        f'[budget]\nepsilon = 1.0\ndelta = 1e-6\nunit = "round"\n[storage]\n{storage}\n{digests}\n'
        f"[page]\ncurves = true\nreference = [{reference}]\n{more}\n"
    )


def demo(port: int = 8000) -> None:
    """Run it until Ctrl-C; everything is in a temporary folder, which is deleted at the end."""
    tokens = {role: secrets.token_urlsafe(24) for role in CLIENTS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.toml"
        text = configuration(tokens, dim=5, horizon=_ROUNDS, more=f"[service]\nport = {port}")
        path.write_text(text, encoding="utf-8")
        init(Config.read(path))
        service, ended = Service(path), threading.Event()
        _say(f"the owner's page: {service.url}/#{tokens['owner']}")
        _say(f"a simulated crowd of {_ROUNDS} rounds comes in; Ctrl-C ends everything")
        people = threading.Thread(target=_crowd, args=(service.url, tokens, ended), daemon=True)
        begun = time.monotonic()
        people.start()
        service.run()
        ended.set()
        people.join(5.0)
        _say(f"ended after {time.monotonic() - begun:.0f} s")


def _crowd(url: str, tokens: dict[str, str], ended: threading.Event) -> None:
    """People who come, are served, and send a reward."""
    decider, teller = Client(url, tokens["decider"]), Client(url, tokens["learner"])
    source = GLM(5, arms=10).episode(np.random.default_rng())
    gained, chance, played = 0.0, 0.0, 0
    try:
        while played < _ROUNDS and not ended.is_set():
            people = [next(source) for _ in range(min(_TOGETHER, _ROUNDS - played))]
            decisions = decider.decide(*({"arms": one.arms.tolist()} for one in people))
            pairs = list(zip(people, decisions, strict=True))
            teller.reward(*((found["id"], one.reward(found["index"])) for one, found in pairs))
            gained += sum(float(one.means[found["index"]]) for one, found in pairs if one.means is not None)
            chance += sum(float(one.means.mean()) for one in people if one.means is not None)
            played += len(people)
    except Exception as error:
        _say(f"the crowd has gone: {type(error).__name__}")
        return
    gained, chance = gained / max(1, played), chance / max(1, played)
    _say(f"the crowd has gone: mean reward {gained:.3f}, of arms taken at random {chance:.3f}")
