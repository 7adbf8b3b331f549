"""Nested scopes and quotas: who is charged for what."""

import math
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import (
    AdjacencyMismatch,
    Budget,
    BudgetExceeded,
    Gaussian,
    Ledger,
    PoissonSubsampled,
    PureDP,
    UnsupportedRelease,
    audit,
    delta,
    epsilon,
    parallel,
)
from accounting.ledger.filters.scopes import ScopedSums, inside, path
from accounting.releases import Composed

BUDGET = Budget(2.0, 1e-6)
QUOTA = Budget(1.0, 1e-6)


@pytest.fixture(params=["memory", "file"])
def ledger(request, tmp_path):
    return Ledger(BUDGET) if request.param == "memory" else Ledger.create(tmp_path / "spends.ledger", BUDGET)


def test_a_part_meets_what_is_released_around_it(ledger):
    ledger.spend(Gaussian(20.0))
    ledger.spend(Gaussian(21.0), scope="north")
    ledger.spend(Gaussian(22.0), scope="north/ann")
    ledger.spend(Gaussian(23.0), scope="north/bo")
    ledger.spend(Gaussian(24.0), scope="south")
    whole, north, ann, bo, south = map(Gaussian, (20.0, 21.0, 22.0, 23.0, 24.0))
    assert ledger.epsilon() == epsilon(whole + parallel(north + parallel(ann, bo), south), 1e-6)
    assert ledger.epsilon(scope="north") == epsilon(whole + north + ann, 1e-6)
    assert ledger.epsilon(scope="north/bo") == epsilon(whole + north + bo, 1e-6)
    assert ledger.epsilon(scope="south") == epsilon(whole + south, 1e-6)
    assert ledger.epsilon(scope="east") == epsilon(whole, 1e-6)
    assert [row.release for row in ledger.rows(scope="north")] == [north, ann, bo]
    assert [row.release for row in ledger.rows(scope="north/ann")] == [ann]
    assert ledger.remaining(scope="south") > ledger.remaining(scope="north/bo") > ledger.remaining(scope="north/ann")
    assert ledger.remaining() == ledger.remaining(scope="north/ann")
    assert ledger.scopes() == ["north", "north/ann", "north/bo", "south"]


scopes = st.sampled_from([None, "a", "a/x", "a/x/1", "a/y", "b", "b/x"])


@given(st.lists(st.tuples(scopes, st.lists(st.integers(0, 5), min_size=2, max_size=2)), max_size=12), scopes)
def test_sums_are_those_of_every_innermost_scope(terms, asked):
    sums = ScopedSums(2)
    for scope, amount in terms:
        sums.add(scope, np.array(amount, dtype=float))
    amount = np.array([1.0, 2.0])
    leaves = ["a/x/1", "a/x/2", "a/y", "a/z", "b/x", "b/y", "c"]
    met = [
        amount + sum((np.array(a, float) for s, a in terms if inside(leaf, s)), start=np.zeros(2))
        for leaf in leaves
        if inside(leaf, asked)
    ]
    assert np.array_equal(sums.after(asked, amount), np.max(met, axis=0))
    each = {tuple(vector) for vector in sums.each_after(asked, amount)}
    assert each <= {tuple(vector) for vector in met}
    # and no unit meets more than one of them in every number
    assert all(any(np.all(vector <= np.array(other)) for other in each) for vector in met)


def test_paths():
    assert path("a/b/c") == [None, "a", "a/b", "a/b/c"]
    assert inside("a/b", "a")
    assert not inside("ab", "a")
    assert inside(None, None)
    assert not inside(None, "a")


@pytest.mark.parametrize("others", [(), ("east",), ("east", "north/ann")], ids=str)
def test_what_is_released_on_all_need_only_fit_for_each_unit_by_a_measure_of_its_own(others):
    """Gaussian noise has no ε at δ = 0, and one strong pure release a large μ: no unit has met both."""
    ledger = Ledger(BUDGET, accountant="gdp")
    ledger.spend(Gaussian(3.0), scope="north")
    ledger.spend(PureDP(1.8), scope="south")
    for scope in others:
        ledger.spend(Gaussian(50.0), scope=scope)
    ledger.spend(PureDP(0.05), label="fits")
    for too_much in (PureDP(0.3), Gaussian(50.0)):  # for those in the south
        with pytest.raises(BudgetExceeded):
            ledger.spend(too_much)
    assert len(ledger.rows()) == 3 + len(others)
    assert ledger.epsilon() <= BUDGET.epsilon


# -------------------------------------------------------------------------------------------------- quotas


def test_a_quota_limits_its_scope_and_nothing_else(ledger):
    ledger.set_quota("north", QUOTA)
    assert ledger.quotas() == {"north": QUOTA}
    ledger.spend(Gaussian(6.5), scope="north")
    head = ledger.head
    with pytest.raises(BudgetExceeded, match=r"'map' asks for .* of the quota of 'north'"):
        ledger.spend(Gaussian(5.0), scope="north", label="map")
    with pytest.raises(BudgetExceeded, match="of the quota of 'north'"):
        ledger.spend(Gaussian(5.0), scope="north/ann")
    assert ledger.head == head
    ledger.spend(Gaussian(6.5), scope="south")
    ledger.spend(Gaussian(9.0))
    assert ledger.remaining(scope="north") <= 1.0 - epsilon(Gaussian(6.5), 1e-6)
    assert ledger.quota_booked("north") >= epsilon(Gaussian(6.5), 1e-6)
    ledger.set_quota("north", None)
    assert ledger.quotas() == {}
    ledger.spend(Gaussian(20.0), scope="north")


