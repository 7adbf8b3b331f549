"""SELECT as the questions of a plan: what is understood is what SQL means, and all else is refused by its clause."""

import numpy as np
import pandas as pd
import pytest
from tabled import tabled

from accounting import Budget
from dpkit import queries

pytest.importorskip("sqlglot", reason="the extra 'tables' is not installed")
duckdb = pytest.importorskip("duckdb", reason="the extra 'tables' is not installed")

from dpkit.queries.reports.sql import asks_from_sql  # noqa: E402

PUBLIC = {
    "town": {"keys": ["Graz", "Linz", "Bad Ischl"]},
    "sex": {"keys": ["f", "m"]},
    "paid": {"bounds": (0, 500)},
    "age": {"bounds": (0, 120)},
}
NOTHING = Budget(1e6, 0.0, adjacency="add_remove")


@pytest.fixture(scope="module")
def visits():
    rng = np.random.default_rng(0)
    n = 400
    return pd.DataFrame(
        {
            "town": rng.choice(["Graz", "Linz", "Bad Ischl"], n),
            "sex": rng.choice(["f", "m"], n),
            "age": rng.integers(0, 100, n),
            "paid": rng.integers(0, 400, n).astype(float),
            "day": pd.Timestamp("2026-10-01") + pd.to_timedelta(rng.integers(0, 31, n), unit="D"),
            "insured": rng.random(n) < 0.7,
            "doctor": pd.Series(rng.choice(["O'Neil", "Maier", ""], n)).replace("", None),
        }
    )


@tabled(
    "sql",
    [
        "SELECT COUNT(*) FROM visits",
        "SELECT COUNT(*) AS n, SUM(paid), AVG(v.paid) FROM visits v WHERE age >= 18 AND NOT insured",
        "SELECT town, sex, COUNT(*), AVG(paid) FROM visits GROUP BY town, sex",
        "SELECT VAR_POP(age) FROM visits WHERE town IN ('Graz', 'Bad Ischl') OR age BETWEEN 20 AND 30",
        "SELECT COUNT(*) FROM visits WHERE day < DATE '2026-10-11' AND (sex = 'f' OR insured = TRUE)",
        "SELECT COUNT(*) FROM visits WHERE NOT (town = 'Linz' AND age > 50) AND 18 < age AND paid <> 7",
        "SELECT COUNT(doctor) FROM visits",
        "SELECT COUNT(*) FROM visits WHERE doctor IS NULL",
        "SELECT COUNT(*) FROM visits WHERE doctor IS NOT NULL AND doctor <> 'Maier'",
        "SELECT COUNT(*) FROM visits WHERE doctor = 'O''Neil' OR NOT doctor = 'Maier'",
        "SELECT COUNT(*) FILTER (WHERE sex = 'f'), AVG(age) FILTER (WHERE paid >= -1) FROM visits WHERE insured",
        "SELECT sex, COUNT(*) FROM visits WHERE paid > 1e2 AND age NOT IN (1, 2) GROUP BY sex",
    ],
)
def test_a_sentence_means_what_it_means_to_a_database(visits, sql):
    """At ε = 10⁶, against DuckDB."""
    asks = asks_from_sql(sql, PUBLIC)
    assert asks
    got = queries.plan(asks, budget=NOTHING).run(visits)
    grouped = " GROUP BY " in sql
    names = sql.split(" GROUP BY ")[1].split(", ") if grouped else []
    # the groups first, whether they are selected or not
    exact = duckdb.sql(sql if not grouped else sql.replace("SELECT ", f"SELECT {', '.join(names)}, ", 1)).df()
    exact = exact.iloc[:, -len(asks) :] if not grouped else exact
    for place, ask in enumerate(asks):
        column = exact.iloc[:, place - len(asks)]
        if grouped:
            table = dict(zip(exact.iloc[:, : len(names)].itertuples(index=False, name=None), column, strict=True))
            wanted = [table.get(key if isinstance(key, tuple) else (key,), 0) for key in got[ask.name].keys]
            assert np.allclose(got[ask.name].value, wanted, atol=1e-3)
        else:
            assert got[ask.name].value == pytest.approx(column[0], abs=1e-2)


def test_quantiles_are_asked_by_name():
    asks = asks_from_sql(
        "SELECT MEDIAN(paid), PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY paid), QUANTILE_CONT(age, 0.25) FROM v",
        PUBLIC,
    )
    assert [(ask.what, ask.column, ask.q) for ask in asks] == [
        ("quantile", "paid", 0.5),
        ("quantile", "paid", 0.9),
        ("quantile", "age", 0.25),
    ]


