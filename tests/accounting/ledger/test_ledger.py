"""What every ledger does, in memory and in a file."""

import copy
import math
import pickle
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledgers import opened
from tabled import tabled

from accounting import (
    ZCDP,
    AdjacencyMismatch,
    ApproxDP,
    Budget,
    BudgetExceeded,
    Gaussian,
    Laplace,
    Ledger,
    PureDP,
    TreeAggregation,
    UnsupportedRelease,
    calibrate,
    epsilon,
    parallel,
)
from accounting.loss.concentrated_curve import zcdp_rho
from accounting.releases import Composed

BUDGET = Budget(1.0, 1e-6)


@pytest.fixture(params=["memory", "file"])
def make(request, tmp_path):
    """Make a ledger of either kind."""

    def make(budget=None, **choices):
        if request.param == "memory":
            return Ledger(budget, **choices)
        return opened(tmp_path / "spends.ledger", budget, **choices)

    return make


def test_what_was_calibrated_can_be_spent_and_not_one_more(make):
    z = calibrate(lambda z: 100 * Gaussian(z), BUDGET)
    ledger = make(BUDGET)
    for _ in range(100):
        ledger.spend(Gaussian(z))
    assert ledger.epsilon() <= 1.0
    assert ledger.epsilon() == pytest.approx(1.0, rel=1e-12)
    before = ledger.rows()
    with pytest.raises(BudgetExceeded, match=r"'one more' asks for .* has booked 1 of 1, left 0$"):
        ledger.spend(Gaussian(100 * z), label="one more")
    assert ledger.rows() == before


def test_refusal_leaves_everything_as_it_was(make):
    ledger = make(BUDGET)
    ledger.spend(Gaussian(6.0), label="kept")
    head, total, remaining = ledger.head, ledger.total, ledger.remaining()
    with pytest.raises(BudgetExceeded):
        ledger.spend(Gaussian(3.0))
    assert (ledger.head, ledger.total, ledger.remaining()) == (head, total, remaining)
    ledger.spend(Gaussian(20.0))  # and what still fits is admitted


def test_a_refused_first_release_does_not_fix_the_measure(make):
    ledger = make(BUDGET)
    with pytest.raises(BudgetExceeded):
        ledger.spend(Gaussian(1.0))
    assert ledger.accountant is None
    ledger.spend(ZCDP(zcdp_rho(1.0, 1e-6) / 7))
    assert ledger.accountant == "zcdp"


def test_rows_say_what_happened(make):
    ledger = make(Budget(3.0, 1e-6, unit="person"))
    ledger.spend(Gaussian(6.0), label="a", scope="north", unit="person", simulation=True)
    with ledger.reserve(Gaussian(8.0), label="b"):
        assert ledger.rows()[1].outcome == "reserved"
    with pytest.raises(KeyboardInterrupt), ledger.reserve(Gaussian(8.0), label="c"):
        raise KeyboardInterrupt
    rows = ledger.rows()
    assert [(row.index, row.label, row.scope, row.unit, row.simulation, row.outcome) for row in rows] == [
        (0, "a", "north", "person", True, "reserved"),
        (1, "b", None, None, False, "released"),
        (2, "c", None, None, False, "failed"),
    ]
    assert rows[0].time <= rows[1].time <= rows[2].time
    assert ledger.simulation
    assert ledger.total == Gaussian(6.0) + 2 * Gaussian(8.0)  # what failed counts as spent


def test_an_outcome_is_committed_once_and_to_its_own_row(make):
    ledger = make()
    row = ledger.spend(Gaussian(1.0))
    with pytest.raises(ValueError, match="outcome must be 'released' or 'failed', got outcome='reserved'"):
        ledger.commit(row, "reserved")
    with pytest.raises(ValueError, match="another one"):
        ledger.commit(Ledger().spend(Gaussian(1.0)))
    ledger.commit(row)
    with pytest.raises(ValueError, match="already committed as 'released'"):
        ledger.commit(row, "failed")
    with pytest.raises(TypeError, match="row must be a Row"):
        ledger.commit(0)


def test_a_closed_ledger_records_nothing_and_can_be_read(make):
    ledger = make(BUDGET)
    row = ledger.spend(Gaussian(6.0))
    with ledger:
        pass
    ledger.close()
    assert ledger.closed
    for attempt in (lambda: ledger.spend(Gaussian(60.0)), lambda: ledger.commit(row)):
        with pytest.raises(ValueError, match="the ledger is closed: nothing was recorded"):
            attempt()
    assert ledger.rows() == [row]
    assert ledger.epsilon() == epsilon(Gaussian(6.0), 1e-6)


