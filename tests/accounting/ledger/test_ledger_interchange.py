"""Ledgers and descriptions as JSON, Opacus histories, dp-accounting events."""

import csv
import dataclasses
import importlib
import io
import json
import math
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tabled import tabled

import accounting
from accounting import (
    ZCDP,
    ApproxDP,
    Budget,
    BudgetExceeded,
    DiscreteGaussian,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    Ledger,
    LedgerCorrupted,
    LocalShuffled,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    Release,
    ShuffledBinomial,
    TreeAggregation,
    UnsupportedRelease,
    epsilon,
    parallel,
)
from accounting.ledger import from_dp_accounting, from_opacus, to_dp_accounting
from accounting.ledger.record.release_json import decode, encode
from accounting.releases import Composed

# ------------------------------------------------------------------------------------------- descriptions

positive = st.floats(1e-3, 1e3)
adjacency = st.sampled_from([None, "replace"])
simple = st.one_of(
    st.builds(Gaussian, positive, adjacency=adjacency),
    st.builds(DiscreteGaussian, positive),
    st.builds(GeneralizedGaussian, positive),
    st.builds(Laplace, positive),
    st.builds(NoisyMax, positive, st.sampled_from(["gumbel", "exponential", "laplace"])),
    st.builds(RandomizedResponse, positive, st.integers(2, 9)),
    st.builds(PureDP, positive),
    st.builds(ZCDP, positive),
    st.builds(ApproxDP, positive, st.floats(0, 0.5)),
    st.builds(TreeAggregation, positive, st.integers(1, 10**6)),
    st.builds(LocalShuffled, positive, st.integers(1, 10**6)),
    st.builds(ShuffledBinomial, st.integers(1, 1000), positive, st.integers(1, 9)),
)
composed = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(lambda a, b, n: a + n * b, inner, inner, st.integers(0, 1000)),
        st.builds(parallel, inner, inner),
    ),
    max_leaves=5,
)
subsampled = st.builds(
    PoissonSubsampled,
    st.builds(Gaussian, positive),
    st.floats(1e-6, 1.0),
    adjacency=st.sampled_from([None, "add_remove", "replace"]),
)


@given(st.one_of(composed, subsampled))
@example(Composed())
@example(parallel())
def test_every_description_comes_back(release):
    assert decode(encode(release)) == release
    assert json.loads(json.dumps(encode(release))) == encode(release)  # plain JSON, nothing lost


def test_every_public_description_is_known():
    public = {getattr(accounting, name) for name in accounting.__all__}
    kinds = {kind for kind in public if isinstance(kind, type) and issubclass(kind, Release)} - {Release}
    drawn = {Gaussian, DiscreteGaussian, GeneralizedGaussian, Laplace, NoisyMax, RandomizedResponse, PureDP, ZCDP}
    drawn |= {ApproxDP, TreeAggregation, LocalShuffled, ShuffledBinomial, PoissonSubsampled}
    assert drawn <= kinds
    for kind in kinds:
        with pytest.raises(ValueError, match=f"a stored '{kind.__name__}' does not hold what it must"):
            decode({"type": kind.__name__})


def test_numbers_of_numpy_are_stored_as_numbers():
    release = TreeAggregation(np.float64(3.0), steps=np.int64(8))
    assert encode(release) == encode(TreeAggregation(3.0, steps=8))


def test_a_default_is_not_stored_so_that_new_fields_change_no_old_text():
    assert encode(NoisyMax(0.5)) == {"type": "NoisyMax", "epsilon": 0.5}


@tabled(
    ("stored", "message"),
    [
        ([], "expected a stored release"),
        ({"type": "Budget", "epsilon": 1.0, "delta": 0.0}, "unknown release 'Budget'"),
        ({"type": "Gaussian", "noise_multiplier": 1.0, "x": 1}, "unknown field 'x'"),
        ({"type": "Gaussian", "noise_multiplier": -1.0}, "noise_multiplier must be positive"),
        ({"type": "Gaussian", "noise_multiplier": "1"}, "does not hold what it must"),
        ({"type": "Gaussian"}, "does not hold what it must"),
        ({"type": "Composed", "parts": [[{"type": "PureDP", "epsilon": 1}, -1]]}, "at least 1"),
        ({"type": "Parallel", "branches": [1]}, "does not hold what it must"),
    ],
)
def test_what_is_not_a_description_is_refused(stored, message):
    with pytest.raises(ValueError, match=message):
        decode(stored)


