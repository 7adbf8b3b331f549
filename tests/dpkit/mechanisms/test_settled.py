"""What has been paid and drawn is handed out, also where the ledger cannot note that everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from accounting import Budget, Ledger, LedgerCorrupted
from dpkit import queries
from dpkit.mechanisms._checked import charged, settle

BUDGET = Budget(0.5, 0.0, adjacency="add_remove")


class Shelf:
    """A witness that is out of reach while it is said to be, from its next entry but so many on."""

    name = "the shelf"

    def __init__(self) -> None:
        self.entries: dict[int, tuple[str, str]] = {}
        self.left: int | None = None

    def newest(self) -> tuple[int, str]:
        return (len(self.entries), self.entries[len(self.entries) - 1][1]) if self.entries else (0, "")

    def add(self, rows: list[tuple[int, str, str]]) -> None:
        if self.left is not None:
            if self.left <= 0:
                raise OSError("the shelf is out of reach")
            self.left -= len(rows)
        self.entries |= {number: (body, hash) for number, body, hash in rows}

    def rows(self, first: int) -> list[tuple[int, str, str]]:
        return [(number, *self.entries[number]) for number in range(first, len(self.entries))]

    def close(self) -> None:
        pass


def report(ledger: Ledger) -> float:
    plan = queries.plan([queries.Ask("count", name="n")], budget=BUDGET, ledger=ledger)
    return float(plan.run({"x": np.ones(1000)})["n"].value)


def block(ledger: Ledger) -> float:
    with charged(ledger, queries.count(np.ones(3), budget=BUDGET).cost, "own", np.random.default_rng(0)):
        answer = 1000.0
    return answer


ASKED: dict[str, Callable[[Ledger], float]] = {
    "count": lambda ledger: queries.count(np.ones(1000), budget=BUDGET, ledger=ledger).value,
    "quantile": lambda ledger: (
        1000 * queries.quantile(np.ones(9999), bounds=(0, 2), budget=BUDGET, ledger=ledger).value
    ),
    "block": block,
    "report": report,
}


@pytest.mark.parametrize("name", sorted(ASKED))
def test_a_paid_answer_is_returned_where_its_outcome_does_not_reach_the_witness(name: str, tmp_path: Path) -> None:
    shelf = Shelf()
    with Ledger.create(tmp_path / "ledger", Budget(1.0, 0.0, adjacency="add_remove"), witness=shelf) as ledger:
        shelf.left = 1  # the spend, and not its outcome
        with pytest.warns(UserWarning, match=r"row 0 of the ledger is paid.*the shelf is out of reach"):
            answer = ASKED[name](ledger)
        assert abs(answer - 1000) < 100
        assert len(shelf.entries) == 2
        # what is not witnessed is not drawn
        with pytest.raises(OSError, match="out of reach"):
            ASKED[name](ledger)
        shelf.left = None
        assert ledger.remaining() == pytest.approx(0.5)
        ledger.mark("run", 1, "00")
        assert len(shelf.entries) == ledger.entries  # what was to be noted has followed


@pytest.mark.parametrize("error", [LedgerCorrupted, ValueError, KeyboardInterrupt])
def test_a_ledger_without_the_row_is_another_matter(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger()
    row = ledger.spend(queries.count(np.ones(3), budget=BUDGET).cost, label="count")

    def refused(*_: object) -> None:
        raise error("the ledger holds another row")

    monkeypatch.setattr(Ledger, "commit", refused)
    with pytest.raises(error, match="another row"):
        settle(ledger, row)
