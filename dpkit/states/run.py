"""One transaction for whatever releases: policies, continual sums, stream learners and the analyzer of shuffled sums.

What a release costs is paid once. It is worth that price only if the same sums are never noised a second time: not by
two threads, not by a copy, a fork or an older state, and not by whoever goes on after an interrupt, a full disk or a
crash. A :class:`Run` is the part of an object that sees to it. A method that releases reads

    run.check_process()              # before the lock: a forked child must not wait for a lock that nobody will open
    with run.lock:
        ...                          # refuse bad input: nothing has changed so far
        run.begin()                  # from here on, any exception leaves an object that refuses to go on
        ...                          # take the open batch out, draw the noise, compute what will be public
        run.commit(state)            # save the state to a draft, mark the release in the ledger, move the draft
        ...                          # only now expose what was released
        run.end()

``begin`` closes the object and ``end`` opens it again, so that there is nothing to clean up on the way out: an
exception of any kind, at any line between the two, leaves it closed. The lock is reentrant, because a signal handler
may call in; it finds the object closed.

Marks
-----
The ledger's newest *mark* of a run holds the digest of the state that the run has reached. A state may be continued if
the newest mark is the state's own, or, if it has none, the one that it was taken after (its *anchor*). So an older
state, one that another process has outrun, one that is newer than a ledger from a backup, and a draft whose release was
never marked are all refused; and of two processes that make
the same release one gets its mark and the other stops before anything of it was seen. A mark is made whenever a state
has left the object since the last one; an object of which no state is anywhere has no double to be afraid of.

After a crash the newest checkpoint goes on. If the crash fell between mark and move, the draft with the marked digest
is moved now; drafts without a mark are deleted, since their noise was never exposed.

What this does not cover: two hosts with copies of one disk and of the ledger, and disks that lose what they reported as
written.
"""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from accounting.checks import ledger_or_none
from dpkit.states import files
from dpkit.states.entries import scalar

if TYPE_CHECKING:
    from accounting import Ledger, Release  # a ledger is loaded by whoever has one
    from accounting.ledger import Row

__all__ = ["Here", "Run", "RunStopped", "Unrepeatable", "newest"]


class RunStopped(RuntimeError):
    """The object must not release any more: it was interrupted, another process goes on, or it was forked.

    Examples
    --------
    >>> from dpkit.states import RunStopped
    >>> issubclass(RunStopped, RuntimeError)
    True
    """


class Here:
    """The number of this process, asked for once, and again in the child of every fork that Python knows of.

    Asking the system takes some hundredths of a policy's round; :meth:`Run.begin` asks it before each release.
    """

    process = os.getpid()

    @classmethod
    def ask(cls) -> None:
        cls.process = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Here.ask)


class Unrepeatable:
    """Mixed into what holds unreleased sums or the state of its noise: it cannot be copied or pickled.

    Examples
    --------
    >>> import copy
    >>> from dpkit.continual import BufferedToeplitz
    >>> sums = BufferedToeplitz(horizon=4, shape=(), sensitivity=1.0, noise_multiplier=1.0)
    >>> try:
    ...     copy.copy(sums)
    ... except TypeError:
    ...     print("two copies would draw noise for the same sums")
    two copies would draw noise for the same sums
    """

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled, as both copies would draw noise for the same sums: "
            f"save its state, and let one process load it"
        )


