"""What an answer, or a refusal, must not tell beside its noisy numbers."""

import datetime
import gzip

import numpy as np
import pytest

from accounting import Budget
from dpkit import queries

pl = pytest.importorskip("polars")
pytest.importorskip("duckdb")

ROW = Budget(1e6, 0.0, adjacency="add_remove")
PERSON = Budget(0.5, 1e-4, adjacency="add_remove", unit="person")
pytestmark = pytest.mark.filterwarnings("ignore:epsilon is so large")


def test_a_person_of_many_groups_shows_none_of_those_that_nobody_else_has():
    """δ/2 holds for the groups that are used, of which one person has one; here all but one had a chance of 4·10⁻⁵."""
    table = {"g": [f"own {i}" for i in range(3000)], "id": ["u"] * 3000}
    ask = {"groups": "g", "person": "id", "max_groups": 1, "max_per_group": 1, "budget": PERSON}
    for data in (table, {**table, "g": [*table["g"][1:], "other"]}):
        # twenty runs would have shown one with probability 0.9, and do with probability 0.001
        assert not any(queries.count(data, rng=np.random.default_rng(seed), **ask).keys for seed in range(20))
    nobody = {"g": table["g"], "asked": [False] * 3000}
    budget = Budget(0.5, 1e-4, adjacency="add_remove")
    assert queries.count(nobody, groups="g", where="asked = true", budget=budget).keys == ()


def test_groups_of_equal_counts_do_not_tell_which_came_first_in_the_data():
    budget = Budget(1e6, 1e-6, adjacency="add_remove")
    for groups in (["b"] * 5 + ["a"] * 5, ["a"] * 5 + ["b"] * 5):
        assert queries.count({"g": np.array(groups, object)}, groups="g", budget=budget).keys == ("a", "b")
    for zeros in ([0.0, -0.0], [-0.0, 0.0]):
        assert repr(queries.count({"g": np.array(zeros * 5)}, groups="g", budget=budget).keys) == "(0.0,)"


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        ([datetime.date(2026, 1, 1)] * 3, [datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1)]),
        ([2.0**53] * 3, [2**53, 2**53 + 1]),
    ],
)
def test_no_row_counts_in_two_groups_whose_keys_a_column_holds_as_one(values, keys):
    with pytest.raises(ValueError, match=r"keys must be distinct as 'x' holds them.*1 repeated among 2"):
        queries.count(pl.LazyFrame({"x": values}), groups="x", keys=keys, budget=ROW)


def test_whole_numbers_are_answered_in_whole_numbers_of_no_rows_too():
    answers = {
        queries.sum(np.array(rows, np.int64), bounds=(0, 3), budget=Budget(1.0, 0.0, adjacency="add_remove")).value % 1
        for rows in ([], [], [], [2], [2], [2])
    }
    assert answers == {0.0}


def test_a_file_named_like_a_pattern_is_that_file(tmp_path):
    (tmp_path / "visits1.csv").write_text("a\n1\n1\n1\n")
    for name in ("visits[1].csv", "visits*.csv", "visits?.csv"):
        (tmp_path / name).write_text("a\n7\n")
        assert queries.sum(str(tmp_path / name), "a", bounds=(0, 10), budget=ROW).value == 7


def test_no_row_of_a_text_file_decides_how_the_others_are_read(tmp_path):
    for name, opened in (("t.csv", open), ("t.csv.gz", gzip.open)):
        path = str(tmp_path / name)
        for good in ("name,age\nAnn,3\nBob,4\n", '"name";age\n"A,nn";3\nBob;4\n', "name\tage\n'Ann\t3\n#Bob\t4\n"):
            with opened(path, "wt") as file:
                file.write(good)
            assert queries.table(path).columns == ["name", "age"]
            assert queries.sum(path, "age", bounds=(0, 10), budget=ROW).value == 7
        for bad in ("name,age\nAnn,3\nBob,4,5,6\n", "name,age\nAnn,3\nBob\n", 'name,age\n"Ann,3\nBob,4\n'):
            with opened(path, "wt") as file:
                file.write(bad)
            with pytest.raises(ValueError, match=r"nothing was spent: Invalid Input.*as many fields as the first line"):
                queries.count(path, budget=ROW)


