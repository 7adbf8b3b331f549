"""Plans of many answers: the split of a budget, errors foretold, refusals before anything is spent, reports."""

import csv
import io
import json
import math
import re
import threading
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from accounting import Budget, BudgetExceeded, Ledger, delta, gdp
from dpkit import queries
from dpkit.queries import Ask

TOWNS = ["Graz", "Linz", "Wien"]
COME = Budget(1.0, 1e-6, adjacency="add_remove")
PURE = Budget(1.0, 0.0, adjacency="add_remove")
PEOPLE = Budget(1.0, 1e-6, adjacency="add_remove", unit="person")
EACH = {"person": "id", "max_contributions": 3, "max_groups": 2, "max_per_group": 2}
# one of each kind
ASKS = [
    Ask("count", name="all"),
    Ask("count", groups="town", keys=TOWNS),
    Ask("count", where="age >= 65", name="old"),
    Ask("count", groups=["town", "sex"], keys={"town": TOWNS, "sex": ["f", "m"]}, name="crossed"),
    Ask("sum", "paid", bounds=(0, 400)),
    Ask("sum", "age", bounds=(0, 110), groups="town", keys=TOWNS),
    Ask("mean", "paid", bounds=(0, 400), weight=3),
    Ask("mean", "paid", bounds=(0, 400), groups="town", keys=TOWNS, rows=300),
    Ask("variance", "age", bounds=(0, 110)),
    Ask("histogram", "age", bins=4, bounds=(0, 100)),
    Ask("histogram", "paid", bins=(0, 50, 100, 400)),
    Ask("quantile", "paid", bounds=(0, 400), q=(0.25, 0.5, 0.75)),
    Ask("quantile", "age", bounds=(0, 110), q=0.5, groups="town", keys=TOWNS),
    Ask("quantile", "age", candidates=range(111), q=0.9),
]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = 1000
    return pd.DataFrame(
        {
            "id": rng.integers(0, 400, n),
            "town": rng.choice(TOWNS, n),
            "sex": rng.choice(["f", "m"], n),
            "age": rng.integers(18, 95, n),
            "paid": rng.gamma(2.0, 40.0, n).round(2),
        }
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("budget", "noise"),
    [(PURE, None), (replace(COME, adjacency="replace"), "gaussian"), (PEOPLE, "laplace")],
)
def test_a_plan_costs_its_budget_and_is_recorded_as_one_release(table, budget, noise):
    ledger = Ledger(budget)
    who = EACH if budget.unit == "person" else {}
    plan = queries.plan(ASKS, budget=budget, noise=noise, ledger=ledger, rows=1000, **who)
    assert plan.epsilon == pytest.approx(budget.epsilon, rel=1e-6)
    assert not ledger.rows()
    report = plan.run(table)
    (row,) = ledger.rows()
    assert row.outcome == "released"
    assert row.release == report.cost
    assert float(delta(report.cost, budget.epsilon)) <= budget.delta
    assert list(report) == [ask.name for ask in ASKS]
    # errors are what was foretold: half the width of the interval, or the rows that a quantile may be off
    for ask in ASKS:
        answer, told = report[ask.name], plan.errors[ask.name]
        if ask.what == "quantile":  # what is foretold takes the whole range of the bounds
            assert 0.5 * told <= np.max(answer.rows_off(0.95)) <= told * (1 + 1e-9)
        elif ask.what in ("count", "sum", "histogram"):
            low, high = (np.atleast_1d(end) for end in answer.interval(0.95))
            wide = (high - low)[low > 0] / 2  # counts are cut at 0
            assert np.abs(wide - told).max(initial=0) <= (0.51 if ask.what == "sum" else 0) + 1e-5 * told


def test_gaussian_noise_needs_delta():
    with pytest.raises(ValueError, match=r"budget\.delta > 0"):
        queries.plan(ASKS, budget=PURE, noise="gaussian")


@pytest.mark.parametrize("what", ["mean", "variance"])
def test_errors_of_ratios_are_at_most_what_is_foretold_for_as_many_rows(table, what):
    ask = Ask(what, "age", bounds=(0, 110))
    for adjacency in ("add_remove", "replace", "zero_out"):
        budget = replace(COME, epsilon=8.0, adjacency=adjacency)
        plan = queries.plan([ask], budget=budget, rows=1000)
        low, high = plan.run(table)[ask.name].interval(0.95)
        # the number of rows is found with noise, of a few rows here
        assert (high - low) / 2 <= plan.errors[ask.name] * 1.02
        assert queries.plan([ask], budget=budget).errors == {ask.name: None}


