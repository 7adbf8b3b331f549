"""The file from which a run of DP-SGD goes on after a crash: written after every epoch, before anybody sees the epoch.

Privacy. The whole run is charged before its first step, so a crash loses no spend and going on costs nothing. What was
taken of an epoch when the run stopped is seen by nobody: parameters leave at the end of an epoch, after it is in the
file. So it is taken again from the epoch's beginning, with fresh samples and fresh noise, and every epoch is released
once. Two processes that go on with one file would release an epoch twice; the ledger's marks
(:class:`dpkit.states.Run`) let one of them through, which is why a checkpoint asks for a ledger. A file holds what was
released, and the optimizer's state, which follows from it; of the secure source nothing is saved. It says, too, what
decides the run: its numbers, and how module, loss, optimizer and schedule are made (:mod:`dpkit.torch.same_run`), by
which a run of another kind is refused. **That the rows are the same is for the caller to see to**: nothing in the file
tells, as a digest of private rows would be private itself.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accounting import BudgetExceeded, Release
from accounting.ledger.record.release_json import alike
from dpkit import randomness
from dpkit.mechanisms._checked import settle
from dpkit.states import Run, files
from dpkit.states.entries import array, check_kind, conform, entry, generator, generator_text
from dpkit.states.run import newest
from dpkit.torch.same_run import check_same

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one
    from dpkit.torch.private_optimizer import PrivateSteps
    from dpkit.torch.problem import Released

__all__ = ["Kept"]

_VERSION = 1


class Kept:
    """A run whose epochs are kept in a file.

    Parameters
    ----------
    path : Path
        Of the file. If it is there, the run in it goes on.
    described : mapping
        What the run in the file must have in common with this one: number of units, parameters, noise and so on.
    said : mapping
        The same of what is no number (:mod:`dpkit.torch.same_run`). A file of before it was kept does without.
    private : PrivateSteps
        Its optimizer's state is saved, and restored.
    released : Released
        Holds the parameters of the last whole epoch.
    source : numpy.random.Generator
        A simulation's generator is saved, and goes on in ``source``.
    cost : Release
        Of the whole run.
    ledger : Ledger
    label : str
        Of the ledger's row.

    Attributes
    ----------
    epochs : int
        How many are done.
    x : ndarray
        The parameters after these.
    """

    def __init__(
        self,
        path: Path,
        described: Mapping[str, Any],
        said: Mapping[str, str],
        private: PrivateSteps,
        released: Released,
        source: np.random.Generator,
        *,
        cost: Release,
        ledger: Ledger | None,
        label: str,
    ) -> None:
        if ledger is None:
            raise ValueError(
                "ledger must be given with a checkpoint, for it alone can tell that no other process goes on with the "
                "same file, got ledger=None: ledger=Ledger.create(path, budget)"
            )
        self._described, self._said = dict(described), dict(said)
        self._private, self._released, self._source = private, released, source
        self._simulation = randomness.is_simulation(source)
        self.epochs, self.x = 0, released.update()
        self._run = run = Run(label, ledger=ledger, simulation=self._simulation)
        hold = files.hold(path)
        try:
            begun = path.exists()
            if begun:
                state, digest = newest(path, ledger)
                self._restore(state)
                run.resume(state["run"], ledger=ledger, unattended=False, digest=digest)
            # the row has the run's number, so that a crash between file and row is seen, and the row made then
            label = f"{label}, run {run.id[:12]}"
            if not ledger.holds(cost, label):
                if self.epochs:
                    raise ValueError(
                        f"ledger must hold the cost of the run in the checkpoint, {cost!r}, got other rows"
                    )
                if not begun:
                    files.write(path, {**self._tree(), "run": run.state()})
                try:
                    run.charged = ledger.spend(cost, label=label, simulation=self._simulation, plan=cost)
                except BudgetExceeded:
                    path.unlink()
                    raise
        except BaseException:
            hold.close()
            raise
        run.keep_in(path, hold)
        for draft in files.drafts(path):  # never marked, so that nobody saw what is in them
            draft.unlink()

    @contextmanager
    def epoch(self) -> Iterator[None]:
        """Steps of one epoch, which are released by its end or not at all."""
        run = self._run
        with run.lock:
            run.check()
            run.begin()
            yield
            self.epochs += 1
            x = self._released.update()
            run.commit(self._tree)
            self.x = x
            run.end()

    def close(self) -> None:
        """Let the file go, and note that what was charged here was released."""
        if self.epochs:
            settle(self._run.ledger, self._run.charged)
        self._run.release_hold()

    def _tree(self) -> dict[str, Any]:
        import torch

        held = io.BytesIO()
        torch.save(self._private.state(), held)
        size = held.tell()
        held.write(bytes(-size % 8))
        return {
            "run of": "DP-SGD",
            "version": _VERSION,
            "described": self._described,
            "said": self._said,
            "epochs": self.epochs,
            "parameters": self._released.values(),
            "optimizer": np.frombuffer(held.getvalue(), dtype="<i8").astype(np.int64),
            "bytes": size,
            "generator": generator_text(self._source),
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        import torch

        check_kind(state, "run of", "DP-SGD", _VERSION)
        if not alike(state.get("described"), self._described):
            raise ValueError(
                f"checkpoint must hold a run with these parameters, {self._described}, got {state.get('described')}: "
                "give a new file to a new run"
            )
        check_same(state.get("said"), self._said)
        epochs = conform("epochs", state.get("epochs"), like=0)
        x: NDArray[np.float64] = array(state, "parameters", self.x)
        size = conform("bytes", state.get("bytes"), like=0)
        held = entry(state, "optimizer").astype("<i8").tobytes()[:size]
        self._private.resume(torch.load(io.BytesIO(held), weights_only=True))
        self._released.restore(x)
        self.epochs, self.x = epochs, x
        text = conform("generator", state.get("generator"), like="")
        if self._simulation != bool(text):
            raise ValueError("rng must be a seeded generator just where the checkpoint is that of a simulation")
        if text:
            self._source.bit_generator.state = generator(text, None).bit_generator.state
