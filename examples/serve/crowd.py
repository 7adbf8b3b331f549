"""A simulated crowd for the service of run.toml: people come, are served, and send their reward a little later.

mkdir -p data && dpbandits serve init run.toml && dpbandits serve run.toml &
python crowd.py http://localhost:8000 5000
"""

import sys
from collections import deque

import numpy as np

from dpbandits.lab.environments import GLM
from dpbandits.serve.client import Client


def main(url: str, rounds: int) -> None:
    """Serve so many people, and say what the choices gained."""
    rng = np.random.default_rng()
    world = GLM(5, arms=10).episode(rng)
    decider, teller = Client(url, "decider"), Client(url, "learner")
    on_their_way: deque[tuple[str, float]] = deque()
    gained = chance = 0.0
    for _ in range(rounds):
        person = next(world)
        (decision,) = decider.decide({"arms": person.arms.tolist()})
        on_their_way.append((decision["id"], person.reward(decision["index"])))
        gained += person.means[decision["index"]]
        chance += person.means.mean()
        if len(on_their_way) >= 20:
            teller.reward(*(on_their_way.popleft() for _ in range(10)))
    teller.reward(*on_their_way)
    print(f"mean reward {gained / rounds:.3f}; of arms taken at random {chance / rounds:.3f}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