@given(
    within=st.floats(0.6, 1e4),
    ask=st.sampled_from([ask for ask in ASKS if ask.what in ("count", "sum", "histogram")]),
    pure=st.booleans(),
)
@settings(max_examples=40)
def test_a_wanted_accuracy_is_met_at_the_least_cost(within, ask, pure):
    wanted = Ask(**{name: getattr(ask, name) for name in ("what", "column", "bounds", "groups", "keys", "bins", "q")},
                 within=within)  # fmt: skip
    budget = replace(PURE if pure else COME, epsilon=1e5)
    plan = queries.plan([wanted], budget=budget)
    assert plan.errors[wanted.name] <= within
    need, strength = plan.demands[0], plan.strengths[0]
    assert need.error(strength * 0.999, plan.noise) > within or strength < 1e-8


@pytest.mark.parametrize("budget", [PURE, COME])
def test_intervals_are_as_narrow_as_was_wanted(table, budget):
    asks = [Ask("count", name=str(w), within=w) for w in (20, 51.5, 100)]
    asks += [
        Ask("sum", "paid", bounds=(0, 400), within=4e4),
        Ask("histogram", "age", bins=3, bounds=(0, 99), within=50),
    ]
    report = queries.plan(asks, budget=replace(budget, epsilon=9.0), noise=None if budget is PURE else "gaussian").run(
        table
    )
    for ask in asks:
        low, high = report[ask.name].interval(0.95)
        assert np.max(high - low) <= 2 * ask.within * (1 + 1e-9)


def test_what_is_not_wanted_is_shared_by_weight():
    asks = [Ask("count", name="a", weight=4), Ask("count", name="b"), Ask("count", name="c", within=10)]
    plan = queries.plan(asks, budget=PURE)
    assert plan.shares["a"] == pytest.approx(4 * plan.shares["b"])
    assert plan.errors["c"] <= 10
    plan = queries.plan(asks, budget=COME, noise="gaussian")
    assert plan.shares["a"] == pytest.approx(4 * plan.shares["b"])
    # half the noise at four times the share, in whole numbers
    assert abs(plan.errors["b"] - 2 * plan.errors["a"]) <= 2


def test_a_plan_in_which_all_have_what_they_want_costs_no_more():
    plan = queries.plan([Ask("count", name="a", within=50), Ask("count", name="b", within=50)], budget=COME)
    assert plan.epsilon < 0.2
    assert "of the 1 allowed" in repr(plan)


def test_many_answers_take_gaussian_noise_and_few_laplace_noise():
    many = [Ask("count", name=str(i)) for i in range(30)]
    assert queries.plan(many, budget=COME).noise == "gaussian"
    assert queries.plan(many[:2], budget=COME).noise == "laplace"
    assert queries.plan(many, budget=PURE).noise == "laplace"
    # composed by the privacy loss distribution, Laplace noise is smaller than its thirtieths of ε
    together = queries.plan(many, budget=COME, noise="laplace").errors["0"]
    assert together < 0.75 * queries.plan(many, budget=PURE).errors["0"]


def test_what_does_not_fit_is_refused_with_what_would():
    ledger = Ledger(PURE)
    asks = [Ask("count", name="a", within=30), Ask("sum", "x", name="bills", bounds=(0, 1000), within=10)]
    with pytest.raises(BudgetExceeded, match=r"'bills' with within=10: it fits with within=(\d+)") as refused:
        queries.plan(asks, budget=PURE, ledger=ledger)
    assert not ledger.rows()
    fits = float(str(refused.value).split("it fits with within=")[1].split(";")[0])
    assert queries.plan([asks[0], replace(asks[1], within=fits)], budget=PURE).epsilon > 0.99
    # the others alone are too many
    crowd = [Ask("count", name=str(i), within=2) for i in range(20)]
    with pytest.raises(BudgetExceeded, match=r"all of them fit with errors ([\d.]+) times as large") as refused:
        queries.plan(crowd, budget=PURE)
    factor = float(str(refused.value).split("with errors ")[1].split(" times")[0])
    assert queries.plan([replace(ask, within=2 * factor) for ask in crowd], budget=PURE).epsilon <= 1
    # and those without a wish are left something
    with pytest.raises(BudgetExceeded, match="leaves 10% of ε"):
        queries.plan([*asks, Ask("count", name="c")], budget=PURE)


def test_a_ledger_that_is_too_full_refuses_the_report_before_any_noise(table):
    ledger = Ledger(PURE)
    queries.count(table, budget=replace(PURE, epsilon=0.5), ledger=ledger)
    plan = queries.plan(ASKS[:3], budget=PURE, ledger=ledger)
    with pytest.raises(BudgetExceeded):
        plan.run(table)
    assert len(ledger.rows()) == 1


