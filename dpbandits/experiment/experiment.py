"""Experiment: an A/B/n test from its first decision to its last, private, and open to be looked at at any time.

For whoever shows everybody one of a few things and wants to know which is best, how sure that is, and when to stop.
``assign`` says what somebody gets, ``record`` what came of it, ``results`` what is known: intervals and decisions that
hold at all times together, with the noise taken into account (:mod:`dpbandits.experiment.sequences` has the proofs), so
that looking every day costs no certainty, and no privacy.

Who is protected, how, and at what price: :mod:`dpbandits.experiment.policy`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import numpy as np

from accounting import Budget
from dpbandits.durability.decision_log import DecisionLog
from dpbandits.experiment.planning import plan
from dpbandits.experiment.policy import ExperimentPolicy
from dpbandits.experiment.published import results_in, results_of
from dpbandits.experiment.results import ExperimentResults
from dpbandits.experiment.stopping import stop_text
from dpbandits.policy.catalogue import Catalogue
from dpbandits.policy.decision import Decision, PrivacyReport

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["Experiment", "ExperimentOptions"]

# what a single metric is called
_ONE = "value"


class ExperimentOptions(TypedDict, total=False):
    """Keywords that an experiment shares with every private policy; see :class:`dpbandits.PrivatePolicy`."""

    on_violation: Literal["raise", "clip"]
    decision_log: str | Path | DecisionLog | None
    rng: np.random.Generator | None
    ledger: Ledger | None
    label: str | None
    checkpoint: str | Path | None


class Experiment:
    """An A/B/n test under differential privacy.

    Parameters
    ----------
    arms : int or list of str
        At least two names; a number K stands for "0", …, str(K − 1).
    budget : Budget
        What the whole experiment may cost, for one decision, or with ``unit="person"`` one person, replaced (or zeroed
        out). δ may be 0.
    horizon : int
        The most decisions there will be; ``Experiment.plan(…).horizon`` says how many are needed.
    metric_range : (float, float)
        Public; values outside are refused, or moved there with ``on_violation="clip"``.
    metrics : dict of str to (float, float), optional
        Several metrics, in place of ``metric_range``: their names and ranges. The first one decides (which arms are
        assigned, which is best); ``results().metrics`` has the others. They share the budget: one release is a vector,
        and with m metrics each has m times the Laplace noise of one, or √m times the Gaussian.
    alpha : float
        The probability with which any of the intervals, of the differences, or the best arm may ever be wrong.
    assignment : {"adaptive", "fixed"}
        "fixed": evenly, in blocks in which every arm comes once, in random order. "adaptive": to better arms more
        often (posterior draws; with ``stop_when="best"`` top-two sampling). All that ``results`` says holds for both;
        where means drift, arms are comparable with "fixed" only.
    baseline : str, optional
        The arm that others are compared with; by default the first one.
    missing : float or dict of str to float, optional
        What a decision whose value does not come in time counts as; by default the lower end of the range: no sale.
    wait : int
        So many further decisions a batch waits for values after its last decision; what comes later does not count.
    stop_when : {"best", "futile"}, date, str or None
        "best": end when the best arm is known. "futile": end when no arm is better than the baseline by ``worthwhile``.
        A date or moment (or its ISO text; UTC if it does not say): make no decision from then on.
    worthwhile : float
        For "futile", in units of the metric.
    **options
        ``rng``, ``ledger``, ``label``, ``checkpoint``, ``decision_log``, ``on_violation``: see
        :class:`dpbandits.PrivatePolicy`, also for errors.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range: fewer than two arms, one name twice. Nothing is charged.
    BudgetExceeded
        If the ledger has not enough left.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpbandits import Experiment
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> test = Experiment(["old", "new"], budget=Budget(1.0, 0.0, unit="person"), horizon=4000, assignment="fixed",
    ...                   stop_when="best", rng=rng)
    >>> print(test.results().verdict)
    No information yet: no batch was released.
    >>> for person in range(4000):
    ...     if test.stopped:
    ...         break
    ...     decision = test.assign(person=person)
    ...     test.record(decision, float(rng.random() < {"old": 0.1, "new": 0.2}[decision.name]))
    >>> results = test.results()
    >>> print(results.verdict)
    new is best (wrong with probability at most 0.05, however often anybody looks).
    >>> low, high = results.difference("new", "old")
    >>> low < 0.1 < high
    True
    """

    plan = staticmethod(plan)
    results_in = staticmethod(results_in)

    def __init__(
        self,
        arms: int | Sequence[str],
        *,
        budget: Budget,
        horizon: int,
        metric_range: tuple[float, float] = (0.0, 1.0),
        metrics: Mapping[str, tuple[float, float]] | None = None,
        alpha: float = 0.05,
        assignment: Literal["adaptive", "fixed"] = "adaptive",
        baseline: str | None = None,
        missing: float | Mapping[str, float] | None = None,
        wait: int = 0,
        stop_when: Literal["best", "futile"] | date | str | None = None,
        worthwhile: float = 0.0,
        **options: Unpack[ExperimentOptions],
    ) -> None:
        names = Catalogue(arms).names
        ranges = {_ONE: metric_range} if metrics is None else dict(metrics)
        told = missing if isinstance(missing, Mapping) else {} if missing is None else dict.fromkeys(ranges, missing)
        self.policy = ExperimentPolicy(
            names,
            budget=budget,
            horizon=horizon,
            metrics=ranges,
            alpha=alpha,
            assignment=assignment,
            baseline=names[0] if baseline is None else baseline,
            missing=told,
            wait=wait,
            stop_when=stop_text(stop_when),
            worthwhile=worthwhile,
            **options,
        )

    def __repr__(self) -> str:
        own = self.policy
        state = f", ended: {own.public.stopped}" if own.public.stopped else ""
        return f"Experiment({own.arms}): {own.decisions:,} of {own.horizon:,} decisions, {own.promise()}{state}"

    # ---------------------------------------------------------------------------------------------- decisions

    def assign(self, person: str | bytes | int | None = None) -> Decision:
        """Decide what somebody gets: ``decision.name``, one of the arms.

        Parameters
        ----------
        person : str, bytes or int, optional
            Whose decision it is: needed where the budget's unit is a person, and refused elsewhere. A person has one
            decision in the whole experiment: whoever comes again gets the same one, of the same arm.

        Raises
        ------
        ValueError
            If the experiment has ended (``stopped`` says why), or its horizon is used up; or a person is missing, or
            given where the unit is a round.
        """
        own = self.policy
        if person is not None and own.persons is None:
            raise ValueError(
                f"person must not be given where the budget's unit is a {own.budget.unit}, as each visit is a decision "
                f"of its own there: make it Budget(..., unit='person'), got person={person!r}"
            )
        own.end_by_date(time.time())
        return own.select(person=person)

    def record(self, decision: Decision | int, value: float | Mapping[str, float | None] | None) -> None:
        """Take in what came of a decision (given itself or by its id); None is a value that will never come.

        Of several metrics all values are told at once, by their names; one that is not told counts as ``missing``. What
        comes after its batch was released, or after the end, does not count, and is passed over.

        Raises
        ------
        ValueError
            If the decision is unknown or has its value already, or the value is no number or outside of the range.
            The experiment is as it was.
        """
        self.policy.update(decision, value)

    @property
    def stopped(self) -> str:
        """Why no further decision is made; empty while the experiment runs."""
        own = self.policy
        own.settle()
        own.end_by_date(time.time())
        used = "" if own.decisions < (own.horizon or 0) else "the horizon is used up"
        return own.public.stopped or used

    def stop(self) -> ExperimentResults:
        """End the experiment: no further decision is made; the results.

        Open batches of at least half their planned length are released first, so wait until values have come. Do not
        stop because of single persons' values, but for what ``results`` says, or for reasons from elsewhere.
        """
        self.policy.end("somebody stopped it")
        return self.results()

    # ------------------------------------------------------------------------------------------------ results

    def results(self) -> ExperimentResults:
        """What is known now, from what has been released. It costs nothing, and may be asked for at any time."""
        self.policy.settle()
        return results_of(self.policy)

    def privacy(self, delta: float | None = None) -> PrivacyReport:
        """What has been spent and what is left, at ``delta`` (by default the budget's)."""
        return self.policy.privacy(delta)

    # -------------------------------------------------------------------------------------------------- state

    def save(self, path: str | Path) -> None:
        """Write the whole state to a file that only its owner can read, as every policy does: as confidential as data.

        With ``checkpoint=`` the state is kept by itself at every release, and nothing recorded is lost in a crash.
        """
        self.policy.save(path)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        ledger: Ledger | None = None,
        unattended: bool = False,
        checkpoint: str | Path | None = None,
        decision_log: str | Path | DecisionLog | None = None,
    ) -> Experiment:
        """Go on from a saved state or a checkpoint; the arguments are those of :meth:`dpbandits.Policy.load`."""
        more: dict[str, Any] = {"ledger": ledger, "unattended": unattended, "checkpoint": checkpoint}
        made: Experiment = object.__new__(cls)
        policy = ExperimentPolicy.load(path, decision_log=decision_log, **more)
        if not isinstance(policy, ExperimentPolicy):
            raise TypeError(f"path must hold the state of an experiment, got a {type(policy).__name__}")
        made.policy = policy
        return made
