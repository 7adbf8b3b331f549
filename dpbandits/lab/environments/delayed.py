"""Rewards that come late, out of order, or never."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.checks import fraction, integer, positive
from dpbandits.lab.environments.base import Environment, Round, Wrapper
from dpbandits.policy.checks import real_array

__all__ = ["Delayed"]

Delay = int | Literal["geometric"] | Callable[[np.random.Generator], int | None] | ArrayLike


class Delayed(Wrapper):
    """Another environment whose rewards are told late.

    A reward of delay m is told when m further rounds have been played; rounds of different delays overtake each
    other, and a reward that is due after the last round is never told. Reward and regret count in the round of the
    decision, told or not. The delays are a function of the seed: the same for all policies, whatever they choose.

    Parameters
    ----------
    environment : Environment
        Any one; its rounds stay as they are, but for delays of its own.
    delay : int, "geometric", callable or array_like
        A number of rounds for all; or geometric on 0, 1, 2, … with mean ``mean``; or a function that draws a delay
        from the generator that it is given, where None stands for a reward that never comes; or delays that were
        observed, of which every round draws one, where −1 stands for such a reward.
    mean : float
        Of the geometric delay.
    missing : float
        The probability in [0, 1] that a reward never comes, besides.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range, and in an episode for a delay that is no number of rounds.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.lab.environments import GLM
    >>> rounds = Delayed(GLM(dim=3), delay="geometric", mean=5, missing=0.2).episode(np.random.default_rng(1))
    >>> [next(rounds).delay for _ in range(6)]
    [0, 5, None, None, 0, 0]
    """

    def __init__(
        self, environment: Environment, *, delay: Delay = "geometric", mean: float = 100.0, missing: float = 0.0
    ) -> None:
        if isinstance(delay, str):
            if delay != "geometric":
                raise ValueError(f"delay must be a number of rounds, 'geometric' or a function, got delay={delay!r}")
            title = f"delays around {mean:g}"
        elif callable(delay):
            title = "delays"
        elif hasattr(delay, "__len__"):
            delay = _observed(delay)
            title = f"{len(delay):,} observed delays around {delay[delay >= 0].mean() if (delay >= 0).any() else 0:.3g}"
        else:
            delay = integer("delay", delay, at_least=0)
            title = f"delay {delay}"
        self.delay = delay
        self.mean = positive("mean", mean)
        self.missing = fraction("missing", missing, include_zero=True, include_one=True)
        super().__init__(environment, title + (f", {100 * self.missing:g} % missing" if self.missing else ""))

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """The rounds of the wrapped episode, with delays."""
        own = rng.spawn(1)[0]
        for now in self.environment.episode(rng):
            missing = own.random() < self.missing
            delay = self._draw(own)
            yield replace(now, delay=None if missing else delay)

    def _draw(self, rng: np.random.Generator) -> int | None:
        if isinstance(self.delay, str):
            return int(rng.geometric(1.0 / (1.0 + self.mean))) - 1
        if isinstance(self.delay, np.ndarray):
            observed = int(self.delay[rng.integers(len(self.delay))])
            return None if observed < 0 else observed
        if not callable(self.delay):
            return self.delay
        delay = self.delay(rng)
        return None if delay is None else integer("delay", delay, at_least=0)


def _observed(delay: object) -> NDArray[np.float64]:
    """Whole numbers of rounds, −1 for never."""
    found = real_array("delay", delay)  # type: ignore[arg-type]
    if found.ndim != 1 or not len(found):
        raise ValueError(f"delay must be a list of at least one delay, got an array of shape {found.shape}")
    bad = np.flatnonzero(~((found >= -1) & (found == np.round(found)) & np.isfinite(found)))
    if len(bad):
        raise ValueError(
            f"delay must hold whole numbers of rounds, 0 and above, or -1 for never, got {found[bad[0]]:g} in place "
            f"{bad[0]}"
        )
    return found