@tabled(
    ("column", "value", "error", "told"),
    [
        ("paid", ["x"] * 1000, TypeError, "'mean of paid': column must hold numbers"),
        ("paid", [math.nan] * 1000, ValueError, "'mean of paid': .*missing values"),
        ("town", None, ValueError, "'by town': "),
    ],
)
def test_data_that_one_answer_cannot_use_end_the_run_before_anything_is_spent(table, column, value, error, told):
    broken = table.drop(columns=column) if value is None else table.assign(**{column: value})
    asks = [
        Ask("count", name="all"),
        Ask("count", name="by town", groups="town", keys=TOWNS),
        Ask("mean", "paid", bounds=(0, 400)),
    ]
    ledger = Ledger(COME)
    with pytest.raises(error, match=told):
        queries.plan(asks, budget=COME, ledger=ledger).run(broken)
    assert not ledger.rows()


@tabled(
    ("given", "error", "told"),
    [
        (lambda: Ask("median", "x"), ValueError, "what must be one of"),
        (lambda: Ask("mean"), ValueError, "must name the column"),
        (lambda: Ask("count", "x"), ValueError, "takes no column"),
        (lambda: Ask("count", groups="town"), ValueError, "groups and keys go together"),
        (lambda: Ask("count", groups=["a", "b"], keys={"a": [1]}), ValueError, "keys must have the values of each"),
        (lambda: Ask("count", bounds=(0, 1)), ValueError, "bounds does not apply to a count"),
        (lambda: Ask("count", within=0), ValueError, "within of 'count' must be positive"),
        (lambda: Ask("count", within=3, weight=2), ValueError, "leave one of them out"),
        (lambda: queries.plan([], budget=COME), TypeError, "at least one"),
        (lambda: queries.plan([Ask("count"), Ask("count")], budget=COME), ValueError, "a name of its own"),
        (lambda: queries.plan([Ask("count")]), TypeError, "budget must be given"),
        (lambda: queries.plan([Ask("mean", "x")], budget=COME), TypeError, "'mean of x': bounds must be given"),
        (lambda: queries.plan([Ask("count")], budget=PEOPLE), TypeError, "'count': max_contributions must be given"),
        (lambda: queries.plan([Ask("count", max_groups=2)], budget=PEOPLE), TypeError, "'count': max_groups does not"),
        (lambda: queries.plan([Ask("mean", "x", bounds=(0, 1), within=1)], budget=COME), ValueError, "say rows="),
        (lambda: queries.plan([Ask("count")], budget=COME, noise="cauchy"), ValueError, "noise must be"),
        (
            lambda: queries.plan([Ask("quantile", "x", bounds=(0, 1), q=2)], budget=COME),
            ValueError,
            "'quantile of x, q = 2': q must be in",
        ),
    ],
)
def test_refusals_name_the_answer(given, error, told):
    with pytest.raises(error, match=told):
        given()


def test_a_public_number_of_rows_is_free(table):
    budget = replace(COME, adjacency="replace")
    plan = queries.plan([Ask("count"), Ask("mean", "age", bounds=(0, 110))], budget=budget, rows=1000)
    assert plan.errors["count"] == 0
    assert plan.shares["count"] == 0
    assert plan.run(table)["count"].value == 1000


def test_noise_has_the_planned_variance(table):
    """200 runs: the sample variance of a count's noise is within 5.5 standard errors (a false alarm in 10⁷)."""
    plan = queries.plan(
        [Ask("count", name=str(i)) for i in range(10)], budget=replace(COME, epsilon=0.5), noise="gaussian"
    )
    rng = np.random.default_rng(1)
    found = [answer.raw - 1000 for _ in range(20) for answer in plan.run(table, rng=rng).values()]
    std = 1 / plan.strengths[0]
    # of Gaussian noise (fourth moment 3σ⁴)
    assert abs(np.var(found) / (std**2 + 1 / 12) - 1) < 5.5 * math.sqrt(2 / 200)


def test_a_report_says_the_same_in_all_its_forms(table):
    asks = [*ASKS[:6], ASKS[9], Ask("mean", "paid", bounds=(0, 400), where="town = Nowhere", name="=none")]
    report = queries.plan(asks, budget=COME, noise="gaussian", title="Visits <October>").run(
        table, rng=np.random.default_rng(3)
    )
    rows = report.rows()
    assert len(rows) == sum(ask.numbers() for ask in asks) == len(report.to_frame())
    found = list(csv.DictReader(io.StringIO(report.to_csv())))
    assert [float(row["value"]) for row in found] == [row["value"] for row in rows]
    assert found[-1]["answer"] == "'=none"
    told = json.loads(report.to_json())
    assert told["rows"] == rows
    assert told["simulation"] is True
    assert "SIMULATION" in repr(report)
    html = report.to_html()
    assert "Visits &lt;October&gt;" in html
    assert "These numbers protect nobody" in html
    # at δ > 0 only this is true: the best test's success at even chances, of Gaussian noise Φ(μ/2)
    (right,) = re.findall(r"in 50 of 100 cases; with this page it is right in at most ([\d.]+) of 100\.", html)
    assert 0 <= float(right) - 100 * NormalDist().cdf(gdp(report.cost) / 2) < 0.1
    assert "odds" not in html
    assert "<script" not in html
    assert "http" not in html.replace("http-equiv", "")
    assert html.count("<tr>") == len(rows) + html.count("<thead>")
    with pytest.raises(KeyError, match="none of the answers"):
        report["no such"]


