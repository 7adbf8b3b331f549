"""``dpbandits quickstart``: private bandits on real film ratings."""

from __future__ import annotations

from pathlib import Path

from dpbandits.cli import options

__all__ = ["quickstart"]

_UNIT = (
    "GLB-OMD learns without privacy, and 'uniform' chooses by chance: a private policy lies between them, and what it "
    "lacks of the first is what privacy costs.\n\n"
    "The unit of privacy is one round (one user's choice among ten films), not one person: what is shown in all other "
    "rounds hardly depends on any one of them. A user of these data takes part in up to 159 rounds, and "
    "all of them together are protected less. In the rows that say 'person' the unit is one person, in all rounds "
    "together, however often they come: another policy, which learns from all rounds of everybody, with noise that "
    "hides any one."
)


def quickstart(
    seeds: options.Seeds = 20, jobs: options.Jobs = None, out: options.Out = Path(), as_json: options.AsJson = False
) -> None:
    """Recommend films from real ratings, privately and not: about a minute.

    Each of 6,393 rounds offers ten films that one user has rated; the reward is 1 if the chosen film was rated 4 or
    better. Uniform choice, which does not learn, is compared with GLB-OMD (not private) and with private bandits at
    ε = 1 and at ε = 4 (δ = 1e-5): one that protects single rounds, and one that protects persons.

    Prints a table with standard errors over seeds, and writes quickstart.png and quickstart.json.
    """
    from dpbandits.cli.policies import factories
    from dpbandits.cli.report import play
    from dpbandits.lab.environments import Films

    films = Films()
    known = [1.0, 4.0], 1e-5, films, films.rounds
    policies = factories(["uniform", "glb-omd", "one-pass-private"], *known)
    policies |= factories(["person-private"], *known, unit="person")
    play(policies, films, "quickstart", films.rounds, _UNIT, seeds=seeds, jobs=jobs, out=out, as_json=as_json)
