"""The file in which a simulation keeps every run as it ends, so that another one can go on where it stopped.

JSON lines: one that says what is simulated (the environment and its first rounds on seed 0, the number of rounds and
of points), one per call of ``simulate`` with the runs that were asked for, and one per run. A run is one write at the
end of the file: what is there is whole, but for a last line that a crash may have cut, which is dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dpbandits.lab.environments.base import Environment, Wrapper
from dpbandits.lab.simulation.play import Game, Played, Task, generator, parameters
from dpbandits.lab.simulation.runs import Run, entry, from_entry

__all__ = ["RunLog", "read"]

_FORMAT = "dpbandits-runs-1"
# how much of an environment is compared
_ROUNDS, _NUMBERS = 10, 2**16


class RunLog:
    """The runs of one environment in a file that grows.

    Parameters
    ----------
    path : Path
        A ``.jsonl`` file; made if there is none.
    game : Game
        What is simulated.

    Attributes
    ----------
    runs : dict
        The runs in the file, by policy and seed.

    Raises
    ------
    ValueError
        If the file is of another environment, number of rounds or number of points, or no such file.
    """

    def __init__(self, path: Path, game: Game) -> None:
        if path.suffix.lower() != ".jsonl":
            raise ValueError(f"resume must end in .jsonl, got {path}")
        self.path, self.game = path, game
        environment, grid = game.environment, game.grid
        head = {"format": _FORMAT, "environment": environment.name, "rounds": int(grid[-1]), "points": len(grid)}
        head |= _world(environment)
        self.runs: dict[Task, Run] = {}
        self._made: dict[Task, dict[str, str]] = {}
        if not path.exists() or not path.stat().st_size:
            self._write(head)
            return
        try:
            before, *lines = _whole_lines(path)
            for line in lines:
                if "seed" in line:
                    run = from_entry(line)
                    self.runs[run.policy, run.seed] = run
                    self._made[run.policy, run.seed] = line["parameters"]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"resume must be a file of runs that this package wrote, got {path}: {error}") from error
        # an older file may say less of an environment
        if name := _difference(before, {name: value for name, value in head.items() if name in before}):
            raise ValueError(
                f"resume must be a file of the same {name}, got {head.get(name)}, but {path} has {before.get(name)}"
            )
        with path.open("ab") as file:  # without a last line that was cut
            file.truncate(path.read_bytes().rfind(b"\n") + 1)

    def plan(self, seeds: Sequence[int]) -> None:
        """Check that policies of the same name have the same parameters, and note what is asked for.

        Raises
        ------
        ValueError
            Naming the policy that differs.
        """
        for name in self.game.policies:
            seed = next((seed for seed in seeds if (name, seed) in self.runs), None)
            if seed is None:
                continue
            before, now = self._made[name, seed], parameters(self.game.policy(name, seed))
            if which := _difference(before, now):
                raise ValueError(
                    f"policy {name!r} must have the {which} that it has in {self.path}, {before.get(which)}, "
                    f"or be given another name, got {which}={now.get(which)}"
                )
        self._write({"policies": list(self.game.policies), "seeds": list(seeds)})

    def add(self, played: Played) -> None:
        """Keep one more run."""
        run, made = played
        self._write(entry(run) | {"parameters": made})

    def _write(self, line: dict[str, Any]) -> None:
        with self.path.open("ab", buffering=0) as file:
            file.write((json.dumps(line, allow_nan=False) + "\n").encode())
            os.fsync(file.fileno())


def read(path: Path) -> tuple[str, tuple[Run, ...], int]:
    """The environment's name, all runs in the file, whichever call asked for them, and how many were planned."""
    head, *rest = _whole_lines(path)
    plans = [line for line in rest if "seeds" in line]
    planned = {(name, seed) for plan in plans for name in plan["policies"] for seed in plan["seeds"]}
    names = list(dict.fromkeys(name for plan in plans for name in plan["policies"]))
    runs = {(line["policy"], line["seed"]): from_entry(line) for line in rest if "seed" in line}
    ordered = sorted(runs.values(), key=lambda run: (names.index(run.policy), run.seed))
    return head["environment"], tuple(ordered), len(planned)


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    """All lines of a file of runs, but for a last one that was cut.

    Raises
    ------
    ValueError
        If it is another kind of file.
    """
    lines = [json.loads(line) for line in path.read_bytes().rpartition(b"\n")[0].splitlines()]
    if not (lines and all(isinstance(line, dict) for line in lines) and lines[0].get("format") == _FORMAT):
        raise ValueError(f"the first line must be of format {_FORMAT!r}")
    return lines


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """The first name under which the two differ."""
    return next((name for name in now | before if before.get(name) != now.get(name)), None)


def _world(environment: Environment) -> dict[str, str]:
    """The environment's plain attributes and a digest of its first rounds on seed 0, as text."""
    plain = {}
    layer: Any = environment
    prefix = "environment."
    while layer is not None:
        for name, value in getattr(layer, "__dict__", {}).items():
            if not name.startswith("_") and isinstance(value, (bool, int, float, str, tuple)):
                plain[prefix + name] = repr(value)
        layer = layer.environment if isinstance(layer, Wrapper) else None
        prefix += "environment."
    digest = hashlib.sha256()
    numbers = 0
    for now in islice(environment.episode(generator(0)), _ROUNDS):
        for values in (now.arms, now.rewards, now.means, now.context, now.delay):
            # in single precision, so that the last digits, in which machines differ, do not count
            digest.update(b"none" if values is None else np.asarray(values, np.float32).tobytes())
        numbers += now.arms.size
        if numbers > _NUMBERS:
            break
    return plain | {"environment's first rounds": digest.hexdigest()[:16]}