def test_a_private_report_has_no_mark_and_files_are_written(table, tmp_path):
    report = queries.plan([*ASKS[:2], Ask("count", where="(age)", name="of age")], budget=PURE).run(table)
    assert report.notes() == ["of age: only rows where age is known"]
    report.to_html(tmp_path / "page.html")
    report.to_csv(tmp_path / "table.csv")
    report.to_json(tmp_path / "all.json")
    assert not report.simulation
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "protect nobody" not in page
    assert "whether one row is in the data, this page changes the odds by a factor of at most 2.72." in page
    assert len((tmp_path / "table.csv").read_text(encoding="utf-8").splitlines()) == 6
    assert json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))["epsilon"] == pytest.approx(1.0)


def test_a_query_that_costs_more_than_planned_ends_the_run(table, monkeypatch):
    plan = queries.plan([Ask("count")], budget=PURE)
    need = plan.demands[0]
    monkeypatch.setattr(type(need), "allowed", lambda self, strength, noise: replace(PURE, epsilon=2.0))
    with pytest.raises(RuntimeError, match=r"was planned at .* nothing was spent"):
        plan.run(table)


def test_a_table_that_an_engine_reads_gives_the_answers_of_one_in_memory(table, tmp_path):
    """And a query that is refused leaves no thread waiting, and nothing spent."""
    pytest.importorskip("duckdb", reason="the extra 'tables' is not installed")
    path = tmp_path / "visits.parquet"
    table.to_parquet(path)
    asks = [ask for ask in ASKS if ask.what != "quantile"]
    exact = replace(PURE, epsilon=1e7)
    here, there = (queries.plan(asks, budget=exact, rows=1000).run(data) for data in (table, str(path)))
    for name in here:
        assert np.allclose(here[name].value, there[name].value, atol=1e-2), name
    ledger, before = Ledger(COME), threading.active_count()
    with pytest.raises(ValueError, match=r"'mean of nothing': .*nothing"):
        queries.plan([*asks, Ask("mean", "nothing", bounds=(0, 1))], budget=COME, ledger=ledger).run(path)
    with pytest.raises(BudgetExceeded):
        queries.plan(asks, budget=replace(COME, epsilon=2.0), ledger=ledger).run(path)
    assert not ledger.rows()
    assert threading.active_count() == before


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_answers_are_as_near_as_was_foretold(table, noise):
    """400 runs: each number within the foretold error in 95 % of them, less 6.1 standard deviations (1e-9)."""
    asks = [*ASKS[:5], ASKS[9], Ask("quantile", "paid", bounds=(0, 400), q=0.5)]
    asks += [Ask("mean", "paid", bounds=(0, 400)), Ask("variance", "age", bounds=(0, 110))]
    exact = queries.plan([ask for ask in asks if ask.what != "quantile"], budget=replace(PURE, epsilon=1e8), rows=900)
    true = exact.run(table)
    plan = queries.plan(asks, budget=replace(COME, epsilon=4.0), noise=noise, rows=900)
    rng, near = np.random.default_rng(5), dict.fromkeys(true, 0.0)
    ranks = []
    for _ in range(400):
        report = plan.run(table, rng=rng)
        for name in true:
            off = np.abs(np.asarray(report[name].value) - true[name].value)
            near[name] = near[name] + (off <= plan.errors[name] + 0.01) / 400
        ranks.append(abs(np.sum(table["paid"] < report["quantile of paid, q = 0.5"].value) - 500))
    least = 0.95 - 6.1 * math.sqrt(0.05 * 0.95 / 400)
    assert {name: share for name, share in near.items() if np.min(share) < least} == {}
    assert np.mean(np.array(ranks) <= plan.errors["quantile of paid, q = 0.5"]) >= least


def test_an_interrupt_after_the_charge_says_that_the_plan_stays_spent(monkeypatch):
    def interrupted(query):
        raise KeyboardInterrupt

    monkeypatch.setattr("dpkit.queries.reports.plans._answered", interrupted)
    budget = Budget(1.0, 0.0, adjacency="add_remove")
    ledger = Ledger(budget)
    with pytest.raises(KeyboardInterrupt) as stopped:
        queries.plan([queries.Ask("count")], budget=budget, ledger=ledger).run([1, 2])
    assert "stays spent" in stopped.value.__notes__[0]
    assert len(ledger.rows()) == 1
