"""What verify() makes of sums: the last digits of another machine do not matter, and what is too small does."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledgers import entries, forged

from accounting import Budget, Gaussian, Laplace, Ledger, LedgerCorrupted, PoissonSubsampled, PureDP
from accounting.ledger import recorder
from accounting.ledger.filters import measure_sums, reserve_costs
from accounting.ledger.filters.level_charges import LevelCharges
from accounting.ledger.verification import DOUBT
from accounting.releases import Composed

B = Budget(1.0, 1e-6, adjacency="add_remove")
LEVELS = [0.0, 0.1, 0.3, 0.6]
KINDS = [PureDP(0.1), PureDP(0.2)]
costs_of_a_kind = st.tuples(st.floats(0.001, 0.2), st.lists(st.floats(1.0, 3.0), min_size=3, max_size=3)).map(
    lambda given: [given[0] * math.prod(given[1][:steps]) for steps in (3, 2, 1, 0)]
)


@settings(max_examples=60)
@given(
    st.lists(costs_of_a_kind, min_size=2, max_size=2),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12),
    st.lists(st.floats(-1.0, 1.0), min_size=9, max_size=9),
)
def test_what_is_reckoned_is_below_what_any_machine_charges(costs, spends, errors):
    """Also where its costs and its limit differ, and it charges the parts in another order."""
    share = 0.99 * DOUBT
    exact = LevelCharges(1.0, LEVELS, lambda release: costs[KINDS.index(release)])
    theirs = [
        [cost * (1 + share * error) for cost, error in zip(row, errors[4 * kind :], strict=False)]
        for kind, row in enumerate(costs)
    ]
    theirs = [[max(row[at:]) for at in range(4)] for row in theirs]
    other = LevelCharges(1.0 + share * errors[8], LEVELS, lambda release: theirs[KINDS.index(release)])
    least = charged = 0.0
    for counts in spends:
        release = Composed(tuple((kind, count) for kind, count in zip(KINDS, counts, strict=True) if count))
        before = charged
        for kind, count in reversed(release.parts):
            charged += other.charge(charged, count * kind, 0.0)
        assert exact.charged_at_least(before, release, DOUBT) <= charged - before + 1e-12
        least += exact.charged_at_least(least, release, DOUBT)
        assert least <= charged * (1 + 1e-12)
        if math.isinf(charged):
            break
    total = exact.unordered_at_least([(None, KINDS[0], 2), (None, KINDS[1], 1)], DOUBT)
    assert sum(total) <= sum(exact.unordered([(None, KINDS[0], 2), (None, KINDS[1], 1)], 0.0))


def spent(ledger):
    """A ledger with all there is: scopes, a quota set late, and a few kinds."""
    for number in range(12):
        ledger.spend(3 * Laplace(60.0) + Gaussian(300.0), scope=("a", "a/b", None)[number % 3])
        if number == 5:
            ledger.set_quota("a", Budget(0.9, 1e-7, adjacency="add_remove"))
    return ledger


def test_a_charge_that_just_misses_its_level_elsewhere_does_not_spoil_a_good_file(tmp_path, monkeypatch):
    """Eight releases fill a level to the last bit here; with those of another machine the eighth costs more."""
    monkeypatch.setattr(recorder, "_ENTRIES_PER_SUMMARY", 2)
    last_bits = [1.0]

    def costs(levels, _):
        # the largest level is 0.8 of M (0.8 for rare losses, too)
        cost = levels[-1] / 0.8 * 0.2 / 8 * (1 - 1e-13) * last_bits[0]
        return [cost * 1.2**steps for steps in range(len(levels) - 1, -1, -1)]

    def spend_all(path):
        with Ledger.create(path, B) as ledger:
            for _ in range(12):
                ledger.spend(PoissonSubsampled(Gaussian(4.0), 0.001))
            assert ledger.verify() == ledger.head
            last = [entry for entry in entries(ledger) if entry["entry"] == "summary"][-1]
            return last["state"]["filter"]["sums"][0][1]

    monkeypatch.setattr(measure_sums, "costs_between", costs)
    here = spend_all(tmp_path / "here.ledger")
    last_bits[0] = 1 + 4e-13
    there = spend_all(tmp_path / "there.ledger")
    apart = [abs(one / other - 1) for one, other in zip(here, there, strict=True) if one and other]
    assert max(apart) > 0.01  # what was compared to nine digits
    with Ledger.open(tmp_path / "here.ledger") as ledger:
        assert ledger.verify() == ledger.head


def test_costs_that_differ_in_their_ninth_digit_do_not_matter(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "_ENTRIES_PER_SUMMARY", 2)
    path = tmp_path / "digits.ledger"
    with Ledger.create(path, B) as ledger:
        head = spent(ledger).head
    found = reserve_costs._least
    reserve_costs._of_pair.cache_clear()
    monkeypatch.setattr(reserve_costs, "_least", lambda side, low: found(side, low) * (1 + 2e-9))
    try:
        with Ledger.open(path) as ledger:
            assert ledger.verify() == head
    finally:
        reserve_costs._of_pair.cache_clear()


@pytest.fixture(scope="module")
def summed_up(tmp_path_factory):
    """The entries of a ledger, of which the last sums up the others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "_ENTRIES_PER_SUMMARY", 12)
        found = entries(spent(Ledger.create(tmp_path_factory.mktemp("summed") / "up.ledger", B)))
    while found[-1]["entry"] != "summary":
        found.pop()
    return found


def test_sums_that_are_too_small_or_of_something_else_are_found(summed_up):
    def check(sums=lambda numbers: numbers, state=lambda state: state):
        *before, summary = json.loads(json.dumps(summed_up))
        stated = summary["state"]
        stated["filter"]["sums"] = [[scope, sums(numbers)] for scope, numbers in stated["filter"]["sums"]]
        Ledger.from_json(forged([*before, {**summary, "state": state(stated)}])).verify()

    check()
    check(sums=lambda numbers: [None if number is None else 1.5 * number for number in numbers])
    check(sums=lambda numbers: [None for _ in numbers])
    check(state=lambda state: state | {"totals": state["totals"][::-1]})
    wrong = [
        {"sums": lambda numbers: [None if number is None else 0.98 * number for number in numbers]},
        {"sums": lambda numbers: numbers[:-1]},
        {"sums": lambda numbers: [math.nan for _ in numbers]},
        {"state": lambda state: state | {"filter": state["filter"] | {"terms": 3}}},
        {"state": lambda state: state | {"filter": None}},
        {"state": lambda state: state | {"filter": state["filter"] | {"sums": state["filter"]["sums"][1:]}}},
        {"state": lambda state: state | {"filter": state["filter"] | {"sums": 2 * state["filter"]["sums"]}}},
        {"state": lambda state: state | {"quotas": []}},
        {"state": lambda state: state | {"quotas": 2 * state["quotas"]}},
        {"state": lambda state: state | {"quotas": [3]}},
        {"state": lambda state: state | {"simulation": True}},
        {"state": lambda state: state | {"marks": [3]}},
        {"state": lambda state: state | {"totals": state["totals"][1:]}},
        {"state": lambda state: {name: value for name, value in state.items() if name != "unit"}},
        {"state": lambda state: state | {"more": 1}},
    ]
    for changes in wrong:
        with pytest.raises(LedgerCorrupted, match=r"does not sum up|cannot be read"):
            check(**changes)
