"""What the saved states of mechanisms and learners share: their entries, their generators, and going on once only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import Ledger, Release
from dpkit import randomness

__all__ = ["array", "check_kind", "entry", "generator", "generator_text", "record_restoration", "scalar"]


def check_kind(state: Mapping[str, Any], key: str, kind: str, version: int) -> None:
    """Refuse a state whose entry ``key`` names another class, or that another version wrote."""
    found = scalar(state, key), scalar(state, "version")
    if found != (kind, version):
        raise ValueError(f"state must come from {kind}, version {version}, got one of {found[0]}, version {found[1]}")


def array(state: Mapping[str, Any], name: str, like: NDArray[Any]) -> NDArray[Any]:
    """A copy of an entry that is finite and of the shape and type of ``like``."""
    saved = entry(state, name)
    if saved.shape != like.shape or saved.dtype != like.dtype or not np.isfinite(saved).all():
        expected = f"finite, {like.dtype} and of shape {like.shape}"
        raise ValueError(f"{name} must be {expected}, got {saved.dtype} of shape {saved.shape}")
    return saved.copy()


def entry(state: Mapping[str, Any], name: str) -> NDArray[Any]:
    """An entry, as an array."""
    if name not in state:
        raise ValueError(f"state must have an entry {name!r}, got entries {sorted(state)}")
    return np.asarray(state[name])


def scalar(state: Mapping[str, Any], name: str) -> Any:
    """One scalar entry of a state, as it was before ``numpy.savez``."""
    return entry(state, name).item()


def generator_text(rng: np.random.Generator) -> str:
    """The state of a simulation's generator as JSON; empty for the secure source, of which nothing is ever saved."""
    if not randomness.is_simulation(rng):
        return ""
    return json.dumps(rng.bit_generator.state, default=lambda value: value.tolist())


def generator(text: str, rng: np.random.Generator | None) -> np.random.Generator:
    """The generator of a restored stream: the caller's, else the saved simulation's, else the secure source.

    A private stream is never continued by a seeded generator: its ledger says that its noise is not a simulation.
    """
    if not text and rng is not None and randomness.is_simulation(rng):
        raise ValueError("rng must be None or secure to continue a private stream, got a seeded generator")
    if not text or rng is not None:
        return randomness.resolve(rng)
    return randomness.simulation_from(json.loads(text))


def record_restoration(ledger: Ledger, nonce: str, cost: Release, simulation: bool) -> None:
    """Note in the ledger that was charged with ``cost`` that the state of this nonce goes on; refuse a second time."""
    label = f"restored state {nonce}"
    rows = ledger.rows()
    if not any(row.release == cost for row in rows):
        raise ValueError(f"ledger must hold the cost of what is restored, {cost!r}, got {len(rows)} other rows")
    try:
        ledger.spend(0 * cost, label=label, simulation=simulation, unique=True)
    except ValueError as error:
        if any(row.label == label for row in ledger.rows()):
            raise ValueError(
                f"state must be restored once only, got state {nonce}, which the ledger knows as restored"
            ) from error
        raise
