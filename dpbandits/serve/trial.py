"""An experiment in service: its parameters, how its learner ends it, and what its owner may look at.

An experiment's policy is served like any other, and three things are its own:

* *It ends*: by what it has found, at a date, or because its owner says so. From then on decisions count for nothing, as
  those beyond a horizon. The end is a fact in the database, the number of the last decision that counts; what had come
  before it is taken in first. Where the end follows from a release, decisions that were made meanwhile do not count.
* *A person has one decision*: whoever comes again is given that of the first time (:meth:`.store.Store.visit`). Which
  decisions are whose is public; the database keeps keyed hashes of persons for it, as confidential as the persons.
* *Results* are published with every release. They hold released sums and public counts only, so that whoever looks at
  them, however often, costs nothing (:class:`dpbandits.experiment.ExperimentResults`).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from inspect import Parameter, signature
from typing import Any

from accounting import Budget
from dpbandits.durability.state import config_of
from dpbandits.experiment.experiment import Experiment
from dpbandits.experiment.page import page
from dpbandits.experiment.results import ExperimentResults
from dpbandits.serve.toml import only

__all__ = ["RESULTS", "arguments_of", "page_of", "visit_key"]

# the name of a fact in the database
RESULTS = "results"


def arguments_of(given: Mapping[str, Any], budget: Budget) -> dict[str, Any]:
    """The policy's parameters, from those that :class:`dpbandits.Experiment` takes, as a file has them.

    Raises
    ------
    ValueError
        For a parameter that is unknown, missing or out of range, or more than one metric.
    """
    known = signature(Experiment).parameters.values()
    named = [one for one in known if one.kind is not Parameter.VAR_KEYWORD and one.name != "budget"]
    only("policy", given, {"on_violation", *(one.name for one in named)})
    for one in named:
        if one.default is Parameter.empty and one.name not in given:
            raise ValueError(f"policy.{one.name} must be given: Experiment has no default for it")
    arguments: dict[str, Any] = {key: tuple(value) if key == "metric_range" else value for key, value in given.items()}
    if len(metrics := given.get("metrics", {})) > 1:
        raise ValueError(f"policy.metrics must be one in a service, whose rewards are single numbers, got {metrics!r}")
    made = config_of(Experiment(**arguments, budget=budget).policy)
    return {name: value for name, value in made.items() if name not in ("budget", "label")}


def page_of(results: Mapping[str, Any]) -> str:
    """The page of results that were published."""
    return page(ExperimentResults.from_dict(results))


def visit_key(person: str, key: str) -> str:
    """The hash of a person by which the decision of the first time is found; ``key`` is the database's own."""
    return hmac.new(bytes.fromhex(key), person.encode(), sha256).hexdigest()