@tabled(
    ("sql", "told"),
    [
        ("", "sql must be a SELECT"),
        ("SELEC COUNT(*) FROM v", "must be one SELECT, got SELEC"),
        ("DELETE FROM v", "must be one SELECT, got DELETE"),
        ("EXPLAIN SELECT COUNT(*) FROM v", "must be one SELECT, got EXPLAIN"),
        ("SELECT COUNT(*) FROM v; DROP TABLE v", "got 2 statements"),
        ("SELECT COUNT(*) FROM v UNION SELECT COUNT(*) FROM w", "got UNION"),
        ("SELECT COUNT(*) FROM v WHERE 'open", "is not closed"),
        ("SELECT COUNT(*) FROM v WHERE", "cannot be read|cannot be translated"),
        ("SELECT 1", "FROM must name the table"),
        ("SELECT * FROM v", r"\* cannot be bounded"),
        ("SELECT paid FROM v", "paid in SELECT must be in GROUP BY"),
        ("SELECT town FROM v GROUP BY town", "at least one aggregate"),
        ("SELECT COUNT(DISTINCT id) FROM v", r"COUNT\(DISTINCT id\) cannot be bounded"),
        ("SELECT SUM(DISTINCT paid) FROM v", "DISTINCT paid cannot be bounded"),
        ("SELECT MAX(paid) FROM v", r"MAX\(paid\) cannot be bounded"),
        ("SELECT STDDEV(paid) FROM v", "VAR_POP is the variance"),
        ("SELECT SUM(paid + age) FROM v", "paid . age cannot be bounded"),
        ("SELECT COUNT(*) + 1 FROM v", "cannot be bounded"),
        ("SELECT COUNT(*) OVER () FROM v", "OVER .* cannot be bounded"),
        ("SELECT PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY paid DESC) FROM v", "cannot be bounded"),
        ("SELECT QUANTILE_CONT(paid, [0.1, 0.2]) FROM v", "must be a number"),
        ("SELECT COUNT(*) FROM a JOIN b USING (id)", "JOIN: join the tables before"),
        ("SELECT COUNT(*) FROM a, b", "JOIN: join the tables before"),
        ("SELECT COUNT(*) FROM (SELECT * FROM v)", "FROM .* must name one table"),
        ("SELECT COUNT(*) FROM read_csv('x')", "FROM .* must name one table"),
        ("SELECT COUNT(*) FROM db.v", "FROM .* must name one table"),
        ("SELECT COUNT(*) FROM v TABLESAMPLE 10%", "FROM .* must name one table"),
        ("SELECT COUNT(*) FROM v USING SAMPLE 3", "SAMPLE"),
        ("WITH q AS (SELECT 1) SELECT COUNT(*) FROM q", "WITH: ask for one table"),
        ("SELECT DISTINCT COUNT(*) FROM v", "DISTINCT"),
        ("SELECT town, COUNT(*) FROM v GROUP BY town HAVING COUNT(*) > 3", "HAVING"),
        ("SELECT COUNT(*) FROM v ORDER BY 1", "ORDER BY: sort the answer"),
        ("SELECT COUNT(*) FROM v LIMIT 1", "LIMIT"),
        ("SELECT COUNT(*) FROM v QUALIFY 1", "QUALIFY"),
        ("SELECT COUNT(*) INTO t FROM v", "INTO"),
        ("SELECT COUNT(*) FROM v GROUP BY ROLLUP (town)", "GROUP BY ROLLUP"),
        ("SELECT COUNT(*) FROM v GROUP BY ALL", "GROUP BY ALL"),
        ("SELECT COUNT(*) FROM v GROUP BY 1", "GROUP BY 1 cannot be bounded"),
        ("SELECT COUNT(*) FROM v WHERE town LIKE 'G%'", "WHERE town LIKE 'G%' cannot be translated"),
        ("SELECT COUNT(*) FROM v WHERE age > paid", "compares with paid: it must be a value"),
        ("SELECT COUNT(*) FROM v WHERE age > (SELECT 1)", "it must be a value"),
        ("SELECT COUNT(*) FROM v WHERE id IN (SELECT id FROM w)", "cannot be translated"),
        ("SELECT COUNT(*) FROM v WHERE age = NULL", "it must be a value"),
        ("SELECT COUNT(*) FROM v WHERE age + 1 > 2", "cannot be bounded: it must be a column"),
        ("SELECT COUNT(*) FROM v WHERE w.age > 1", "must be of the table in FROM"),
        ("SELECT COUNT(*) FROM v WHERE lower(town) = 'graz'", "must be a column"),
        ("SELECT SUM(minutes) FROM v", "say the bounds of the column 'minutes'"),
        ("SELECT age, COUNT(*) FROM v GROUP BY age", "say the keys of the column 'age'"),
    ],
)
def test_what_cannot_be_bounded_is_refused_by_its_clause(sql, told):
    with pytest.raises(ValueError, match=told):
        asks_from_sql(sql, PUBLIC)


def test_signs_before_a_number_are_taken_together():
    for number, written in (("-(-5)", "5"), ("-(5)", "-5"), ("-1.5e3", "-1.5e3"), ("(7)", "7")):
        (ask,) = asks_from_sql(f"SELECT COUNT(*) FROM v WHERE x > {number}", {})
        assert ask.where == f"x > {written}"
