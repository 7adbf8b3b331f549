"""Named arms: they come and go at any round, and every decision says whose turn it is.

A policy whose arms have a parameter each, and which takes contexts of length at most 1, keeps one *slot* for every arm
that it has ever had, in the order in which they came; ``decision.index`` is a slot. It has a :class:`Catalogue` as its
attribute ``catalogue``. ``add_arm`` opens a new slot, ``retire_arm`` closes one for choices: rewards that are still on
their way to it are taken in as for any other. Which arms stand is public, and must not depend on what the policy has
not released; then coming and going cost nothing.

>>> from dpbandits.policies import DisjointThompson
>>> import numpy as np
>>> policy = DisjointThompson(2, ["red", "green"], rng=np.random.default_rng(0))
>>> policy.add_arm("blue")
>>> policy.retire_arm("red")
>>> policy.standing
['green', 'blue']
>>> policy.select([0.5, 0.5]).name in policy.standing
True
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from accounting.checks import integer
from dpbandits.durability.state import numbers
from dpkit.states.entries import conform, short

if TYPE_CHECKING:
    from dpbandits.policy.protocol import Policy

__all__ = ["Catalogue", "changing"]

_LONGEST_NAME = 200


class Catalogue:
    """The arms' names, and between which rounds each of them stood.

    Parameters
    ----------
    arms : int or list of str
        The names of the arms at the start; a number K stands for "0", …, str(K − 1).

    Attributes
    ----------
    names, standing : list of str
        By slot; and those of the arms that may be chosen, in the order in which they came.
    born, died : (K,) ndarray of int
        How many decisions had been made when it came, and when it went; −1 where it stands.
    """

    def __init__(self, arms: int | Sequence[str]) -> None:
        if isinstance(arms, str):
            raise ValueError(f"arms must be a number or a list of names, got arms={arms!r}")
        # a number of arms is that many names, which are numbers
        names = list(arms) if isinstance(arms, Sequence) else [str(k) for k in range(integer("arms", arms, at_least=1))]
        self.names: list[str] = []
        self._slots: dict[str, int] = {}
        self.born = self.died = np.empty(0, dtype=np.int64)
        for name in names:
            self.check_new(name)
            self.add(name, 0)
        if not self.names:
            raise ValueError("arms must be at least one, got none")

    @classmethod
    def of_several(cls, arms: int | Sequence[str]) -> Catalogue:
        """Of at least two arms: with one there is nothing to find out, and a test of it is a mistake."""
        found = cls(arms)
        if len(found) < 2:
            raise ValueError(f"arms must be at least two, of which one can be found to be better, got {short(arms)}")
        return found

    def __len__(self) -> int:
        return len(self.names)

    @property
    def standing(self) -> list[str]:
        return [name for name, died in zip(self.names, self.died, strict=True) if died < 0]

    @property
    def active(self) -> NDArray[np.bool_]:
        """Which slots may be chosen."""
        return np.asarray(self.died < 0)

    def check_new(self, name: str) -> None:
        """Refuse what is no name, and the name of an arm in use."""
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
            raise ValueError(f"name must be a text of 1 to {_LONGEST_NAME} characters, got {short(name)}")
        if name in self._slots:
            raise ValueError(f"name must be that of no other arm in use, got name={name!r} twice")

    def to_retire(self, name: str) -> int:
        """The slot of an arm in use, and not alone."""
        if not isinstance(name, str) or name not in self._slots:
            gone = isinstance(name, str) and name in self.names
            raise ValueError(
                f"name must be that of an arm in use, got {short(name)}{', which was retired' if gone else ''}"
            )
        if len(self._slots) == 1:
            raise ValueError(f"name must not be that of the last arm in use, got name={name!r}")
        return self._slots[name]

    def add(self, name: str, round: int) -> None:
        """Open a slot."""
        self._slots[name] = len(self.names)
        self.names.append(name)
        self.born = np.append(self.born, np.int64(round))
        self.died = np.append(self.died, np.int64(-1))

    def retire(self, slot: int, round: int) -> None:
        """Close a slot for choices."""
        del self._slots[self.names[slot]]
        self.died[slot] = round

    def offered(self, scores: Array) -> Array:
        """The scores, with those of closed slots out of reach."""
        return np.where(self.died < 0, scores, -np.inf)

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        return {"names": list(self.names), "born": self.born.copy(), "died": self.died.copy()}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked: it must begin with the names that are here."""
        if not isinstance(saved, Mapping) or set(saved) != {"names", "born", "died"}:
            raise ValueError(f"arms must hold the entries ['born', 'died', 'names'], got {short(saved)}")
        names, like = saved["names"], self.names
        if not isinstance(names, list) or names[: len(like)] != like:
            raise ValueError(f"arms.names must begin with the arms of the constructor, got {short(names)}")
        ages = np.empty(len(names), dtype=np.int64)
        born, died = (conform(f"arms.{name}", saved[name], ages) for name in ("born", "died"))
        if (np.diff(born) < 0).any() or (born < 0).any() or ((died != -1) & (died < born)).any():
            raise ValueError("arms.born must increase, and arms.died come after it, got others")
        slots: dict[str, int] = {}
        for slot, name in enumerate(names):
            if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or (died[slot] < 0 and name in slots):
                raise ValueError(f"arms.names must be texts, different where they stand, got {short(name)}")
            if died[slot] < 0:
                slots[name] = slot
        if not slots:
            raise ValueError("arms.died must leave an arm in use, got none")
        self.names, self.born, self.died, self._slots = list(names), born, died, slots

    def resume_with(self, saved: Any, dim: int) -> Any:
        """Take over the arms of a state, and return what else was learned of them, with ``dim`` numbers for each.

        Raises
        ------
        ValueError
            If it is no such state, or has arms of which nothing was learned.
        """
        if not isinstance(saved, Mapping) or set(saved) != {"arms", "learned"}:
            raise ValueError(f"learned must hold the entries ['arms', 'learned'], got {short(saved)}")
        self.resume(saved["arms"])
        if dim * len(self) > 2 * numbers(saved["learned"]) + 2**12:
            raise ValueError(f"arms must be those of the arrays in the file, got {len(self)} names")
        return saved["learned"]


@contextmanager
def changing(policy: Policy, change: str, name: str) -> Iterator[Catalogue]:
    """A policy's arms, held, for one to come or to go.

    Raises
    ------
    TypeError
        If arms do not come and go here.
    """
    if policy.catalogue is None:
        why = "is given its arms in every round" if policy.takes == "arms" else "has the same arms for the whole run"
        raise TypeError(f"{type(policy).__name__} {why} and cannot {change} {name!r}: take DisjointPrivateGLM")
    policy.check_process()
    with policy.lock:
        policy.check_open()
        yield policy.catalogue
