"""``parameters="published"`` of a private policy: the algorithm as its paper prints it, which is not private.

It is another class, a reference policy without ``privacy``, a ledger or a checkpoint: so nothing that asks for a
private policy takes it for one.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, TypeVar

from dpbandits.policy.protocol import Policy

__all__ = ["as_published"]

P = TypeVar("P", bound=Policy)


def as_published(published: Callable[[], type[Policy]]) -> Callable[[type[P]], type[P]]:
    """Let the class make the policy that ``published`` finds, from the same arguments, where it is asked for.

    Parameters
    ----------
    published : callable
        Imports that class and returns it.

    Examples
    --------
    >>> import warnings
    >>> from accounting import Budget
    >>> from dpbandits.policies import DPHDB
    >>> with warnings.catch_warnings(action="ignore"):
    ...     policy = DPHDB(4, 2, budget=Budget(1.0, 1e-6), horizon=100, parameters="published")
    >>> policy
    PublishedDPHDB(dim=4): 0 of 100 decisions, not private: as published
    >>> hasattr(policy, "privacy"), isinstance(policy, DPHDB)
    (False, False)
    """

    def decorate(cls: type[P]) -> type[P]:
        def make(kind: type[P], *arguments: Any, **given: Any) -> Any:
            if given.get("parameters") == "published":
                return published()(*arguments, **given)
            return object.__new__(kind)

        # of a class with __new__, inspect would show that one's arguments
        own = signature(cls.__init__)
        shown = own.replace(parameters=list(own.parameters.values())[1:])
        for name, value in (("__new__", staticmethod(make)), ("__signature__", shown)):
            setattr(cls, name, value)
        return cls

    return decorate
