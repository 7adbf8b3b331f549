"""Simulated readers for the service of pages.toml: each is shown three articles, and clicks on the first good one.

mkdir -p data && dpbandits serve init pages.toml && dpbandits serve pages.toml &
python readers.py http://localhost:8000 2000
"""

import sys

import numpy as np

from dpbandits.lab.environments import Slates
from dpbandits.serve.client import Client


def main(url: str, readers: int) -> None:
    """Show a page to so many readers, and say how many of them clicked."""
    rng = np.random.default_rng()
    world = Slates(5, arms=12, k=3).episode(rng)
    decider, teller = Client(url, "decider"), Client(url, "learner")
    clicked = chance = 0.0
    for _ in range(readers):
        reader = next(world)
        names = [f"article {n}" for n in range(len(reader.arms))]
        (page,) = decider.slates({"names": names, "arms": reader.arms.tolist()})
        rows = [names.index(name) for name in page["slate"]]
        # a page that was shown while the database was away has a ticket in the place of an id
        id = page["id"] or decider.activate(page["ticket"])[0]["id"]
        teller.reward((id, reader.clicks(rows)))  # up to the first click
        clicked += reader.value(rows)
        chance += reader.value([0, 1, 2])
    print(f"clicks on a page {clicked / readers:.3f}; on articles taken at random {chance / readers:.3f}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