def test_refusals_do_not_show_values_of_the_data(tmp_path):
    (tmp_path / "t.csv").write_text("day,x\n2026-13-45,1\n2026-01-01,2\n")
    big = pl.LazyFrame({"id": [2**64 - 5, 3]}, schema={"id": pl.UInt64})
    persons = Budget(1.0, 0.0, adjacency="add_remove", unit="person")
    dates = np.array(["0000-02-03", "2026-01-01"], "datetime64[D]")
    asked = [
        lambda: queries.count(str(tmp_path / "t.csv"), where="day > 2026-01-01", budget=ROW),
        lambda: queries.count(big, person="id", max_contributions=1, budget=persons),
        lambda: queries.mean({"x": dates}, "x", bounds=("2025-01-01", "2026-01-01"), budget=ROW),
        lambda: queries.mean(
            {"x": [1.0, 2.0], "w": [1.0, -7.25]}, "x", weights="w", largest_weight=1, bounds=(0, 3), budget=ROW
        ),
    ]
    for ask, secret in zip(asked, ("13-45", "1844674407", "02-03", "7.25"), strict=True):
        with pytest.raises(ValueError, match=r"must|cannot read") as refused:
            ask()
        assert secret not in str(refused.value)


def test_missing_values_that_nobody_asked_about_decide_neither_rounding_nor_names():
    pa, pd = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    kinds = (
        pl.DataFrame,
        pa.table,
        lambda table: pd.DataFrame({name: pd.array(column, dtype="Int64") for name, column in table.items()}),
    )
    ask = {"where": "x >= 0", "budget": Budget(1.0, 1e-3, adjacency="add_remove")}
    persons = {"person": "x", "max_contributions": 1, "budget": PERSON}
    for made in kinds:
        for rows in ([1] * 99, [1] * 99 + [None]):
            data = made({"x": rows})
            assert queries.sum(data, "x", bounds=(0, 3), noise="laplace", **ask).value % 1 == 0
            assert list(map(repr, queries.count(data, groups="x", **ask).keys)) == ["1"]
        data = made({"x": [2**53, 2**53 + 1, None]})
        with pytest.raises(ValueError, match="person must be of at most"):
            queries.count(data, where="x >= 0", **persons)


def test_what_is_computed_of_a_person_depends_on_nobody_else_to_the_last_digit():
    rng = np.random.default_rng(0)
    rows = pl.DataFrame({"id": np.arange(400_000) % 200, "x": rng.lognormal(0, 8, 400_000)})
    found = []
    for data in (rows, rows.filter(pl.col("id") != 5)):
        persons = queries.table(data.lazy(), person="id").per_person(total=("x", "sum"), average=("x", "mean"))
        found.append({one: numbers for one, *numbers in persons.session.ask(f"SELECT * FROM {persons.rows()}")})
    del found[0][5]
    assert found[0] == found[1]


@pytest.mark.parametrize("column", [5, ("x", "sum", "x"), ("x", sum), "sum"])
def test_a_column_of_persons_that_makes_no_sense_is_refused_in_words(column):
    persons = queries.table(pl.LazyFrame({"id": [1], "x": [2]}), person="id")
    with pytest.raises(ValueError, match=r"per_person takes columns such as total=\('paid', 'sum'\)"):
        persons.per_person(total=column)
    with pytest.raises(TypeError, match=r"where=\"\(x\)\" means the rows that have a value there"):
        queries.count(pl.LazyFrame({"x": [2]}), where="x", budget=ROW)
    for ask in (
        lambda: queries.Ask("count", groups="g", keys="abc"),
        lambda: queries.marginals({"g": ["a"]}, {"g": "abc"}, budget=PERSON),
    ):
        with pytest.raises(TypeError, match=r"the text 'abc': write \['abc'\]"):
            ask()


def test_an_answer_that_shows_no_group_can_be_drawn():
    pytest.importorskip("matplotlib").use("Agg")
    answer = queries.count({"g": ["a"]}, groups="g", budget=Budget(1.0, 1e-6, adjacency="add_remove"))
    assert "no group is large enough" in answer.plot().get_title(loc="left")