class Run:
    """The releases of one object, in one process, one after the other.

    Parameters
    ----------
    label : str
        For error messages and for the reader of the ledger.
    ledger : Ledger, optional
        The ledger that outlives the object, and takes its marks.
    simulation : bool
        The noise comes from a seeded generator.

    Attributes
    ----------
    id : str
        Random; of the run, which goes on in whoever loads its state.
    step : int
        The number of releases that were begun.
    lock : threading.RLock
    process : int
        The one that made the object, or loaded it.
    stopped : str or None
        Why the object is closed, if it is; empty if it is in the middle of a release, or was stopped there.
    charged : Row or None
        The ledger's newest row for it, where this object was charged; what goes on with a state has none.
    checkpoint : Path or None
        The file that holds the state after every release.
    also : callable or None
        Where the ledger is in a database: called before a mark, with the number of the release; what it returns writes
        what must stand or fall with the mark. See :meth:`accounting.Ledger.mark`.

    Examples
    --------
    >>> from accounting import Budget, Ledger
    >>> from dpkit.states import Run
    >>> run = Run("weekly sums", ledger=Ledger(Budget(1.0, 1e-6)))
    >>> run.label
    'weekly sums'
    """

    def __init__(
        self,
        label: str,
        *,
        ledger: Ledger | None = None,
        simulation: bool = False,
    ) -> None:
        self.id = secrets.token_hex(16)
        self.label = label
        self.ledger = ledger_or_none(ledger)
        self.charged: Row | None = None
        self.simulation = simulation
        self.step = 0
        self.lock = threading.RLock()
        self._anchor = ""  # the digest of the last mark that this run has made or found
        self._state_is_out = False  # since then
        self.stopped: str | None = None
        self._resumable = True
        self.process = os.getpid()
        self.checkpoint: Path | None = None
        self.also: Callable[[int], Callable[[Any], None]] | None = None
        self._hold: files.Hold | None = None

    def __repr__(self) -> str:
        state = "open" if self.stopped is None else "stopped"
        return f"Run({self.label!r}): {self.step:,} releases, {state}"

    def keep_in(self, checkpoint: Path, hold: files.Hold | None = None) -> None:
        """Save the state to this file at every release; one object at a time may hold it.

        Raises
        ------
        BlockingIOError
            If another one does.
        """
        self._hold = files.hold(checkpoint) if hold is None else hold
        this = weakref.ref(self)  # which goes when nobody has it any more, and its hold with it
        self._hold.given_up = lambda: (run := this()) is not None and run._given_up()
        self.checkpoint = checkpoint

    def _given_up(self) -> bool:
        """Whether it is stopped for good: not in a release that is under way in another thread or below this call."""
        owned: bool = self.lock._is_owned()  # type: ignore[attr-defined]  # as threading.Condition asks it
        if self.stopped is None or owned or not self.lock.acquire(blocking=False):
            return False
        self.lock.release()
        return self.stopped is not None

    def release_hold(self) -> None:
        """Let another object hold the checkpoint: this one does not go on."""
        self.stop("has let go of its checkpoint")
        if self._hold is not None:
            self._hold.close()

    def check_process(self) -> None:
        """Refuse the child of a fork; before the lock is taken.

        Raises
        ------
        RunStopped
        """
        if self.process != os.getpid():
            raise RunStopped(
                f"{self.label!r} belongs to process {self.process}, got a call from its fork {os.getpid()}: both "
                f"would draw noise for the same sums; make or load it in the process that uses it"
            )

    def check(self) -> None:
        """Refuse to go on where that would repeat something; behind the lock, whose holder may have closed the run.

        Raises
        ------
        RunStopped
        """
        self.check_process()
        if self.stopped is not None:
            raise self._refusal()

    def charge(self, cost: Release) -> None:
        """Record what the whole run may cost, before any noise is drawn."""
        if self.ledger is not None:
            self.charged = self.ledger.spend(cost, label=self.label, simulation=self.simulation)

    # ----------------------------------------------------------------------------------------- one release

    def begin(self) -> None:
        """Close the object and count the release; the caller holds the lock, and has refused what it refuses."""
        if self.stopped is not None or self.process != os.getpid():
            self.check()
        # no text, which would cost as much as some mechanisms; both at once, as far as interrupts can tell
        self.step, self.stopped = self.step + 1, ""

    def commit(self, state: Callable[[], Mapping[str, Any]] | None = None) -> None:
        """Make the release durable, before anybody sees it: draft, mark, move.

        Parameters
        ----------
        state : callable, optional
            The tree to be saved in the checkpoint; needed if there is one.

        Raises
        ------
        RunStopped
            If another process has made this release.
        OSError, ValueError, …
            From the disk or the ledger, such as one that is closed.
        """
        draft, digest = None, secrets.token_hex(32)
        marks = self.ledger is not None and self._state_is_out
        if self.checkpoint is not None and state is not None:
            described = self._described()
            if marks:  # it will have a mark of its own, so a ledger without that is not its ledger: it has no anchor
                described["anchor"] = secrets.token_hex(32)
            draft, digest = files.draft(self.checkpoint, {**state(), "run": described})
        if marks and self.ledger is not None:
            also = None if self.also is None else self.also(self.step)
            try:
                self.ledger.mark(self.id, self.step, digest, label=self.label, simulation=self.simulation, also=also)
            except ValueError as error:  # surely not marked; after any other exception it may be
                if draft is not None:
                    draft.unlink(missing_ok=True)
                newest = self.ledger.newest_mark(self.id)
                if newest is None or newest.step < self.step:
                    raise  # nobody else goes on: the ledger says why it takes no mark
                self.stop(f"stopped: another process goes on with this run ({error})", resume=False)
                raise self._refusal() from error
            self._anchor, self._state_is_out = digest, False
        if draft is not None and self.checkpoint is not None:
            files.place(draft, self.checkpoint)
            self._state_is_out = True

    def end(self) -> None:
        """Open the object again: what was released is exposed, and nothing is left to be done."""
        self.stopped = None

    def stop(self, reason: str, *, resume: bool = True) -> None:
        """Close the object, until :meth:`end` if there is one."""
        self.stopped, self._resumable = reason, resume

    def _refusal(self) -> RunStopped:
        way_out = ""
        if self._resumable and self.checkpoint is not None:
            way_out = f": load the newest checkpoint, {self.checkpoint}"
        elif self._resumable:
            way_out = ": what it holds must not be noised again, so this object is at its end"
        return RunStopped(f"{self.label!r} {self.stopped or f'stopped at release {self.step}'}{way_out}")

    # ---------------------------------------------------------------------------------------------- states

    def state(self) -> dict[str, Any]:
        """What a saved state keeps of the run. Whoever calls this lets a state out."""
        self.check()
        self._state_is_out = True
        return self._described()

    def _described(self) -> dict[str, Any]:
        return {"id": self.id, "step": self.step, "anchor": self._anchor, "ledger": self.ledger is not None}

    def resume(
        self,
        saved: Mapping[str, Any],
        *,
        ledger: Ledger | None,
        unattended: bool,
        digest: str = "",
        once: bool = False,
    ) -> None:
        """Be the run of a saved state.

        Parameters
        ----------
        saved : mapping
            From :meth:`state`.
        ledger : Ledger, optional
            The one that was charged with the run.
        unattended : bool
            The caller's word that nobody else continues this state and that it is the newest. Needed where no ledger
            can tell, unless the run is a simulation, whose noise comes again as it was.
        digest : str
            Of the file that holds the state.
        once : bool
            Mark the continuation at once, so that a second one is refused here and not at its first release.

        Raises
        ------
        ValueError
            If the state must not be continued.
        """
        id, step, anchor, with_ledger = _checked(saved)
        if ledger is None and with_ledger:
            raise ValueError(
                "ledger must be given for a state that was made with one, got ledger=None: give the ledger that "
                "this run was charged to, ledger=Ledger.open(path) of one in a file"
            )
        if ledger is None and not (unattended or self.simulation):
            raise ValueError(
                "a state without a ledger goes on only where unattended=True says that it is the newest and that "
                "nobody else continues it, got unattended=False"
            )
        if ledger is not None:
            newest = ledger.newest_mark(id)
            reached = "" if newest is None else newest.digest
            if reached not in (anchor, digest):
                raise ValueError(
                    f"the state must be the newest of its run: the ledger has marked release "
                    f"{0 if newest is None else newest.step} of {self.label!r}, got another state, at release {step}"
                )
            anchor = reached
            if once:
                step += 1
                anchor = secrets.token_hex(32)
                ledger.mark(id, step, anchor, label=self.label, simulation=self.simulation)
        self.id, self.step, self._anchor, self.ledger = id, step, anchor, ledger
        self._state_is_out = True


