"""What all faults of the zoo have: a name, a source, and tests of two fixed names.

A fault is a small program of our own that is wrong in the way that somebody found in a library of differential privacy.
Its docstring says what was wrong. ``test_NAME_is_caught`` shows that an audit of this project finds it, and
``test_NAME_is_not_ours`` asks the same of what this project has in its place. ``docs/zoo.md`` lists them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pytest

from accounting import audit

#: Of every statistical audit: a sound mechanism is flagged with probability at most 1e-9 under other seeds.
CONFIDENCE = 1 - 1e-9

lower_bound = partial(audit.lower_bound, confidence=CONFIDENCE, batched=True)

_Program = TypeVar("_Program", bound=Callable[..., Any])


@dataclass(frozen=True)
class Fault:
    """Where a fault was published, and whether it leaks (or only spends more than it must)."""

    program: Callable[..., Any]
    sources: tuple[str, ...]
    leaks: bool

    @property
    def name(self) -> str:
        return self.program.__name__


FAULTS: dict[str, Fault] = {}


def published(*sources: str, leaks: bool = True) -> Callable[[_Program], _Program]:
    """List a program under where its fault was published: ``owner/name#issue`` or ``@commit``, ``arXiv:number``."""

    def listed(program: _Program) -> _Program:
        FAULTS[program.__name__] = Fault(program, sources, leaks)
        return program

    return listed


def is_caught(found: audit.LowerBound, claim: Any) -> None:
    """The audit contradicts the claim, and says so in both ways."""
    assert found.contradicts(claim), str(found)
    with pytest.raises(audit.PrivacyViolation, match="claimed ε"):
        found.check(claim)


def same_coins(release: Callable[[Any, np.random.Generator], Any], *inputs: Any, seed: int = 0) -> list[Any]:
    """What a mechanism releases on several inputs from the same coins: additive noise cancels in the differences."""
    return [release(one, np.random.default_rng(seed)) for one in inputs]