def test_a_quota_counts_what_was_recorded_before_it_and_survives_reopening(tmp_path):
    path = tmp_path / "spends.ledger"
    with Ledger.create(path, BUDGET) as ledger:
        ledger.spend(Gaussian(6.5), scope="north/ann")
        ledger.set_quota("north", QUOTA)
    ledger = Ledger.open(path)
    with pytest.raises(BudgetExceeded, match="of the quota"):
        ledger.spend(Gaussian(5.0), scope="north")
    copy = Ledger.from_json(ledger.to_json())
    assert (copy.quotas(), copy.head, copy.quota_booked("north")) == (
        ledger.quotas(), ledger.head, ledger.quota_booked("north")
    )  # fmt: skip


def test_quotas_need_no_budget_of_the_whole():
    ledger = Ledger()
    ledger.set_quota("ann", Budget(0.5, 0.0))
    for _ in range(5):
        ledger.spend(PureDP(0.1), scope="ann")
    with pytest.raises(BudgetExceeded):
        ledger.spend(PureDP(0.1), scope="ann")
    with pytest.raises(UnsupportedRelease):
        ledger.spend(Gaussian(1e6), scope="ann")
    assert ledger.remaining(scope="ann") == 0.0
    assert ledger.remaining(scope="bo") == math.inf


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("", QUOTA), TypeError, "scope must be a nonempty string"),
        (("a/", QUOTA), ValueError, "no empty part"),
        (("a", 1.0), TypeError, "budget must be a Budget or None"),
        (("a", Budget(1.0, 1e-6, unit="person")), AdjacencyMismatch, "counts unit 'row' and the quota of 'a' 'person'"),
        (("a", Budget(1.0, 1e-6, adjacency="add_remove")), AdjacencyMismatch, "counts adjacency 'replace'"),
    ],
)
def test_bad_quotas_are_refused(ledger, arguments, error, message):
    with pytest.raises(error, match=message):
        ledger.set_quota(*arguments)
    assert ledger.quotas() == {}


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([None, "a", "a/x", "b"]), st.floats(4.0, 60.0).map(Gaussian) | st.just(PureDP(0.1))),
        max_size=30,
    )
)
def test_whatever_is_asked_no_quota_is_passed(asked):
    ledger = Ledger(BUDGET)
    ledger.set_quota("a", QUOTA)
    ledger.set_quota("a/x", Budget(0.4, 1e-7), accountant="gdp")
    for scope, release in asked:
        with suppress(BudgetExceeded):
            ledger.spend(release, scope=scope)
    for scope, quota in ledger.quotas().items():
        inner = [row.release for row in ledger.rows(scope=scope) if scope == "a/x" or row.scope == "a"]
        # of a mixture, the Rényi filter may hold where Gaussian DP does not
        found = [delta(sum(inner, start=Composed()), quota.epsilon, accountant=name) for name in ("gdp", "rdp")]
        assert min(found) <= quota.delta


def test_an_audit_reports_scopes_and_quotas():
    ledger = Ledger(BUDGET)
    ledger.spend(Gaussian(20.0))
    ledger.set_quota("north", QUOTA)
    ledger.set_quota("west", QUOTA)
    for scope, z in (("north", 8.0), ("north/ann", 9.0), ("south", 10.0)):
        ledger.spend(Gaussian(z), scope=scope)
    report = audit.recompute(ledger)
    assert (report.problems, report.within_budget) == ([], True)
    assert [(one.scope, one.rows, one.quota) for one in report.scopes] == [
        ("north", 2, QUOTA), ("north/ann", 1, None), ("south", 1, None), ("west", 0, QUOTA)
    ]  # fmt: skip
    north, ann, south, west = report.scopes
    assert north.spent == epsilon(Gaussian(8.0) + Gaussian(9.0), 1e-6)
    assert north.within_quota is True
    assert ann.epsilon == north.epsilon == epsilon(Gaussian(20.0) + Gaussian(8.0) + Gaussian(9.0), 1e-6)
    assert south.epsilon == epsilon(Gaussian(20.0) + Gaussian(10.0), 1e-6)
    assert (west.spent, west.within_quota) == (0.0, True)
    assert report.to_dict()["scopes"][0]["quota"]["epsilon"] == 1.0
    # a quota that is passed by what was there before is found
    ledger.set_quota("north", Budget(0.1, 1e-6))
    assert audit.recompute(ledger).problems == ["what was recorded in 'north' passes its quota 0.1 at δ=1e-06"]


KINDS = [Gaussian(9.0), PureDP(0.25), 60 * PoissonSubsampled(Gaussian(1.5), 0.01)]


@pytest.mark.thorough
@settings(max_examples=10)
@given(st.lists(st.tuples(st.sampled_from(["north", "south"]), st.sampled_from(KINDS)), min_size=2, max_size=8))
def test_what_remains_is_what_the_worst_off_unit_has(spends):
    """Also where the order of two units depends on δ: one had pure releases, another rare samples."""
    ledger = Ledger(Budget(2.0, 1e-6, adjacency="add_remove"), accountant="mixed")
    for scope, release in [("north", KINDS[1]), ("south", KINDS[2]), *spends]:
        with suppress(BudgetExceeded):
            ledger.spend(release, scope=scope)
    each = [ledger.remaining(scope=scope) for scope in ("north", "south")]
    assert ledger.remaining() == min(each)
    assert max(each) < 2.0
