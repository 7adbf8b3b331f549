"""Experiments, from a plan to a decision: which file answers which question.

==================  =================================================================================================
:mod:`.experiment`  ``Experiment``: assign, record, look, stop
:mod:`.results`     what is known: means, intervals, differences, the best arm; as text, JSON, picture, page
:mod:`.planning`    ``plan``: how many persons are needed
:mod:`.analysis`    ``analyse``: a table of people who were split already
:mod:`.policy`      who is protected at what price; how arms are assigned and batches released
:mod:`.setting`     what is fixed before the first decision; :mod:`.metrics`: what is measured
:mod:`.readings`    what has been released since; :mod:`.published` makes results of it
:mod:`.sequences`   why intervals hold at all times, noise included: the proofs, and how they are computed
:mod:`.batches`     how often is something released?
:mod:`.stopping`    when is the best arm known, when is it futile?
:mod:`.visits`      a person who comes again
:mod:`.page`        results as a page and as a picture; :mod:`.written`: as JSON
==================  =================================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpkit.lazy import attributes_of

if TYPE_CHECKING:
    from dpbandits.experiment.analysis import analyse
    from dpbandits.experiment.experiment import Experiment
    from dpbandits.experiment.planning import Plan, PlanRow, plan
    from dpbandits.experiment.results import ExperimentResults

__all__ = ["Experiment", "ExperimentResults", "Plan", "PlanRow", "analyse", "plan"]

_HOMES = {
    "Experiment": "dpbandits.experiment.experiment",
    "ExperimentResults": "dpbandits.experiment.results",
    "Plan": "dpbandits.experiment.planning",
    "PlanRow": "dpbandits.experiment.planning",
    "analyse": "dpbandits.experiment.analysis",
    "plan": "dpbandits.experiment.planning",
}

__getattr__, __dir__ = attributes_of(__name__, _HOMES)