def test_only_our_own_descriptions_are_stored():
    @dataclasses.dataclass(frozen=True, repr=False)
    class Gaussian(Release):  # of the same name, from elsewhere
        noise_multiplier: float = 1.0

    with pytest.raises(TypeError, match=r"stored with what weaker\(\) says of it"):
        encode(Gaussian())
    with pytest.raises(TypeError, match="release must be a description"):
        encode(1.0)
    assert type(decode(encode(accounting.Gaussian(2.0)))) is accounting.Gaussian


# ------------------------------------------------------------------------------------------------ ledgers


def some_ledger():
    ledger = Ledger(Budget(2.0, 1e-6, unit="person"), accountant="rdp", failure_delta=1e-8)
    ledger.spend(Laplace(30.0), label="first", scope="a")
    ledger.commit(ledger.spend(PureDP(0.1) + 3 * Gaussian(40.0), label='"quoted"', unit="person"))
    ledger.spend(ApproxDP(0.1, 1e-9), simulation=True)
    return ledger


def test_a_ledger_comes_back_and_goes_on():
    ledger = some_ledger()
    again = Ledger.from_json(ledger.to_json())
    assert (again.rows(), again.head, again.budget) == (ledger.rows(), ledger.head, ledger.budget)
    assert again.remaining() == ledger.remaining()
    assert again.accountant == ledger.accountant == "rdp"
    with pytest.raises(BudgetExceeded):
        again.spend(PureDP(2.0))
    again.spend(PureDP(0.1))
    Ledger.from_json(again.to_json(), expected_head=ledger.head)  # the earlier head is still in the chain
    with pytest.raises(LedgerCorrupted, match="does not contain the expected head"):
        Ledger.from_json(ledger.to_json(), expected_head=again.head)


@given(st.data())
def test_any_edit_of_the_text_is_detected_or_means_nothing(data):
    text = TEXT
    at = data.draw(st.integers(0, len(text) - 1))
    edited = text[:at] + data.draw(st.characters(codec="ascii")) + text[at + 1 :]
    try:
        again = Ledger.from_json(edited)
    except LedgerCorrupted:
        return
    assert (again.rows(), again.head, again.budget) == (ORIGINAL.rows(), ORIGINAL.head, ORIGINAL.budget)


ORIGINAL = some_ledger()
TEXT = ORIGINAL.to_json()


@tabled(
    "change",
    [
        lambda document: document["entries"].pop(),
        lambda document: document["entries"].pop(1),
        lambda document: document["entries"].insert(1, document["entries"][1]),
        lambda document: document["entries"][1]["entry"].update(label="other"),
        lambda document: document["entries"][0]["entry"]["budget"].update(epsilon=9.0),
        lambda document: document["entries"].clear(),
        lambda document: document.update(head="0" * 64),
        lambda document: document.update(version=2),
        lambda document: document.update(entries=3),
    ],
)
def test_a_changed_document_is_detected(change):
    document = json.loads(TEXT)
    change(document)
    with pytest.raises(LedgerCorrupted):
        Ledger.from_json(json.dumps(document))


# ------------------------------------------------------------------------------------------------- others


def test_an_opacus_history_is_poisson_subsampled_gaussians():
    run = from_opacus([(1.0, 0.01, 600), (2.0, 0.01, 400), (1.0, 0.01, 100)])
    first, second = (PoissonSubsampled(Gaussian(z, adjacency="add_remove"), 0.01) for z in (1.0, 2.0))
    assert run == 700 * first + 400 * second
    assert run.adjacency == "add_remove"
    assert from_opacus([]) == Composed()


def test_an_opacus_history_is_priced_like_the_accountant_itself():
    # opacus.accountants.RDPAccountant gives 6.7127 for q = 0.01, z = 1, 10,000 steps at δ = 1e-5 (integer orders and
    # a grid): the best real order cannot be worse
    assert 6.186 < epsilon(from_opacus([(1.0, 0.01, 10_000)]), 1e-5) <= 6.7128


@tabled(
    ("history", "message"),
    [
        ([(1.0, 0.01)], r"\(noise_multiplier, sample_rate, steps\), got an entry \(1.0, 0.01\)"),
        ([3], "got an entry 3"),
        ("history", r"history must be the \.history of an Opacus accountant"),
        (SimpleNamespace(steps=3), r"privacy_engine\.accountant\.history.*got SimpleNamespace"),
        ({"mechanism": "rdp"}, r"history must be the \.history of an Opacus accountant"),
        ([(1.0, 1.5, 10)], "rate must lie in"),
        ([(0.0, 0.1, 10)], "noise_multiplier must be positive"),
        ([(1.0, 0.1, 0)], "steps must be at least 1"),
    ],
)
def test_a_bad_history_is_refused(history, message):
    with pytest.raises((ValueError, TypeError), match=message):
        from_opacus(history)


