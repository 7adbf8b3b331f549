"""How what a private policy has released becomes a value, which makes the same choices anywhere.

The value is a shell of the policy's class, made from its parameters, that holds the part of the public half that
choices depend on (:class:`dpbandits.Released`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, ClassVar

from accounting import Budget
from accounting.arrays import Array
from dpbandits.durability.state import kind_name
from dpbandits.policy.choices import Law
from dpbandits.policy.protocol import Policy
from dpbandits.policy.released import Released, shell_of
from dpkit.models.links import is_named
from dpkit.states import Run
from dpkit.states.entries import freeze, plain, taken

__all__ = ["Publishing"]


class Publishing(Policy):
    """What is public of a policy, as a value."""

    # the fields of the public half that choices depend on; where none is named, all of them
    _choices_read: ClassVar[tuple[str, ...]] = ()
    # attributes besides ``public`` that are public, are no parameters, and change
    _public_parts: ClassVar[tuple[str, ...]] = ()

    public: Any
    budget: Budget
    releases: int
    _run: Run
    # released, and not yet durable
    _unseen: Any

    def released(self) -> Released:
        """What is public: a value that makes the same choices, anywhere."""
        self._check()
        with self._lock:
            self._check_open()
            return self._value()

    def _value(self) -> Released:
        chooser = self._chooser()
        config, kind = chooser._config(), kind_name(type(chooser))
        link = None if is_named(config.get("link", "linear")) else chooser.link
        shell = shell_of(kind, config, link)
        shell.releases = chooser.releases
        shell._take_choosing({name: plain(value) for name, value in chooser._choosing().items()})
        price = str(self.privacy(self.budget.delta))
        return Released(shell, config, link, policy=kind, number=self._number(), run=self._id, price=price)

    @contextmanager
    def _upcoming(self) -> Iterator[Released]:
        """In the middle of a release, what :meth:`released` will be; for whoever makes it durable, and nobody else."""
        changed = [(one, one.public) for one in {self, self._chooser()} if one._unseen is not None]
        try:
            for one, _ in changed:
                one.public = one._unseen
            yield self._value()
        finally:
            for one, public in changed:
                one.public = public

    def _number(self) -> int:
        return self._run.step

    def _chooser(self) -> Publishing:
        """The policy by whose public half choices are made."""
        return self

    def _score_elsewhere(self, arms: Array) -> Array | Law:
        """The choice where only ``released`` is known: as by ``_score``, if that does not ask whose turn it is."""
        return self._score(arms)

    def _choosing(self) -> dict[str, Any]:
        """The part of the public half that choices depend on."""
        found = vars(self.public)
        parts = {name: getattr(self, name) for name in self._public_parts}
        return {name: found[name] for name in self._choices_read or found} | parts

    def _take_choosing(self, saved: Any) -> None:
        """Choose by what :meth:`_choosing` said, checked, from now on; it cannot be changed."""
        for name in self._public_parts:
            part = deepcopy(getattr(self, name))
            part.resume(saved[name])
            setattr(self, name, part)
        self.public = self._with_room(self.public)
        known = taken("public", saved, self._choosing())
        freeze(known)
        self.public = SimpleNamespace(**known)

    def _with_room(self, public: Any) -> Any:
        """``public``, in the shape that other public parts ask for."""
        return public
