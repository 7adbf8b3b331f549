"""What a run was begun with, kept in its database: a change between two starts is refused, or written down.

The guarantee rests on most of it: the policy's parameters, the budget, what a missing reward counts as and when, whose
choices are served, whether the noise is a simulation. Those are fixed for the run. What the owner's page shows may
change; each change is a new version, with its time.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np

from dpbandits.durability.state import config_of
from dpbandits.policy.private import PrivatePolicy
from dpbandits.serve.config import Config
from dpbandits.serve.database import Mismatch
from dpbandits.serve.store import Store

__all__ = ["amend", "check", "record", "terms_of"]

log = logging.getLogger("dpbandits.serve")

_LONGEST = 200
_FREE = ("page.curves", "page.reference")
# what earlier releases had no word for
_BEFORE = {"budget.scope": "None"}


def terms_of(config: Config, probe: PrivatePolicy[Any] | None = None) -> dict[str, str]:
    """The run's contract, by the names in its file; ``probe`` is a policy of it, if there is one."""
    probe = config.probe() if probe is None else probe
    own = {name: value for name, value in config_of(probe).items() if name not in ("budget", "label")}
    return {
        "policy.class": type(probe).__name__,
        **{f"policy.{name}": _short(value) for name, value in own.items()},
        "budget": repr(config.budget),
        "budget.scope": repr(config.scope),
        "service.label": config.label,
        "service.mode": "apprentice" if config.apprentice else "bandit",
        "features": repr(config.features),
        "rewards.wait": repr(config.wait),
        "rewards.default": repr(config.default),
        "simulation.seed": repr(config.seed),
        "page.curves": repr(config.curves),
        "page.reference": _short(config.reference),
    }


def _short(value: Any) -> str:
    text = repr(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) <= _LONGEST else f"sha256:{sha256(text.encode()).hexdigest()}"


def record(store: Store, terms: Mapping[str, str], now: float) -> None:
    """Write down a new run's contract; inside ``writing``."""
    store.note("contract", [{"version": 1, "at": now, "terms": dict(terms)}])


def check(store: Store, wanted: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """What has changed and may: by name, what was recorded and what the file says.

    Raises
    ------
    Mismatch
        If something has changed that is fixed, or nothing is recorded.
    """
    versions = store.fact("contract")
    if versions is None:
        raise Mismatch("`dpbandits serve init` (or `init --adopt`) was interrupted: call it again, and it is finished")
    recorded = {**_BEFORE, **versions[-1]["terms"]}
    changed = {name: (was, wanted[name]) for name, was in recorded.items() if wanted.get(name, was) != was}
    for name, (was, now) in changed.items():
        if name not in _FREE:
            raise Mismatch(
                f"{name} must stay what the run was begun with, {was}, got {now}: the guarantee rests on it; put it "
                f"back, or begin a new run with another service.label, database and checkpoint"
            )
    return changed


def amend(store: Store, wanted: Mapping[str, str], now: float) -> None:
    """Write down what has changed since the last start; inside ``writing``.

    Raises
    ------
    Mismatch
        If something has changed that is fixed.
    """
    changed = check(store, wanted)
    if not changed:
        return
    versions = store.fact("contract")
    terms = versions[-1]["terms"] | {name: new for name, (_, new) in changed.items()}
    store.note("contract", [*versions, {"version": len(versions) + 1, "at": now, "terms": terms}])
    log.warning("version %d of the run's contract: %s", len(versions) + 1, json.dumps(changed))