def test_mixed_adjacencies_and_units_are_refused(make):
    ledger = make(Budget(1.0, 1e-6, adjacency="add_remove", unit="person"))
    with pytest.raises(AdjacencyMismatch, match=r"'add_remove' neighbours and .* under 'replace'"):
        ledger.spend(Gaussian(10.0, adjacency="replace"))
    with pytest.raises(AdjacencyMismatch, match="the budget counts one 'person' and 'daily' one 'row'"):
        ledger.spend(Gaussian(10.0), label="daily", unit="row")
    assert ledger.rows() == []


def test_mixed_adjacencies_and_units_are_refused_without_a_budget_too(make):
    ledger = make()
    ledger.spend(Gaussian(10.0, adjacency="replace"), unit="row", scope="a")
    with pytest.raises(AdjacencyMismatch, match="different adjacencies"):
        ledger.spend(Gaussian(10.0, adjacency="add_remove"), scope="b")
    with pytest.raises(AdjacencyMismatch, match="the ledger counts one 'row'"):
        ledger.spend(Gaussian(10.0), unit="person")
    assert len(ledger.rows()) == 1


@tabled(
    ("arguments", "error", "message"),
    [
        ({"release": 1.0}, TypeError, "release must be a description"),
        ({"label": 3}, TypeError, "label must be a string, got label=3"),
        ({"scope": ""}, TypeError, "scope must be a nonempty string, got scope=''"),
        ({"scope": "a//b"}, ValueError, "scope must have no empty part between its slashes, got scope='a//b'"),
        ({"label": "\ud800"}, ValueError, "label must not hold lone surrogates"),
        ({"unit": 1}, TypeError, "unit must be a nonempty string, got unit=1"),
    ],
)
def test_bad_arguments_are_refused(make, arguments, error, message):
    ledger = make(BUDGET)
    with pytest.raises(error, match=message):
        ledger.spend(**{"release": Gaussian(10.0), **arguments})
    assert ledger.rows() == []


@tabled(
    ("budget", "choices", "error", "message"),
    [
        (1.0, {}, TypeError, "budget must be a Budget or None"),
        (BUDGET, {"accountant": "pld"}, ValueError, "accountant must be one of"),
        (Budget(1.0, 0.0), {"accountant": "gdp"}, ValueError, "admits accountant='pure' only"),
        (BUDGET, {"failure_delta": 1e-6}, ValueError, "failure_delta must be below the budget's delta=1e-06"),
        (BUDGET, {"failure_delta": math.nan}, ValueError, "failure_delta must be a number"),
        (BUDGET, {"plan": 3}, TypeError, "plan must be a description"),
        (BUDGET, {"plan": Gaussian(9.0), "accountant": "gdp"}, ValueError, "do not apply"),
        (BUDGET, {"plan": Gaussian(2.0)}, BudgetExceeded, "costs ε=2.2"),
        (BUDGET, {"plan": Gaussian(9.0, adjacency="zero_out")}, AdjacencyMismatch, "zero_out"),
        (None, {"accountant": "gdp"}, ValueError, "accountant needs a budget"),
    ],
)
def test_bad_choices_are_refused(make, budget, choices, error, message):
    with pytest.raises(error, match=message):
        make(budget, **choices)


def test_remaining_and_epsilon(make):
    ledger = make(BUDGET, accountant="gdp")
    assert ledger.remaining() == 1.0
    assert ledger.epsilon() == 0.0
    ledger.spend(Gaussian(6.0))
    assert ledger.remaining() == pytest.approx(1.0 - epsilon(Gaussian(6.0), 1e-6), rel=1e-12)


def test_a_ledger_without_a_budget_refuses_nothing_but_needs_a_delta(make):
    ledger = make()
    for z in (0.01, 0.01):
        ledger.spend(Gaussian(z))
    assert ledger.remaining() == math.inf
    assert ledger.epsilon(1e-6) > 1e4
    with pytest.raises(ValueError, match="delta must be given"):
        ledger.epsilon()


def test_a_unique_label_is_new(make):
    ledger = make(BUDGET)
    ledger.spend(Gaussian(60.0), label="seen")
    before = ledger.rows()
    with pytest.raises(ValueError, match="label must be new, got label='seen'"):
        ledger.spend(Gaussian(60.0), label="seen", unique=True)
    assert ledger.rows() == before
    ledger.spend(Gaussian(60.0), label="seen")  # asked for by the one who must not be second, not by all


