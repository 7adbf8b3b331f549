"""How a private policy loses no reward: a journal of decisions and rewards, and a checkpoint at every release.

A checkpoint is saved at every release, before anything of the release is seen (:class:`dpkit.states.Run`). What is done
between two of them stands in the journal beside it; loading does that again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbandits.durability.journal import Entry, Journal
from dpbandits.durability.pending import Pending, Together
from dpkit.states import Run, files

if TYPE_CHECKING:
    from dpbandits.policy.private import PrivatePolicy

__all__ = ["Checkpoint", "replay"]


class Checkpoint:
    """The file that holds the state of a run at its last release, and the journal beside it; neither, if there is none.

    Parameters
    ----------
    run : Run
        Whose transactions releases are.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.journal: Journal | None = None
        # whether rewards are written through to the disk together, and whether the journal is to be left behind
        self._many = self._stale = False
        # what is written in one piece later, where that is gathered
        self._gathered: list[Entry] | None = None

    # ------------------------------------------------------------------------------------------- journal first

    # Who does something reads
    #
    #     run.stop("was interrupted while …")  # before it is written down
    #     durable.add(entry)
    #     ...                                  # do it
    #     run.end()
    #
    # Else what was written and not done would stand in the journal while the object goes on: the reward of a decision
    # that takes another one later, or a decision after which an arm comes.

    def add(self, entry: Entry) -> None:
        """Something is about to be done; a reward is on disk when this returns, or at the end of ``together``."""
        if self._gathered is not None:
            self._gathered.append(entry)
        else:
            self.add_all([entry])

    def add_all(self, entries: Sequence[Entry]) -> None:
        """Several things are about to be done; all are written in one piece, or none is.

        The run is closed already. Where this raises, nothing is left of the entries and the run is open again; unless
        they cannot be taken back, as on a disk that fails.
        """
        journal = self.journal
        if journal is None or not entries:
            return
        before = journal.extent()
        try:
            self._write(journal, entries)
        except BaseException:
            journal.cut(before)
            self._run.end()
            raise

    def _write(self, journal: Journal, entries: Sequence[Entry]) -> None:
        journal.add(entries)
        rewards = not isinstance(entries, Together) and any(isinstance(entry, tuple) for entry in entries)
        if journal.doubtful or (rewards and not self._many):
            journal.sync()

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """What is added inside of it is written in one piece, at its end; not at all if that is not reached.

        It is done by then, so that the run stays closed where this raises.
        """
        try:
            self._gathered = []
            yield
            entries, self._gathered = self._gathered, None
            if self.journal is not None and entries:
                self._write(self.journal, entries)
        finally:
            self._gathered = None

    @contextmanager
    def together(self) -> Iterator[None]:
        """Rewards inside of it are written through to the disk together, at its end."""
        try:
            self._many = True
            yield
        finally:
            self._many = False
            if self.journal is not None:
                self.journal.sync()

    # ---------------------------------------------------------------------------------------------- the file

    def open(self, path: Path, tree: Callable[[], dict[str, Any]], waiting: Mapping[int, Pending]) -> None:
        """Begin with this file, which the run keeps already."""
        self.journal = Journal.fresh(path, self._run.id, waiting)
        files.write(path, {**tree(), "run": self._run.state()})

    def keep(self, tree: Callable[[], dict[str, Any]], waiting: Mapping[int, Pending]) -> None:
        """Make durable what was released, before it is seen."""
        journal, path = self.journal, self._run.checkpoint
        # leave records behind that no state needs any more, as soon as they are the most
        if journal is not None and path is not None and (self._stale or journal.records > 2 * len(waiting)):
            self.journal = Journal.fresh(path, self._run.id, waiting)
            self._stale = False
        elif journal is not None:
            journal.sync()
        self._run.commit(tree)
        if self.journal is not None:
            self.journal.only_this_one()

    def renew(self) -> None:
        """Leave the journal behind at the next :meth:`keep`, however many of its records are of use."""
        self._stale = True

    def place(self) -> dict[str, Any]:
        """What a state keeps of the journal: how much of it it has seen."""
        return {} if self.journal is None else {"journal": self.journal.place()}

    def reopen(self, path: Path, hold: files.Hold, place: Any) -> Journal:
        """Go on with a file that is held, and the journal that it names."""
        self._run.keep_in(path, hold)
        self.journal = Journal.reopened(path, self._run.id, place)
        return self.journal


def replay(policy: PrivatePolicy[Any], journal: Journal) -> None:
    """Do again what was done since the checkpoint was saved, but for the choices themselves."""
    decided, waiting = policy.decisions, policy.waiting
    for known, entry in journal.entries():
        match entry:
            case Pending():
                policy.checked_pending(entry)
                if entry.round > (decided if known else policy.decisions):
                    raise ValueError(f"the journal must hold decision {policy.decisions} next, got {entry.round}")
                # what an interrupt left unmade was not taken back by earlier versions: here it does not count, as the
                # checkpoint says, and below it was made again
                if known and entry.round == decided:
                    continue
                if entry.round == policy.decisions:
                    policy.admit(entry)
                else:
                    if not known:
                        policy.counted(entry)
                    waiting[entry.round] = entry
            case (int(key), float() | tuple() as reward):
                if (pending := waiting.pop(key, None)) is not None and not known:
                    policy.teach(pending, policy.reward_of(pending, reward))  # type: ignore[arg-type]
            case int(key):
                waiting.pop(key, None)
            case str(kind) if policy.persons is not None:
                policy.persons.kind = kind
    # the journal tells of every open decision what was chosen, also where its batch has been closed since
    policy.counting.released(policy)
    if policy.expire_after is not None:
        policy.expire(policy.decisions - policy.expire_after)
