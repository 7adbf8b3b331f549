"""What is known of releases that follow each other beyond the sum of their pairs: a place for theorems of that kind.

A sum of dominating pairs is a bound whatever follows what. For some releases the worst that each can do depends on what
was seen before, and playing that out costs less. Such theorems live in :mod:`accounting.adaptive`, and are entered here
by :mod:`accounting.adaptive.registry`; they are asked only where a part ``follows`` others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from accounting.compose.convolution import Parts
from accounting.loss.pair import LossPair

__all__ = ["Tightening", "registered"]


@dataclass(frozen=True)
class Tightening:
    """One theorem, by what it can do; every answer is a bound, or None where there is none.

    Parameters
    ----------
    joined : callable, optional
        Pairs with their counts → others in their place, that cost no more.
    in_place : callable, optional
        (parts, δ) → others in their place, that may cost less near δ. With ``again`` it is asked a second time for the
        δ that it led to.
    epsilon, delta : callable, optional
        (parts, δ, enough) → ε, and (parts, ε, enough) → δ, without a sum.
    less_epsilon, less_delta : callable, optional
        (parts, δ, ε) → an ε that is at most the one that the sum gave, and (parts, ε, δ) → such a δ.
    """

    joined: Callable[[Counter[LossPair]], Counter[LossPair]] | None = None
    in_place: Callable[[Parts, float], Parts | None] | None = None
    again: bool = False
    epsilon: Callable[[Parts, float, float], float | None] | None = None
    delta: Callable[[Parts, float, float], float | None] | None = None
    less_epsilon: Callable[[Parts, float, float], float] | None = None
    less_delta: Callable[[Parts, float, float], float] | None = None


#: In the order in which they are asked.
registered: list[Tightening] = []