def test_who_acts_is_in_the_row_and_in_its_scope(make):
    ledger = make(Budget(2.0, 1e-6))
    plain = ledger.spend(Gaussian(20.0), label="nobody's")
    ann, bob = ledger.acting("ann", scope="north"), ledger.acting("bob").acting("bob", scope="south").acting("bob")
    first = ann.spend(Gaussian(20.0), label="whole north")
    ann.spend(Gaussian(20.0), label="part", scope="2027")
    bob.commit(bob.spend(Gaussian(20.0), label="south's"))
    assert [(row.actor, row.scope) for row in ledger.rows()] == [
        (None, None), ("ann", "north"), ("ann", "north/2027"), ("bob", "south"),
    ]  # fmt: skip
    assert ann.rows() == ledger.rows()
    assert "by 'ann'" in repr(first)
    assert "by" not in repr(plain)
    # disjoint parts compose in parallel
    assert ledger.epsilon(scope="south") == pytest.approx(two(20.0), rel=1e-9)
    ann.set_quota("2027", Budget(0.5, 1e-6))
    assert list(ledger.quotas()) == ["north/2027"]
    assert ledger.to_csv().splitlines()[3].endswith(",ann")
    again = Ledger.from_json(ledger.to_json())
    assert [row.actor for row in again.rows()] == [None, "ann", "ann", "bob"]
    copied = pickle.loads(pickle.dumps(ann))
    assert copied.spend(Gaussian(20.0)).actor == "ann"
    for wrong in ({"actor": ""}, {"actor": "a", "scope": "a//b"}):
        with pytest.raises((TypeError, ValueError), match=r"actor|scope"):
            ledger.acting(**wrong)


def two(noise_multiplier):
    """ε of two releases."""
    return epsilon(2 * Gaussian(noise_multiplier), 1e-6)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda ledger: pickle.loads(pickle.dumps(ledger))])
def test_copies(make, duplicate):
    ledger = make(BUDGET)
    ledger.spend(Gaussian(6.0), label="first")
    twin = duplicate(ledger)
    assert (twin.rows(), twin.head, twin.budget) == (ledger.rows(), ledger.head, BUDGET)
    with pytest.raises(BudgetExceeded):
        twin.spend(Gaussian(3.0))
    ledger.close()
    assert duplicate(ledger).closed


releases = st.one_of(
    st.floats(8.0, 100.0).map(Gaussian),
    st.builds(TreeAggregation, st.floats(20.0, 100.0), st.integers(1, 64)),
    st.floats(1e-4, 0.2).map(PureDP),
    st.floats(1e-5, 3e-3).map(ZCDP),
    st.floats(10.0, 200.0).map(Laplace),
    st.builds(ApproxDP, st.floats(1e-3, 0.1), st.floats(1e-10, 3e-7)),
)
spends = st.lists(st.tuples(st.sampled_from([None, "a", "b", "a/x", "a/y"]), releases), max_size=40)


def quick_epsilon(release, delta=BUDGET.delta):
    """The smallest ε of the accountants with a closed formula."""
    found = []
    for name in ("gdp", "zcdp", "rdp", "pure"):
        with suppress(UnsupportedRelease):
            found.append(epsilon(release, delta, accountant=name))
    return min(found)


@pytest.mark.thorough
@settings(max_examples=25, deadline=None)
@given(spends, st.sampled_from([None, "mixed", "gdp", "zcdp", "pure", "rdp"]))
def test_whatever_is_asked_the_total_stays_within_the_budget(asked, accountant):
    ledger = Ledger(BUDGET, accountant=accountant)
    for scope, release in asked:
        before = ledger.rows()
        try:
            ledger.spend(release, scope=scope)
        except (BudgetExceeded, UnsupportedRelease):
            assert ledger.rows() == before
    if ledger.rows():
        # the plan of an untouched scope may be priced by its loss distribution
        assert quick_epsilon(ledger.total) <= BUDGET.epsilon or ledger.epsilon() <= BUDGET.epsilon
        assert ledger.remaining() >= 0


@pytest.mark.thorough
@settings(max_examples=20)
@given(spends)
def test_the_total_is_the_composition_of_the_rows(asked):
    ledger = Ledger()
    for scope, release in asked:
        ledger.spend(release, scope=scope)
    rows = ledger.rows()
    assert [(row.scope, row.release) for row in rows] == asked

    def in_scope(scope):
        return sum((row.release for row in rows if row.scope == scope), start=Composed())

    north = in_scope("a") + parallel(in_scope("a/x"), in_scope("a/y"))
    expected = in_scope(None) + parallel(north, in_scope("b"))
    for delta in (1e-6, 1e-2):
        assert quick_epsilon(ledger.total, delta) == pytest.approx(quick_epsilon(expected, delta), rel=1e-9)


def test_a_ledger_says_where_it_is_and_a_notebook_shows_its_newest_rows(tmp_path):
    with Ledger.create(tmp_path / "a.ledger", Budget(1.0, 1e-6)) as ledger:
        for i in range(25):
            ledger.spend(Gaussian(50.0), label=f"<{i}>")
        assert "a.ledger" in repr(ledger)
        page = ledger._repr_html_()
        assert page.count("<tr>") == 21
        assert "25 rows, the newest 20 shown" in page
        assert "<td>&lt;24&gt;</td>" in page
        assert "&lt;4&gt;" not in page
    assert repr(ledger).endswith("closed>")
    assert repr(Ledger()) == "<Ledger in memory, no budget, 0 releases>"
