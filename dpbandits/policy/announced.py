"""What a policy says of itself when it is made is said once: objects that its releases make choices by are silent.

A :class:`~dpbandits.Released` makes an object of the policy's arguments by the class's own constructor. Whoever reads
it has made no policy, and where warnings are errors could not read it at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["announcing", "silently"]

# of a thread, or a task: what others make meanwhile is announced (``warnings.catch_warnings`` would silence all)
_announcing: ContextVar[bool] = ContextVar("announcing", default=True)


def announcing() -> bool:
    """Whether what is being made is a policy that somebody asked for.

    Examples
    --------
    >>> from dpbandits.policy.announced import announcing, silently
    >>> with silently():
    ...     said = announcing()
    >>> said, announcing()
    (False, True)
    """
    return _announcing.get()


@contextmanager
def silently() -> Iterator[None]:
    """Inside of it constructors of policies say nothing of what to expect; see :func:`announcing` for an example."""
    token = _announcing.set(False)
    try:
        yield
    finally:
        _announcing.reset(token)
