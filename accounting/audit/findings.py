"""What an audit found: a lower bound on ε at a stated confidence, and the test that shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import SupportsFloat

from accounting.checks import nonnegative
from accounting.releases import Release
from accounting.totals import epsilon as proved_epsilon

__all__ = ["LowerBound", "OneRunBound", "PrivacyViolation", "SequentialBound"]


class PrivacyViolation(RuntimeError):
    """An audit found a lower bound above the claim; the message shows the offending test.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import audit
    >>> rng = np.random.default_rng(0)
    >>> def noisy(x, trials):
    ...     return x + rng.laplace(scale=0.5, size=trials)
    >>> found = audit.lower_bound(noisy, 1.0, 0.0, trials=20_000, delta=0.0, score=lambda out: out, batched=True)
    >>> try:
    ...     found.check(1.0)
    ... except audit.PrivacyViolation:
    ...     print("not 1-DP")
    not 1-DP
    """


@dataclass(frozen=True)
class _Finding:
    """What every audit reports.

    ``epsilon`` is below the true ε at ``delta`` with probability at least ``confidence``. ``mu`` is None unless the
    claim under test is Gaussian DP; then ``mu`` is below the true μ, and ``epsilon`` is what it means at ``delta``.
    """

    epsilon: float
    delta: float
    confidence: float
    mu: float | None

    def contradicts(self, claim: Release | SupportsFloat) -> bool:
        """Whether the bound is above ``claim``: an ε at this ``delta``, or a description of the release."""
        return self.epsilon > self._claimed(claim)

    def check(self, claim: Release | SupportsFloat) -> None:
        """Raise if the bound is above ``claim``.

        Parameters
        ----------
        claim : float or Release
            The ε that was claimed at this ``delta``, or a description, whose smallest proved ε is taken.

        Raises
        ------
        PrivacyViolation
            With the claim, the bound and the test that contradicts it.
        """
        claimed = self._claimed(claim)
        if self.epsilon > claimed:
            raise PrivacyViolation(f"claimed ε={claimed:.6g} at δ={self.delta:g}, but {self}")

    def _claimed(self, claim: Release | SupportsFloat) -> float:
        if isinstance(claim, Release):
            return float(proved_epsilon(claim, self.delta))
        return nonnegative("claim", claim)

    @property
    def evidence(self) -> str:
        """The test and its counts, in words."""
        raise NotImplementedError

    def __str__(self) -> str:
        found = f"ε ≥ {self.epsilon:.4g}" if self.mu is None else f"μ ≥ {self.mu:.4g}, hence ε ≥ {self.epsilon:.4g}"
        # never rounded up to 100 %
        return f"{found} at confidence 1 − {1 - self.confidence:.3g}: {self.evidence}"


@dataclass(frozen=True)
class LowerBound(_Finding):
    """The result of runs on two neighbouring inputs.

    Parameters
    ----------
    epsilon, delta, confidence, mu
        ``epsilon`` ≥ 0 is the bound at ``delta``; ``mu`` is set for a claim of Gaussian DP only.
    threshold : float
        Where the score was cut.
    tail : {">=", "<"}
        The event is ``score tail threshold``.
    likelier : {"data", "neighbour"}
        The input on which the event is the likelier one, which gives the direction of the bound.
    hits, trials : (int, int)
        How often the event happened in how many held-out runs: on the likelier input, then on the other.

    Examples
    --------
    >>> bound = LowerBound(2.0, 0.0, 0.95, None, 1.5, ">=", "data", (900, 100), (1000, 1000))
    >>> bound.contradicts(1.0), bound.contradicts(3.0)
    (True, False)
    >>> bound.check(1.0)
    Traceback (most recent call last):
        ...
    accounting.audit.findings.PrivacyViolation: claimed ε=1 at δ=0, but ε ≥ 2 at confidence 1 − 0.05: \
score >= 1.5 in 900 of 1000 runs on the data and in 100 of 1000 on the neighbour
    """

    threshold: float
    tail: str
    likelier: str
    hits: tuple[int, int]
    trials: tuple[int, int]

    @property
    def evidence(self) -> str:
        other = "neighbour" if self.likelier == "data" else "data"
        return (
            f"score {self.tail} {self.threshold:.6g} in {self.hits[0]} of {self.trials[0]} runs on the "
            f"{self.likelier} and in {self.hits[1]} of {self.trials[1]} on the {other}"
        )


@dataclass(frozen=True)
class OneRunBound(_Finding):
    """The result of one run with canaries.

    Parameters
    ----------
    epsilon, delta, confidence, mu
        As in :class:`LowerBound`.
    correct, guesses : int
        How many of the guesses on held-out canaries were right.
    included_guesses : int
        How many of the guesses said "included"; the others said "left out".
    canaries : int
        The number of held-out canaries.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import audit
    >>> rng = np.random.default_rng(0)
    >>> included = rng.integers(0, 2, size=2000).astype(bool)
    >>> found = audit.one_run(included + rng.normal(size=2000), included, delta=1e-5)
    >>> bool(0 < found.epsilon < 4.4)
    True
    """

    correct: int
    guesses: int
    included_guesses: int
    canaries: int

    @property
    def evidence(self) -> str:
        return (
            f"{self.correct} of {self.guesses} guesses right ({self.included_guesses} included, "
            f"{self.guesses - self.included_guesses} left out) among {self.canaries} canaries of one run"
        )


@dataclass(frozen=True)
class SequentialBound(_Finding):
    """The result of an audit that may be stopped at any time.

    Parameters
    ----------
    epsilon, delta, confidence, mu
        As in :class:`LowerBound`; with this confidence no bound of the same audit is above the truth, at any time.
        ``mu`` is None.
    correct, guesses : int
        How many of the guesses so far were right.
    canaries : int
        How many were added.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import audit
    >>> runs = audit.SequentialAudit(delta=0.0, canaries=1000)
    >>> included = np.random.default_rng(0).random(100) < 0.5
    >>> runs.add(included, included).contradicts(2.0)  # an output that gives every coin away
    True
    """

    correct: int
    guesses: int
    canaries: int

    @property
    def evidence(self) -> str:
        return f"bets on {self.guesses} guesses, of which {self.correct} were right, on {self.canaries} canaries"