@pytest.mark.parametrize("kind", ["prv", "rdp", "gdp"])
def test_an_accountant_and_whatever_holds_one_are_taken_for_its_history(kind):
    accountants = pytest.importorskip("opacus.accountants")
    accountant = accountants.create_accountant(kind)
    accountant.history = [(1.0, 0.01, 600)]
    for holder in (accountant, SimpleNamespace(accountant=accountant), accountant.state_dict()):
        assert from_opacus(holder) == from_opacus(accountant.history)


def test_events_need_dp_accounting(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ImportError, match=r"pip install dpkit\[pld\]"):
        to_dp_accounting(Gaussian(1.0))


def test_events_say_the_same():
    dp = pytest.importorskip("dp_accounting")
    total = Gaussian(2.0) + 3 * Laplace(4.0) + TreeAggregation(5.0, steps=9) + RandomizedResponse(0.5, 4)
    event = to_dp_accounting(total + NoisyMax(0.5) + PureDP(0.25))
    expected = {
        (dp.GaussianDpEvent(2.0), 1),
        (dp.LaplaceDpEvent(4.0), 3),
        (dp.SelfComposedDpEvent(dp.GaussianDpEvent(5.0), 4), 1),
        (dp.RandomizedResponseDpEvent(4 / (math.exp(0.5) + 3), 4), 1),
        (dp.RandomizedResponseDpEvent(2 / (math.exp(0.25) + 1), 2), 1),
        (dp.ZCDpEvent(accounting.zcdp(NoisyMax(0.5))), 1),
    }
    assert {(part.event, part.count) for part in event.events} == expected
    step = PoissonSubsampled(Gaussian(1.0), 0.01)
    assert to_dp_accounting(step) == dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(1.0))
    assert to_dp_accounting(parallel(Gaussian(1.0), Gaussian(2.0))) == dp.ZCDpEvent(0.5)
    # their event leaves the relation to the accountant, and means another pair under replacement
    with pytest.raises(UnsupportedRelease, match="dp-accounting has no event for PoissonSubsampled"):
        to_dp_accounting(3 * PoissonSubsampled(Gaussian(1.0), 0.01, adjacency="replace"))
    with pytest.raises(UnsupportedRelease, match="dp-accounting has no event for ApproxDP"):
        to_dp_accounting(Gaussian(1.0) + ApproxDP(0.1, 1e-6))


def test_events_cost_what_descriptions_cost():
    pld = pytest.importorskip("dp_accounting.pld")
    accountant = pld.PLDAccountant()
    accountant.compose(to_dp_accounting(20 * Gaussian(10.0)))
    # discretised and rounded up, at its default step 1e-4 a release
    assert accountant.get_epsilon(1e-6) == pytest.approx(epsilon(20 * Gaussian(10.0), 1e-6), rel=3e-3)


def test_events_come_back_as_descriptions():
    dp = pytest.importorskip("dp_accounting")
    step = PoissonSubsampled(Gaussian(1.0), 0.01)
    for release in (Gaussian(2.0) + 3 * Laplace(4.0) + 2 * ZCDP(0.1), 1000 * step, Composed()):
        assert from_dp_accounting(to_dp_accounting(release)) == release
    coin = from_dp_accounting(to_dp_accounting(RandomizedResponse(0.5, 4)))  # whose parameter is another one there
    assert (coin.epsilon, coin.categories) == (pytest.approx(0.5, rel=1e-12), 4)
    tree = dp.SelfComposedDpEvent(dp.SingleEpochTreeAggregationDpEvent(5.0, [7, 9]), 3)
    assert from_dp_accounting(tree) == 3 * TreeAggregation(5.0, steps=9)
    assert from_dp_accounting(dp.PoissonSampledDpEvent(0.0, dp.GaussianDpEvent(1.0))) == Composed()
    # P(x) ∝ e^(−a|x|), L1 sensitivity 3: (3a)-DP
    assert epsilon(from_dp_accounting(dp.dp_event.DiscreteLaplaceDpEvent(0.2, 3)), 0.0) == pytest.approx(0.6, rel=1e-12)


def test_events_that_nothing_describes_are_refused():
    dp = pytest.importorskip("dp_accounting")
    for event in (
        dp.NonPrivateDpEvent(),
        dp.GaussianDpEvent(0.0),
        dp.SampledWithoutReplacementDpEvent(100, 10, dp.GaussianDpEvent(1.0)),
        dp.ZCDpEvent(0.1, 0.1),
        dp.ComposedDpEvent([dp.GaussianDpEvent(1.0), dp.UnsupportedDpEvent()]),
    ):
        with pytest.raises(UnsupportedRelease, match="no description here covers the event"):
            from_dp_accounting(event)


