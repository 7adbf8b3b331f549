"""How a private policy learns without losing a reward: records that are admitted, a journal, a checkpoint, and files.

A state holds the secret half, and goes on only where it is the newest of its run (:class:`dpkit.states.Run`). A
checkpoint is saved at every release; loading it replays what the journal says was done since.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dpbandits.durability.journal import Journal
from dpbandits.durability.registry import Registry
from dpbandits.durability.state import Loadable, Loader
from dpbandits.policy.decision import Decision, Pending
from dpbandits.policy.schedule import Schedule
from dpkit.states import Run, files
from dpkit.states.entries import conform, kept, plain, resume
from dpkit.states.run import newest

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["Checkpointed"]


class Checkpointed(Loadable):
    """What is saved with its secret half, and continued once."""

    # the attributes of the secret half, like ``_learned``
    _secret: ClassVar[tuple[str, ...]] = ()
    # whether rewards are written through to the disk together, by whoever sets this
    _many: bool = False

    public: Any
    ledger: Ledger
    schedule: Schedule
    releases: int
    _run: Run
    _journal: Journal | None
    _persons: Registry | None
    # released, and not yet durable
    _unseen: Any

    @property
    def checkpoint(self) -> Path | None:
        """Where the state is saved at every release."""
        return self._run.checkpoint

    # ---------------------------------------------------------------------------------- learning, durably

    def _admit(self, pending: Pending) -> None:
        persons = self._persons if self._counts_decisions else None
        if persons is not None and not persons.may_teach(pending.person, self._batch()):
            pending = replace(pending, arm=np.empty(0))  # as one whose batch is closed: it counts for nothing
        if self._journal is not None:
            self._journal.decided(pending)
        self._wait_for(pending)

    def _wait_for(self, pending: Pending) -> None:
        """Count the decision, which is in the journal."""
        self._counted(pending)
        super()._admit(pending)

    def _counted(self, pending: Pending) -> None:
        """Note a decision for good, live or from the journal: its person, and what is played.

        It may be the last one once more, which an interrupt left unmade.
        """
        self._count_person(pending)
        self._count_play(pending)

    def _count_person(self, pending: Pending) -> None:
        if self._counts_decisions and self._persons is not None and len(pending.arm):
            self._persons.admit(pending.person, self._batch())

    def _count_play(self, pending: Pending) -> None:
        """What a policy notes of the arms that are played: by default nothing."""

    def _take_in(self, key: int, pending: Pending, reward: float) -> None:
        if self._journal is not None:
            self._journal.rewarded(key, reward, sync=not self._many)
        # a record that was half learned must not be learned again
        self._run.stop("was interrupted while it learned")
        del self._open[key]
        self._teach(pending, reward)
        self._run.end()

    @contextmanager
    def _together(self) -> Iterator[None]:
        self._many = True
        try:
            yield
        finally:
            self._many = False
            if self._journal is not None:
                self._journal.sync()

    def _teach(self, pending: Pending, reward: float) -> None:
        """Learn, where the record is to enter a batch and its person may teach once more."""
        if not self._enters(pending):
            return
        if self._persons is None or self._counts_decisions or self._persons.admit(pending.person, self._batch()):
            self._learn(pending, reward)

    def _enters(self, pending: Pending) -> bool:
        """Whether a record would be learned now, whoever's it is: by default whenever its reward comes."""
        return True

    def _batch(self) -> int:
        """The number of the open batch; it grows with every release."""
        return self.releases

    def forget(self, decision: Decision | int) -> None:
        """Give up waiting for a reward, so that its arm is no longer kept. Says nothing about the data."""
        self._check()
        with self._lock:
            self._check_open()
            if self._journal is not None and (key := self._key(decision)) in self._open:
                self._journal.forgotten(key)
            super().forget(decision)

    # ---------------------------------------------------------------------------------------------- state

    def _kept(self) -> dict[str, Any]:
        public = self.public if self._unseen is None else self._unseen
        return {"public": plain(public), **kept(self, self._secret)}

    def _resume(self, saved: Any) -> None:
        resume(self, ("public", *self._secret), saved)

    def _tree(self) -> dict[str, Any]:
        tree = super()._tree() | {"releases": self.releases}
        if self._persons is not None:
            tree["persons"] = self._persons.kept()
        return tree if self._journal is None else tree | {"journal": self._journal.place()}

    def save(self, path: str | Path) -> None:
        """Write the whole state to a file that only its owner can read; not to the checkpoint, which keeps itself.

        The file holds unreleased sums and open decisions: it is as confidential as the data. It replaces an older one
        atomically. Of a secure generator nothing is written, so noise is never drawn twice.
        """
        if self.checkpoint is not None and Path(path).resolve() == self.checkpoint.resolve():
            raise ValueError(f"path must not be the checkpoint, which is kept at every release, got path={str(path)!r}")
        with self._lock:
            self._flush_log()
            run = self._run.state()
            tree = self._tree()
            tree.pop("journal", None)
            files.write(path, {**tree, "open": self._packed(), "run": run})

    @classmethod
    def _revived(cls, tree: dict[str, Any], digest: str, loader: Loader) -> Self:
        if "journal" not in tree:
            return cls._continued(tree, digest, loader, None)
        # a checkpoint: nobody else may touch it from here on
        if loader.checkpoint is not None:
            raise ValueError(f"checkpoint must be None for a file that is one, got {str(loader.checkpoint)!r}")
        hold = files.hold(loader.path)
        try:
            return cls._continued(*newest(loader.path, loader.ledger), loader, hold)
        except BaseException:
            hold.close()
            raise

    @classmethod
    def _continued(cls, tree: dict[str, Any], digest: str, loader: Loader, hold: files.Hold | None) -> Self:
        policy = cls._built(tree, loader.link)
        policy.releases = conform("releases", tree["releases"], 0)
        policy._check_releases()
        if policy._persons is not None:
            policy._persons.resume(tree["persons"], batch=policy._batch())
        if loader.ledger is not None:
            policy._attach(loader.ledger)
        policy._run.resume(tree["run"], ledger=loader.ledger, unattended=loader.unattended, digest=digest)
        if hold is not None:
            policy._run.keep_in(loader.path, hold)
            policy._journal = Journal.reopened(loader.path, policy._run.id, tree["journal"])
            policy._replay(policy._journal)
            policy._journal.only_this_one()
            for draft in files.drafts(loader.path):  # never marked, so that nobody saw what is in them
                draft.unlink()
            return policy
        policy._open = policy._unpacked(tree["open"])
        if loader.checkpoint is not None:
            policy._run.keep_in(loader.checkpoint)
            policy._first_checkpoint(loader.checkpoint)
        return policy

    def _first_checkpoint(self, checkpoint: Path) -> None:
        self._journal = Journal.fresh(checkpoint, self._run.id, self._open)
        files.write(checkpoint, {**self._tree(), "run": self._run.state()})

    def _replay(self, journal: Journal) -> None:
        """Do again what was done since the checkpoint was saved, but for the choices themselves."""
        decided = self.decisions
        for known, entry in journal.entries():
            match entry:
                case Pending():
                    self._checked_pending(entry)
                    if entry.round >= (decided if known else self.decisions + 1):
                        raise ValueError(f"the journal must hold decision {self.decisions} next, got {entry.round}")
                    if entry.round == self.decisions:
                        self._wait_for(entry)
                    else:  # known, or a choice that was made again after an interrupt
                        if not known:
                            self._counted(entry)
                        self._open[entry.round] = entry
                case (int(key), float(reward)):
                    if (pending := self._open.pop(key, None)) is not None and not known:
                        self._teach(pending, self._checked_reward(reward))
                case int(key):
                    self._open.pop(key, None)
                case str(kind) if self._persons is not None:
                    self._persons.kind = kind
        if self.expire_after is not None:
            self._expire(self.decisions - self.expire_after)

    def _check_releases(self) -> None:
        """Refuse a state with more releases than are scheduled."""
        most = len(self.schedule.ends)
        if self.releases > most:
            raise ValueError(f"releases must be at most {most}, got releases={self.releases}")

    def _attach(self, ledger: Ledger) -> None:
        """Use ``ledger`` from now on, after checking that it holds every cost of this policy."""
        recorded = {(row.label, row.release) for row in ledger.rows()}
        for row in self.ledger.rows():
            if (row.label, row.release) not in recorded:
                raise ValueError(f"ledger must hold the cost of {row.label!r}, got a ledger without it")
        self.ledger = ledger
