"""The log of a policy's decisions, for :mod:`dpbandits.lab.evaluate`: one row for each, written when its reward has
come.

===============  =================================================================================
column           content
===============  =================================================================================
``id``           the number of the round
``person``       whose round it was, as ``select`` was told; only if the log is asked to keep it
``index``        of the chosen arm
``arm``          its name, or its index where arms have none
``probability``  with which it was chosen; one whose inverse has no bias, where it is estimated
``release``      the number of the release that the choice was made from; 0 before the first
``reward``       what came of it; empty if nobody waits for it any more
``arms``         what was offered, as JSON: a list of rows, or the context
===============  =================================================================================

The log is raw data, and as confidential as it: no noise is in it, and it costs no budget to keep, nor does it pay for
being shown. Only its owner can read it. Rows are written a thousand at a time, at ``save``, at ``flush``, and at the
end of the program; a crash loses those that were not, and the decisions that were still open leave no row after it.
"""

from __future__ import annotations

import csv
import io
import json
import os
import warnings
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accounting.checks import integer
from dpbandits._extras import need
from dpkit.states.entries import short

if TYPE_CHECKING:
    from accounting.arrays import Array
    from dpbandits.policy.choices import Law
    from dpbandits.policy.decision import Decision

__all__ = ["DecisionLog", "log_of"]

_COLUMNS = ("id", "person", "index", "arm", "probability", "release", "reward", "arms")


@dataclass(slots=True)
class _Open:
    """What a row will say of a decision, besides its reward."""

    index: int
    name: str
    law: Law | None
    release: int
    arms: Array
    person: object


class DecisionLog:
    """Where a policy's decisions are logged.

    Parameters
    ----------
    path : path
        A new ``.csv`` file, or a new folder that is called ``.parquet``, of files with rows.
    persons : bool
        Whether it keeps whose rounds they were.
    every : int
        After so many rows they are written.

    Examples
    --------
    >>> import numpy as np, tempfile, pathlib
    >>> from dpbandits import evaluate
    >>> from dpbandits.policies import EpsilonGreedy
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "decisions.csv"
    >>> policy = EpsilonGreedy(2, exploration=0.5, decision_log=path, rng=np.random.default_rng(0))
    >>> for _ in range(4):
    ...     policy.update(policy.select(np.eye(2)), reward=1.0)
    >>> policy.decision_log.flush()
    >>> evaluate.Log.read(path).probabilities.tolist()
    [0.75, 0.75, 0.75, 0.75]
    """

    def __init__(self, path: str | Path, *, persons: bool = False, every: int = 1000) -> None:
        self.path = Path(path).absolute()
        if self.path.suffix not in (".csv", ".parquet"):
            raise ValueError(f"decision_log must be a .csv or .parquet path, got {str(path)!r}")
        self.persons = bool(persons)
        self.every = integer("every", every, at_least=1)
        self._open: dict[int, _Open] = {}
        columns = [name for name in _COLUMNS if self.persons or name != "person"]
        self._rows = (_CSV if self.path.suffix == ".csv" else _Parquet)(self.path, columns)
        # also at the end of the program
        self._closing = weakref.finalize(self, self._rows.write)

    def begin(self) -> DecisionLog:
        """Refuse a path that exists."""
        if self.path.exists():
            raise ValueError(
                f"decision_log must be a new path, got {self.path}, which exists: load the policy with it to go on"
            )
        return self

    def decided(self, decision: Decision, arms: Array, person: object, release: int) -> None:
        """A decision was made."""
        kept = person if self.persons else None
        law = None if decision.law is None else decision.law.kept()
        self._open[decision.id] = _Open(decision.index, decision.name, law, release, arms.copy(), kept)

    def closed(self, id: int, reward: float | tuple[float, ...] | None) -> None:
        """Its reward came, or nobody waits for it any more; what was open before the policy was loaded has no row."""
        found = self._open.pop(id, None)
        if found is None:
            return
        if isinstance(reward, tuple):  # of a page: the row is about its first position
            reward = reward[0] if reward else None
        probability = 1.0 if found.law is None else found.law.propensity(found.index)
        arm = found.name or str(found.index)
        # a row is a line
        said = {"person": "" if found.person is None else str(found.person), "arm": arm}
        texts = {name: text.replace("\\", "\\\\").replace("\n", "\\n") for name, text in said.items()}
        row = {"id": id, "index": found.index, "probability": probability, "release": found.release, "reward": reward}
        self._rows.waiting.append(row | texts | {"arms": json.dumps(found.arms.tolist())})
        if len(self._rows.waiting) >= self.every:
            try:
                self.flush()
            except OSError as error:  # the reward has been learned, so that update must not fail
                warnings.warn(f"the log of decisions keeps its rows, as it cannot be written: {error}", stacklevel=4)

    def flush(self) -> None:
        """Write the rows that there are."""
        self._rows.write()


class _CSV:
    """Rows that will be appended to a file."""

    def __init__(self, path: Path, columns: list[str]) -> None:
        self.path, self.columns = path, columns
        self.waiting: list[dict[str, Any]] = []
        self.process = os.getpid()

    def write(self) -> None:
        # the child of a fork has a copy of the parent's rows
        if self.waiting and self.process == os.getpid():
            self._write()
            self.waiting = []

    def _write(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        text = io.StringIO(newline="")
        with os.fdopen(os.open(self.path, flags, 0o600), "r+b", buffering=0) as file:
            end = _whole(file)
            file.truncate(end)
            rows = csv.DictWriter(text, self.columns, extrasaction="ignore", lineterminator="\n")
            if not end:
                rows.writeheader()
            rows.writerows(self.waiting)
            data = text.getvalue().encode()
            try:
                if file.write(data) != len(data):
                    raise OSError(f"{self.path} could not be written: is the disk full?")
            except BaseException:
                file.truncate(end)
                raise


def _whole(file: io.FileIO | Any) -> int:
    """Where the last whole line ends: what follows is of a write that was interrupted."""
    end = int(file.seek(0, os.SEEK_END))
    while end:
        start = max(0, end - 2**16)
        file.seek(start)
        last = file.read(end - start).rfind(b"\n")
        if last >= 0:
            return start + int(last) + 1
        end = start
    return 0


class _Parquet(_CSV):
    """Rows that will be a further file in a folder."""

    def _write(self) -> None:
        arrow = need("pyarrow", "writing Parquet")
        parquet = need("pyarrow.parquet", "writing Parquet")
        self.path.mkdir(mode=0o700, exist_ok=True)
        kinds = {"id": arrow.int64(), "index": arrow.int64(), "release": arrow.int64()}
        kinds |= dict.fromkeys(("probability", "reward"), arrow.float64())
        schema = arrow.schema([(name, kinds.get(name, arrow.string())) for name in self.columns])
        table = arrow.Table.from_pylist(self.waiting, schema=schema)
        last = max((int(part.stem.partition("-")[2]) for part in self.path.glob("part-*.parquet")), default=0)
        part = self.path / f"part-{last + 1:06d}.parquet"
        draft = part.with_suffix(".draft")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            parquet.write_table(table, file)
        os.replace(draft, part)


def log_of(log: str | Path | DecisionLog) -> DecisionLog:
    """The log itself, or that of a path.

    Examples
    --------
    >>> from dpbandits.durability.decision_log import DecisionLog, log_of
    >>> isinstance(log_of("decisions.csv"), DecisionLog)
    True
    """
    if not isinstance(log, str | Path | DecisionLog):
        raise TypeError(f"decision_log must be a path or a DecisionLog, got {short(log)}")
    return log if isinstance(log, DecisionLog) else DecisionLog(log)
