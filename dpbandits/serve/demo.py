"""``dpbandits serve --demo``: a service, a crowd that it has never met, and the owner's page, in one command."""

from __future__ import annotations

import secrets
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpbandits.lab.environments import GLM
from dpbandits.serve.client import Client
from dpbandits.serve.config import digest
from dpbandits.serve.supervise import Service

__all__ = ["configuration", "crowd", "demo"]

_TOGETHER = 10  # people who come at once


def configuration(
    tokens: dict[str, str], *, dim: int, horizon: int, policy: str = "", storage: str = "", more: str = ""
) -> str:
    """A service's file for rewards of 0 and 1 at ε = 1; what is given goes behind the lines of a table."""
    digests = "\n".join(f'{role} = ["{digest(token)}"]' for role, token in tokens.items())
    reference = np.eye(dim)[: min(dim, 5)].tolist()
    return (
        f'[policy]\nclass = "OnePassPrivateGLM"\ndim = {dim}\nhorizon = {horizon}\n{policy}\n'
        f'[budget]\nepsilon = 1.0\ndelta = 1e-6\nunit = "round"\n[storage]\n{storage}\n[tokens]\n{digests}\n'
        f"[page]\ncurves = true\nreference = [{reference}]\n{more}\n"
    )


def crowd(
    url: str, tokens: dict[str, str], environment: GLM, rounds: int, rng: np.random.Generator, stop: Callable[[], bool]
) -> tuple[float, float]:
    """People who come, are served, and send a reward: the mean reward of the choices, and of arms taken at random."""
    decider, teller = Client(url, tokens["decider"]), Client(url, tokens["learner"])
    source = environment.episode(rng)
    gained, chance, played = 0.0, 0.0, 0
    while played < rounds and not stop():
        people = [next(source) for _ in range(min(_TOGETHER, rounds - played))]
        decisions = decider.decide(*({"arms": one.arms.tolist()} for one in people))
        pairs = list(zip(people, decisions, strict=True))
        teller.reward(*((found["id"], one.reward(found["index"])) for one, found in pairs))
        gained += sum(float(one.means[found["index"]]) for one, found in pairs if one.means is not None)
        chance += sum(float(one.means.mean()) for one in people if one.means is not None)
        played += len(people)
    return gained / max(1, played), chance / max(1, played)


def demo(port: int = 8000, *, rounds: int = 20_000, say: Callable[[str], None] = print) -> None:
    """Run it until Ctrl-C; everything is in a temporary folder, which is deleted at the end."""
    tokens = {role: secrets.token_urlsafe(24) for role in ("decider", "learner", "owner")}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.toml"
        text = configuration(tokens, dim=5, horizon=rounds, more=f"[service]\nport = {port}")
        path.write_text(text, encoding="utf-8")
        service = Service(path)
        ended = threading.Event()

        def come() -> None:
            world = GLM(5, arms=10)
            try:
                gained, chance = crowd(service.url, tokens, world, rounds, np.random.default_rng(), ended.is_set)
            except Exception as error:
                say(f"the crowd has gone: {type(error).__name__}")
                return
            say(f"the crowd has gone: mean reward {gained:.3f}, of arms taken at random {chance:.3f}")

        say(f"the owner's page: {service.url}/#{tokens['owner']}")
        say(f"a simulated crowd of {rounds} rounds comes in; Ctrl-C ends everything")
        people = threading.Thread(target=come, daemon=True)
        begun = time.monotonic()
        people.start()
        service.run()
        ended.set()
        people.join(5.0)
        say(f"ended after {time.monotonic() - begun:.0f} s")