def test_importing_events_needs_dp_accounting(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ImportError, match=r"pip install dpkit\[pld\]"):
        from_dp_accounting(None)


# ------------------------------------------------------------------------- descriptions from outside, and tables

OUTSIDE = """
from dataclasses import dataclass
from accounting import PureDP, Release

@dataclass(frozen=True, repr=False)
class Staircase(Release):
    loss: float
    steps: int = 3
    def weaker(self):
        return PureDP(self.loss, adjacency=self.adjacency)
"""


@pytest.fixture
def staircase(tmp_path, monkeypatch):
    """A module that is not part of the packages, imported."""
    (tmp_path / "their_noise.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("their_noise")
    yield module.Staircase
    sys.modules.pop("their_noise", None)


def test_a_description_from_outside_is_stored_with_what_prices_it(staircase, tmp_path):
    release = staircase(0.25, adjacency="replace")
    assert decode(encode(2 * release + Gaussian(9.0))) == 2 * release + Gaussian(9.0)
    path = tmp_path / "spends.ledger"
    with Ledger.create(path) as ledger:
        ledger.spend(release, label="theirs")
        ledger.spend(2 * release)
        assert ledger.rows()[0].release == release
        text = ledger.to_json()
    # elsewhere, where the class is not there
    code = (
        "import json; from accounting import Ledger\n"
        f"ledger = Ledger.open({str(path)!r}); ledger.verify(); row = ledger.rows()[0]\n"
        "same = json.loads(ledger.to_json()) == json.load(open(0))\n"
        "print(row.release, row.release.weaker(), row.release.adjacency, same, sep='|')\n"
        "ledger.spend(ledger.rows()[0].release, label='again')"
    )
    shown = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == (
        "Staircase(loss=0.25, steps=3, adjacency='replace')|PureDP(epsilon=0.25, adjacency='replace')|replace|True"
    )
    with Ledger.open(path) as ledger:  # and it comes back as what it is
        assert [row.release for row in ledger.rows()] == [release, 2 * release, release]


def test_another_version_of_an_outside_class_does_not_change_what_was_stored(staircase, monkeypatch):
    text = encode(staircase(0.25))
    monkeypatch.setattr(staircase, "weaker", lambda self: PureDP(self.loss / 2))
    found = decode(text)
    assert found.weaker() == PureDP(0.25)
    assert encode(found) == text


@pytest.mark.parametrize(
    "change", [{"kind": 3}, {"kind": "no_colon"}, {"fields": []}, {"weaker": {"type": "Wish"}}, {"more": 1}]
)
def test_a_stored_outside_description_is_checked(staircase, change):
    stored = {**encode(staircase(0.25)), **change}
    with pytest.raises(ValueError, match=r"stored|kind|unknown"):
        decode(stored)


@pytest.mark.parametrize("count", [-100, 0, 1.5, True])
def test_what_would_not_be_read_back_is_not_recorded(count, tmp_path):
    ledger = Ledger.create(tmp_path / "spends.ledger", Budget(1.0, 1e-6))
    ledger.spend(Gaussian(6.0))
    before = ledger.head, ledger.remaining()
    forged = Gaussian(6.0) + Gaussian(7.0)
    object.__setattr__(forged, "parts", ((Gaussian(6.0), count), (Gaussian(7.0), 1)))
    with pytest.raises((ValueError, TypeError)):
        ledger.spend(forged)
    assert (ledger.head, ledger.remaining()) == before
    assert len(Ledger.open(tmp_path / "spends.ledger").rows()) == 1


def test_a_table_of_everything():
    ledger = some_ledger()
    ledger.set_quota("a", Budget(0.5, 1e-7, unit="person"))
    ledger.mark("run", 3, "abc", label="=1+2")
    ledger.spend(PureDP(0.01), label="two\nlines \x1b[2J, and ; \u202e")
    lines = list(csv.DictReader(io.StringIO(ledger.to_csv())))
    assert [line["entry"] for line in lines] == ["opening", "spend", "spend", "spend", "quota", "mark", "spend"]
    assert [line["outcome"] for line in lines if line["entry"] == "spend"] == [
        "reserved", "released", "reserved", "reserved"
    ]  # fmt: skip
    assert json.loads(lines[2]["release"]) == encode(PureDP(0.1) + 3 * Gaussian(40.0))
    assert (lines[0]["epsilon"], lines[0]["unit"], lines[4]["scope"], lines[4]["delta"]) == (
        "2.0",
        "person",
        "a",
        "1e-07",
    )
    assert (lines[5]["run"], lines[5]["step"], lines[5]["digest"], lines[5]["label"]) == ("run", "3", "abc", "'=1+2")
    assert lines[6]["label"] == r"two\nlines \x1b[2J, and ; \u202e"