def _checked(saved: Mapping[str, Any]) -> tuple[str, int, str, bool]:
    id, step, anchor, with_ledger = (scalar(saved, name) for name in ("id", "step", "anchor", "ledger"))
    for name, value, length in (("id", id, (32,)), ("anchor", anchor, (0, 64))):
        if not (isinstance(value, str) and len(value) in length and set(value) <= set("0123456789abcdef")):
            raise ValueError(f"{name} must be {length[-1]} hexadecimal digits, got {name}={value!r}")
    if type(step) is not int or not 0 <= step < 2**62:
        raise ValueError(f"step must be a number of releases, got step={step!r}")
    if type(with_ledger) is not bool:
        raise ValueError(f"ledger must be True or False, got ledger={with_ledger!r}")
    return id, step, anchor, with_ledger


def newest(path: Path, ledger: Ledger | None) -> tuple[dict[str, Any], str]:
    """The checkpoint at ``path`` and its digest, or the draft of it that was marked and not yet moved into place."""
    tree, digest = files.read(path)
    run = tree.get("run")
    mark = None if ledger is None or not isinstance(run, dict) else ledger.newest_mark(str(run.get("id")))
    for draft in files.drafts(path):
        if mark is not None and digest != mark.digest and files.digest_of(draft.read_bytes()) == mark.digest:
            files.place(draft, path)
            return files.read(path)
    return tree, digest
