"""What the saved states of mechanisms, learners and policies share: checked entries, and their generators."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from reprlib import Repr
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpkit import randomness

__all__ = [
    "Kept",
    "array",
    "check_kind",
    "conform",
    "entry",
    "freeze",
    "generator",
    "generator_text",
    "in_units",
    "kept",
    "plain",
    "resume",
    "scalar",
    "short",
    "taken",
]


_LEAVES = frozenset({np.ndarray, int, float, bool, str, type(None)})


def conform(name: str, saved: Any, like: Any) -> Any:
    """``saved``, if it has the type of ``like``, and for arrays the shape, and is finite; ``name`` is for the message.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.states.entries import conform
    >>> conform("theta", np.ones(2), like=np.zeros(2))
    array([1., 1.])
    >>> conform("releases", -1, like=0)
    Traceback (most recent call last):
        ...
    ValueError: releases must be a number of the size of a count, got -1 of type int
    """
    if isinstance(like, np.ndarray):
        if not isinstance(saved, np.ndarray):
            raise ValueError(f"{name} must be an array, got {short(saved)}")
        return _copied(name, np.asarray(saved), like)
    if isinstance(like, bool) or like is None or isinstance(like, str):
        if type(saved) is not type(like):
            raise ValueError(f"{name} must be of type {type(like).__name__}, got {short(saved)}")
    elif isinstance(like, (int, np.integer)):
        if type(saved) is not int or not 0 <= saved < 2**62:
            raise ValueError(f"{name} must be a number of the size of a count, got {short(saved)}")
    elif isinstance(like, (float, np.floating)):
        if not isinstance(saved, (int, float)) or isinstance(saved, bool) or not abs(saved) < math.inf:
            raise ValueError(f"{name} must be a finite number, got {short(saved)}")
        return float(saved)
    else:
        raise TypeError(f"{name} must be an array, a number, a string or None to be kept, got a {type(like).__name__}")
    return saved


def kept(owner: Any, names: Iterable[str]) -> dict[str, Any]:
    """What a state keeps of these attributes: values as they are, and of parts with a state of their own that state."""
    return {name: plain(getattr(owner, name)) for name in names}


def resume(owner: Any, names: Iterable[str], saved: Any) -> None:
    """Take the attributes over that :func:`kept` returned; those of ``owner`` say what each may be.

    Raises
    ------
    ValueError
        If one is missing, too many, or not of the type and shape that it has in ``owner``.
    """
    for name, value in taken("state", saved, {name: getattr(owner, name) for name in names}).items():
        setattr(owner, name, value)


class Kept:
    """Base of what a state keeps by some of its attributes, and by nothing else.

    Examples
    --------
    >>> from dpkit.states.entries import Kept
    >>> class Count(Kept):
    ...     _KEPT = ("seen",)
    ...     seen = 0
    >>> count = Count()
    >>> count.resume({"seen": 3})
    >>> count.kept()
    {'seen': 3}
    """

    _KEPT: ClassVar[tuple[str, ...]]

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        return kept(self, self._KEPT)

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        resume(self, self._KEPT, saved)


def plain(value: Any) -> Any:
    """A value as a state keeps it: arrays copied, parts and dataclasses as trees."""
    if hasattr(value, "resume"):
        return value.kept()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value.copy() if isinstance(value, np.ndarray) else value


def taken(name: str, saved: Any, like: Any) -> Any:
    """A value that :func:`plain` wrote, checked against one ``like`` it; parts of ``like`` take over their states.

    Raises
    ------
    ValueError
        If an entry is missing, too many, or not of the type and shape that it has in ``like``.
    """
    if type(like) in _LEAVES:  # nearly all there is, and the other questions take longer than the answer
        return conform(name, saved, like)
    if hasattr(like, "resume"):
        like.resume(saved)
        return like
    if is_dataclass(like):
        entries = {field.name: getattr(like, field.name) for field in fields(like)}
        return replace(like, **taken(name, saved, entries))  # type: ignore[type-var]
    if isinstance(like, Mapping):
        if not isinstance(saved, Mapping) or set(saved) != set(like):
            found = short(sorted(map(str, saved)) if isinstance(saved, Mapping) else saved)
            raise ValueError(f"{name} must hold the entries {sorted(like)}, got {found}")
        return {one: taken(f"{name}.{one}", saved[one], value) for one, value in like.items()}
    if isinstance(like, (list, tuple)):
        if not isinstance(saved, list) or len(saved) != len(like):
            raise ValueError(f"{name} must hold {len(like)} entries, got {short(saved)}")
        return type(like)(taken(f"{name}[{i}]", *pair) for i, pair in enumerate(zip(saved, like, strict=True)))
    return conform(name, saved, like)


def freeze(value: Any) -> None:
    """Make the arrays in a tree read-only, also those of dataclasses in it."""
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    elif is_dataclass(value):
        freeze([getattr(value, field.name) for field in fields(value)])
    elif isinstance(value, (list, tuple, Mapping)):
        for one in value.values() if isinstance(value, Mapping) else value:
            freeze(one)


def in_units(saved: Any, units: Iterable[float]) -> Any:
    """The other entries of what is ``saved``, if its entry ``"units"`` holds these public constants.

    For sums that were scaled by them: those of a version with other constants would be taken for what they are not, and
    what is added to them would not fit the noise that is in them already.

    Raises
    ------
    ValueError
        If it holds others, up to 1e-9 of each (a machine may compute them a little differently), or none.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.states.entries import in_units
    >>> in_units({"sum": 3.0, "units": np.array([0.4])}, [0.4])
    {'sum': 3.0}
    >>> in_units({"sum": 3.0}, [0.4])
    Traceback (most recent call last):
        ...
    ValueError: units must be [0.4], by which sums are scaled here, got none: another version wrote the state, and ...
    """
    if not isinstance(saved, Mapping):
        return saved
    own, found = np.array(list(units)), saved.get("units")
    if found is None or (np.abs(conform("units", found, own) - own) > 1e-9 * np.abs(own)).any():
        got = "none" if found is None else found.tolist()
        raise ValueError(
            f"units must be {own.tolist()}, by which sums are scaled here, got {got}: another version wrote the state, "
            "and only that one can go on with it; or start a new run"
        )
    return {name: value for name, value in saved.items() if name != "units"}


def short(value: Any) -> str:
    """A value for an error's message: its beginning and type, without writing out what may be as large as a file."""
    return f"{_SHORT.repr(value)[:60]} of type {type(value).__name__}"


_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 60, 60


def check_kind(state: Mapping[str, Any], key: str, kind: str, version: int) -> None:
    """Refuse a state whose entry ``key`` names another class, or that another version wrote."""
    found = scalar(state, key), scalar(state, "version")
    if found != (kind, version):
        raise ValueError(f"state must come from {kind}, version {version}, got one of {found[0]}, version {found[1]}")


def array(state: Mapping[str, Any], name: str, like: NDArray[Any]) -> NDArray[Any]:
    """A copy of an entry that is finite and of the shape and type of ``like``."""
    return _copied(name, entry(state, name), like)


def _copied(name: str, saved: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
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
