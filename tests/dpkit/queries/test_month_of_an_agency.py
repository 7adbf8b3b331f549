"""A month of an agency: thirty answers over two joined tables, planned and run, one refused, and a page to read."""

import re

import numpy as np
import pytest

from accounting import Budget, BudgetExceeded, Ledger
from dpkit import queries
from dpkit.queries import Ask

pl = pytest.importorskip("polars", reason="the extra 'tables' is not installed")
pytest.importorskip("duckdb", reason="the extra 'tables' is not installed")

TOWNS, KINDS = ["Graz", "Linz", "Wien"], ["check-up", "dentist", "surgery"]
BUDGET = Budget(2.0, 1e-6, adjacency="add_remove", unit="person")
EACH = {"person": "id", "max_contributions": 4, "max_groups": 3, "max_per_group": 2, "rows": 5000}


def asked() -> list[Ask]:
    by = {"town": TOWNS, "kind": KINDS, "sex": ["f", "m"]}
    asks = [Ask("count", name="Visits", within=60), Ask("count", name="Of people over 65", where="age > 65")]
    for name, keys in by.items():
        asks += [
            Ask("count", name=f"Visits by {name}", groups=name, keys=keys),
            Ask("count", name=f"Expensive visits by {name}", groups=name, keys=keys, where="paid >= 200"),
            Ask("sum", "paid", name=f"Bills by {name}", bounds=(0, 400), groups=name, keys=keys),
            Ask("mean", "paid", name=f"Average bill by {name}", bounds=(0, 400), groups=name, keys=keys, rows=1500),
            Ask("mean", "age", name=f"Average age by {name}", bounds=(0, 110), groups=name, keys=keys, rows=1500),
            Ask("count", name=f"Visits of the old by {name}", groups=name, keys=keys, where="age > 65"),
            Ask("quantile", "paid", name=f"Middle bill by {name}", candidates=range(0, 401, 5), q=0.5, groups=name,
                keys=keys),
        ]  # fmt: skip
    asks += [
        Ask("count", name="Town and kind", groups=["town", "kind"], keys={"town": TOWNS, "kind": KINDS}),
        Ask("histogram", "age", name="Visits by age", bins=(18, 40, 65, 95)),
        Ask("histogram", "paid", name="Visits by bill", bins=(0, 50, 100, 400)),
        Ask("variance", "paid", name="Spread of bills", bounds=(0, 400)),
        Ask("mean", "age", name="Average age", bounds=(0, 110), weight=2),
        Ask("sum", "paid", name="All bills", bounds=(0, 400), weight=2),
        Ask("quantile", "age", name="Middle age", candidates=range(18, 96), q=0.5),
    ]
    assert len(asks) == 30
    return asks


@pytest.mark.thorough
def test_a_month_of_an_agency(tmp_path):
    rng = np.random.default_rng(0)
    n, persons = 6000, 2000
    people = {"id": np.arange(persons), "age": rng.integers(18, 95, persons), "sex": rng.choice(["f", "m"], persons)}
    visits = {
        "id": rng.integers(0, persons, n),
        "town": rng.choice(TOWNS, n),
        "kind": rng.choice(KINDS, n),
        "paid": rng.gamma(2.0, 40.0, n).round(2),
    }
    pl.DataFrame(visits).write_parquet(tmp_path / "visits.parquet")
    pl.DataFrame(people).write_parquet(tmp_path / "people.parquet")
    of_persons = (queries.table(tmp_path / f"{name}.parquet", person="id") for name in ("visits", "people"))
    both = next(of_persons).join(next(of_persons), on="id")
    ledger = Ledger(BUDGET)
    ask = {"budget": BUDGET, "ledger": ledger, "title": "Visits in October", **EACH}
    with pytest.raises(BudgetExceeded, match=r"'Bills to the cent' with within=0\.01: it fits with within="):
        queries.plan([*asked(), Ask("sum", "paid", name="Bills to the cent", bounds=(0, 400), within=0.01)], **ask)
    assert not ledger.rows()

    plan = queries.plan(asked(), **ask)
    assert all(error is not None for error in plan.errors.values())
    report = plan.run(both)
    assert [row.label for row in ledger.rows()] == ["queries.plan: Visits in October, 30 answers"]
    assert ledger.epsilon(1e-6) == pytest.approx(2.0, rel=1e-5)
    kept = np.minimum(np.bincount(visits["id"], minlength=persons), 4).sum()
    assert abs(report["Visits"].value - kept) < 4 * 60

    page = report.to_html(tmp_path / "report.html")
    for name in report:
        assert name in page
    assert "At a glance" in page
    words = re.sub(r"<[^>]+>|<style>.*</style>", " ", page, flags=re.DOTALL)
    assert "guesses whether one person is in the data" in " ".join(words.split())
