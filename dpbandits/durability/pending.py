"""What is remembered of a decision until its reward comes, in memory, in journals and in states."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.arrays import Array
from dpkit.states.registry import NOBODY

__all__ = ["Pending"]


@dataclass(slots=True, eq=False)
class Pending:
    """A decision whose reward has not come: all that ``learn`` is told of it.

    Attributes
    ----------
    arm : ndarray of shape (d,)
        What was chosen (for policies with a context: the context); empty once its batch is closed.
    index : int
        Its row.
    round : int
        Its number among the decisions of the run, from 0.
    note : tuple of int
        What else the policy has written down about the choice.
    person : int
        Whose round it was, hashed (:class:`dpkit.states.registry.Registry`), where the policy protects persons;
        else ``NOBODY``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.policies import Uniform
    >>> policy = Uniform(2)
    >>> decision = policy.select(np.eye(2))
    >>> policy.open_decisions == [decision.id]
    True
    """

    arm: Array
    index: int
    round: int
    note: tuple[int, ...] = ()
    person: int = NOBODY
