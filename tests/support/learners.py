"""What tests look at within learners, or put in its place: their noise, their sums, one step of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
from factors import Given, noise_by, scale_noise

from dpkit.optimize import DPFTRL, ImplicitGradientDescent


def sums_of(learner: Any) -> Any:
    """The noisy prefix sums of a learner, or the stream of a run by DP-FTRL."""
    return learner._stream if isinstance(learner, DPFTRL) else learner._sums


def position_of(run: DPFTRL) -> Any:
    """Where a run is before it is projected."""
    return run._position


def gradients_of(run: DPFTRL) -> Any:
    """The sums of gradients over the units of a batch, before their noise: ``at(theta, part)``."""
    return run._sums


def gradients_by(run: DPFTRL, sums: Any) -> None:
    run._sums = sums


class Silent:
    """A mechanism, or prefix sums, without noise."""

    total: Any = 0.0

    def release(self, value: Any) -> Any:
        return value

    def add(self, value: Any) -> Any:
        self.total = self.total + value
        return self.total


class Louder:
    """A mechanism of which the noise is ``factor`` times what it claims."""

    def __init__(self, mechanism: Any, factor: float) -> None:
        self._mechanism, self._factor = mechanism, factor

    def release(self, value: Any) -> Any:
        return value + self._factor * (self._mechanism.release(value) - value)


def quiet(learner: Any) -> Any:
    """No noise."""
    if isinstance(learner, DPFTRL):
        noise_by(sums_of(learner), Given(np.zeros((learner.horizon * 8, learner.theta.size), dtype=np.int64)))
    elif isinstance(learner, ImplicitGradientDescent):
        learner._noise = silent = Silent()
        learner._mechanism = lambda sensitivity: silent
    else:
        learner._sums = Silent()
    return learner


def loud(learner: Any, factor: float) -> Any:
    """So many times the noise that it claims."""
    if isinstance(learner, ImplicitGradientDescent):
        mechanism = learner._mechanism
        learner._mechanism = lambda sensitivity: Louder(mechanism(sensitivity), factor)
        if learner.steps_from == "published":
            learner._noise = Louder(learner._noise, factor)
    else:
        scale_noise(sums_of(learner), factor)
    return learner


class Stepping:
    """Inside the block a run by DP-FTRL makes its steps by ``step(make)``, where ``make()`` is what it would do."""

    def __init__(self, run: DPFTRL, step: Any) -> None:
        self._run, self._step = run, step

    def __enter__(self) -> None:
        inner = self._run._step
        self._run._step = lambda: self._step(inner)

    def __exit__(self, *exception: object) -> None:
        del self._run._step
