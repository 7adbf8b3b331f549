"""Ledgers in files and on servers: what comes back, summaries, what the hash chain detects, and copies."""

import pickle
import subprocess
import sys

import pytest
from ledgers import edited, entries, forge_file, forged, opened
from tabled import tabled

from accounting import (
    ZCDP,
    Budget,
    BudgetExceeded,
    DiscreteGaussian,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    Ledger,
    LedgerCorrupted,
    NoisyMax,
    PureDP,
    TreeAggregation,
    calibrate,
    parallel,
)
from accounting.ledger import recorder
from accounting.ledger.storage import database, postgresql, sqlite

BUDGET = Budget(1.0, 1e-6)


def filled(place, rows=6):
    """A closed ledger with rows; its head."""
    with Ledger.create(place, Budget(5.0, 1e-6)) as ledger:
        for index in range(rows):
            ledger.commit(ledger.spend(Gaussian(10.0 + index), label=f"release {index}, ü 🚀"))
        return ledger.head


def said(ledger):
    return ledger.rows(), ledger.total, ledger.head, ledger.budget, ledger.accountant, ledger.quotas()


def test_everything_comes_back(new):
    with Ledger.create(new(), Budget(5.0, 1e-6, adjacency="add_remove", unit="person"), accountant="zcdp") as ledger:
        ledger.spend(Gaussian(10.0), label="ein Umlaut: ü, and a rocket: 🚀", scope="north")
        ledger.spend(2 * DiscreteGaussian(20.0) + TreeAggregation(30.0, steps=7), scope="south", unit="person")
        ledger.commit(ledger.spend(NoisyMax(0.1, noise="laplace"), simulation=True), "failed")
        ledger.spend(parallel(GeneralizedGaussian(40.0), ZCDP(0.001, adjacency="add_remove")))
        expected = said(ledger), ledger.remaining()
    with Ledger.open(new()) as again:
        assert expected == (said(again), again.remaining())
        assert pickle.loads(pickle.dumps(again)).head == again.head
        assert Ledger.from_json(again.to_json()).head == again.head


def test_the_filter_survives_reopening(new):
    z = calibrate(lambda z: 10 * Gaussian(z), BUDGET)
    for number in range(10):
        with (Ledger.open if number else Ledger.create)(new(), BUDGET) as ledger:
            ledger.spend(Gaussian(z))
    with Ledger.open(new()) as ledger, pytest.raises(BudgetExceeded):
        ledger.spend(Gaussian(z))


@tabled(
    ("budget", "choices", "name"),
    [
        (Budget(2.0, 1e-6), {}, "budget"),
        (Budget(1.0, 1e-6, unit="person"), {}, "budget"),
        (BUDGET, {"accountant": "zcdp"}, "accountant"),
        (BUDGET, {"failure_delta": 1e-7}, "failure_delta"),
        (BUDGET, {"plan": Gaussian(10.0)}, "plan"),
    ],
)
def test_reopening_with_other_choices_is_refused(new, budget, choices, name):
    opened(new(), BUDGET).close()
    with pytest.raises(ValueError, match=rf"was made with {name}=.*, got {name}="):
        Ledger.open(new(), budget, **choices)


def test_two_views_see_each_other(new):
    one, other = Ledger.create(new(), BUDGET), Ledger.open(new())
    row = one.spend(Gaussian(6.0))
    assert other.rows() == [row]
    other.commit(row)
    assert one.rows()[0].outcome == "released"
    assert one.head == other.head
    with pytest.raises(BudgetExceeded):
        other.spend(Gaussian(4.0))


@pytest.mark.thorough
def test_a_spend_is_stored_before_it_returns(new):
    # Another process that never sees this one's memory reads the row as soon as spend has returned.
    ledger = Ledger.create(new())
    ledger.spend(Gaussian(1.0), label="seen")
    code = f"from accounting import Ledger; print(Ledger.open({new()!r}).rows()[0].label)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "seen\n"


def test_a_locked_ledger_is_refused_in_time(new, monkeypatch):
    for module in (sqlite, postgresql):
        monkeypatch.setattr(module, "_WAIT_SECONDS", 0.05)
    ledger = Ledger.create(new())

    def refused(_):
        with pytest.raises(TimeoutError, match=r"was locked by another process for 0\.05 s; nothing was recorded"):
            ledger.spend(Gaussian(1.0))

    Ledger.open(new()).mark("a", 1, "aa", also=refused)  # while this one writes
    ledger.spend(Gaussian(1.0))
    assert len(ledger.rows()) == 1


# ------------------------------------------------------------------------------------------------ summaries


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(recorder, "_ENTRIES_PER_SUMMARY", 10)


def busy(place, rows=60):
    """A ledger with spends of several kinds and scopes, outcomes, marks and a quota, and what it says."""
    with Ledger.create(place, BUDGET) as ledger:
        ledger.set_quota("north", Budget(0.5, 1e-7))
        for i in range(rows):
            release = [Gaussian(900.0), Laplace(1500.0), PureDP(1e-4)][i % 3]
            row = ledger.spend(release, label=f"row {i}", scope=[None, "north", "north/ann", "south"][i % 4])
            if i % 5 == 0:
                ledger.commit(row)
            if i % 7 == 0:
                ledger.mark(f"run {i % 2}", i + 1, "ab")
        return said(ledger), (ledger.remaining(), ledger.quota_booked("north"))


def test_a_ledger_with_summaries_says_the_same_and_reads_the_last_one_only(new, often, monkeypatch):
    expected, sums = busy(new())
    rows, total, head, *_ = expected
    decoded = []
    original = database.from_dict
    monkeypatch.setattr(database, "from_dict", lambda values: decoded.append(values["entry"]) or original(values))
    ledger = Ledger.open(new())
    assert ledger.head == head
    ledger.spend(0 * PureDP(1e-4), label="one more", unique=True)
    assert len(decoded) < 40
    assert "summary" in decoded
    assert ledger.total == total
    assert (ledger.remaining(), ledger.quota_booked("north")) == pytest.approx(sums, rel=1e-12)
    assert ledger.newest_mark("run 0").step == max(i + 1 for i in range(0, 60, 14))
    assert ledger.verify(expected_head=head) == ledger.head
    assert ledger.rows()[:-1] == rows
    copy = Ledger.from_json(ledger.to_json())
    assert said(copy) == said(ledger)
    with pytest.raises(ValueError, match="already committed as 'released'"):
        ledger.commit(rows[0])
    with pytest.raises(ValueError, match="label must be new"):
        ledger.spend(PureDP(1e-4), label="row 1", unique=True)
    with pytest.raises(ValueError, match="another process or an older state"):
        ledger.mark("run 0", 3, "ab")
    with pytest.raises(BudgetExceeded):
        ledger.spend(Gaussian(3.0))
    ledger.commit(rows[1])
    assert ledger.rows()[1].outcome == "released"


@tabled("change", ["rows", "totals", "filter", "marks", "simulation"])
def test_a_forged_summary_that_a_file_begins_with_is_found_by_verifying(tmp_path, often, change):
    path = tmp_path / f"{change}.ledger"
    with Ledger.create(path, BUDGET) as ledger:
        ledger.mark("a", 2, "ab")
        for _ in range(8):
            ledger.spend(Gaussian(20.0))
        found = entries(ledger)
    state = found[-1]["state"]
    match change:
        case "rows":
            state["rows"] = 4
        case "totals":
            state["totals"][0][2] = 1
        case "filter":
            state["filter"]["sums"][0][1] = [0.0 for _ in state["filter"]["sums"][0][1]]
        case "marks":
            state["marks"] = []
        case "simulation":
            state["simulation"] = True
    forge_file(path, found)
    with pytest.raises(LedgerCorrupted, match="entry 10"), Ledger.open(path) as ledger:
        ledger.verify()


def test_an_edit_before_the_last_summary_is_found_by_verifying(new, often):
    head = busy(new())[0][2]
    edited(new(), "UPDATE entries SET body = replace(body, 'row 0', 'row x') WHERE id = 2")
    ledger = Ledger.open(new())
    for reading in (ledger.verify, ledger.rows, lambda: Ledger.open(new(), expected_head=head)):
        with pytest.raises(LedgerCorrupted, match="entry 2 does not match its hash"):
            reading()


# ------------------------------------------------------------------------------------------ what is detected

LAST = "(SELECT max(id) FROM entries)"
EDITS = [
    ([f"DELETE FROM entries WHERE id = {LAST}"], "12 entries are there and its head counts 13"),
    (["DELETE FROM entries WHERE id = 5"], "entry 5 is missing"),
    (["UPDATE entries SET body = replace(body, 'release 2', 'release 9') WHERE id = 5"], "entry 5 does not match"),
    (["UPDATE entries SET hash = hash || '0' WHERE id = 5"], "entry 5 does not match"),
    (["DELETE FROM entries WHERE id = 5", "UPDATE entries SET id = id - 1 WHERE id > 5"], "entry 5 does not follow"),
    (["INSERT INTO entries VALUES (13, '{\"index\": 99}', 'x')"], "entry 13 does not match"),
    (["UPDATE head SET entries = 12"], "its head counts 12"),
    (["UPDATE head SET hash = 'x'"], "its head counts 13"),
    (["DELETE FROM head"], "its head was edited"),
    (["DROP TABLE head"], "does not have the tables of a ledger"),
]
OF_FILES = [
    (["UPDATE entries SET body = CAST(body AS BLOB) WHERE id = 5"], "entry 5 does not hold text"),
    (["UPDATE head SET entries = 'many'"], "its head was edited"),
    (["CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries; END"], "does not have the tables"),
]
OF_SERVERS = [
    (["CREATE RULE quiet AS ON INSERT TO entries DO INSTEAD NOTHING"], "does not have the tables"),
    (["ALTER TABLE entries ENABLE ROW LEVEL SECURITY"], "does not have the tables"),
    (["CREATE VIEW more AS SELECT * FROM entries"], "does not have the tables"),
]


def test_edits_are_detected(new, request):
    own = OF_FILES if request.node.callspec.params["new"] == "file" else OF_SERVERS
    filled(new("good"))
    with Ledger.open(new("good")) as good:
        for number, (statements, message) in enumerate([*EDITS, *own]):
            good.backup(new(str(number)))
            edited(new(str(number)), *statements)
            with pytest.raises(LedgerCorrupted, match=message):
                Ledger.open(new(str(number)))


def test_an_older_state_is_known_by_who_has_read_the_ledger_and_by_a_noted_head(new):
    first = filled(new(), rows=2)
    with Ledger.open(new(), expected_head=first) as ledger:  # an earlier head stays in the chain
        ledger.spend(Gaussian(30.0))
        noted = ledger.head
    Ledger.open(new(), expected_head=noted).close()
    ledger = Ledger.open(new())
    older = "UPDATE head SET entries = 5, hash = (SELECT hash FROM entries WHERE id = 4)"
    edited(new(), f"DELETE FROM entries WHERE id = {LAST}", older)
    for _ in range(2):  # and it stays refused
        with pytest.raises(LedgerCorrupted, match="6 entries were there before and 5 are left"):
            ledger.spend(Gaussian(100.0))
    Ledger.open(new()).close()  # what is stored alone cannot tell
    with pytest.raises(LedgerCorrupted, match="does not contain the expected head"):
        Ledger.open(new(), expected_head=noted)
    for more in ({}, {"expected_head": noted}, {"budget": BUDGET}):
        with pytest.raises(FileNotFoundError, match="is the path right, and its volume mounted"):
            Ledger.open(new("none"), **more)


NOW = "2026-01-01T00:00:00+00:00"
ROW = {"entry": "spend", "index": 2, "time": NOW, "label": "", "scope": None, "simulation": False, "unit": None}


@tabled(
    ("entry", "message"),
    [
        ({**ROW, "release": {"type": "Wish"}}, "entry 5 cannot be read: unknown release 'Wish'"),
        ({**ROW, "release": {"type": "PureDP", "epsilon": -1}}, "entry 5 cannot be read: epsilon must be"),
        ({**ROW, "nonce": 7, "release": {"type": "PureDP", "epsilon": 1}}, "entry 5 cannot be read: a nonce has 32"),
        ({**ROW, "index": 7, "release": {"type": "PureDP", "epsilon": 1}}, "entry 5 cannot stand where it does"),
        ({**ROW, "release": {"type": "PureDP", "epsilon": 1}, "more": 1}, "an entry 'spend' has the fields"),
        ({"entry": "outcome", "time": NOW, "index": 0, "outcome": "released"}, "row 0 was already committed"),
        ({"entry": "outcome", "time": NOW, "index": 99, "outcome": "failed"}, "index must name one of the 2 rows"),
        ({"entry": "outcome", "time": NOW, "index": 1, "outcome": "lost"}, "outcome must be 'released' or 'failed'"),
        ({"entry": "outcome", "time": NOW, "index": 1.0, "outcome": "failed"}, "must hold a whole number"),
        ({"entry": "wish", "time": NOW}, "unknown kind of entry 'wish'"),
        ({"entry": "spend"}, "entry 5 cannot be read"),
    ],
)
def test_a_valid_chain_of_nonsense_is_refused(tmp_path, entry, message):
    ledger, path = Ledger(), tmp_path / "spends.ledger"
    for z in (10.0, 11.0):
        ledger.commit(ledger.spend(Gaussian(z)))
    if not path.exists():
        Ledger.create(path).close()
    forge_file(path, [*entries(ledger), entry])
    with pytest.raises(LedgerCorrupted, match=message):
        Ledger.open(path)
    with pytest.raises(LedgerCorrupted):
        Ledger.from_json(forged([*entries(ledger), entry]))


# --------------------------------------------------------------------------------------------------- copies


@pytest.mark.parametrize("there", ["file", "server"])
def test_copies_go_from_everywhere_to_everywhere_and_back(new, there, tmp_path, request):
    copy, late_copy = (
        [str(tmp_path / name) for name in ("copy", "late")]
        if there == "file"
        else [request.getfixturevalue("postgres").url() for _ in range(2)]
    )
    with Ledger.create(new(), BUDGET) as ledger:
        ledger.spend(Gaussian(20.0), label="before")
        noted = ledger.backup(copy)
        ledger.spend(Gaussian(30.0), label="after")
        late = ledger.head
        for taken in (copy, new()):
            with pytest.raises(FileExistsError, match="replaces nothing"):
                ledger.backup(taken)
    with pytest.raises(FileExistsError):
        Ledger.restore(copy, new())
    with pytest.raises(LedgerCorrupted, match="does not contain the expected head"):
        Ledger.restore(copy, new("again"), expected_head=late)
    with Ledger.restore(copy, new("again"), expected_head=noted) as ledger:
        assert ([row.label for row in ledger.rows()], ledger.head) == (["before"], noted)
        ledger.spend(Gaussian(40.0))
    with pytest.raises(FileNotFoundError, match="there is no backup"):
        Ledger.restore(late_copy, new("never"))


def test_what_has_nothing_to_copy_says_so(tmp_path):
    with pytest.raises(ValueError, match="in memory: keep its to_json"):
        Ledger().backup(tmp_path / "new")
    with Ledger.create(tmp_path / "closed") as ledger:
        pass
    with pytest.raises(ValueError, match="this one is closed"):
        ledger.backup(tmp_path / "new")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError, match="replaces nothing"), Ledger.open(tmp_path / "closed") as ledger:
        ledger.backup(tmp_path / "link")


def test_a_mark_and_what_else_is_written_are_one_transaction(new):
    ledger = Ledger.create(new())
    facts = "facts"
    # beside the ledger's own tables, which must be as they were
    if "://" in new():
        facts = "beside.facts"
        edited(new(), "CREATE SCHEMA IF NOT EXISTS beside", "DROP TABLE IF EXISTS beside.facts")
        edited(new(), "CREATE TABLE beside.facts (n INTEGER)")
    else:
        ledger.mark("b", 1, "aa", also=lambda db: db.execute("CREATE TEMP TABLE facts (n INTEGER)"))
    found = []

    def fact(number, error=None):
        def write(db):
            db.execute(f"INSERT INTO {facts} VALUES ({number})")
            if error is not None:
                raise error

        return write

    ledger.mark("a", 1, "ab", also=fact(1))
    with pytest.raises(KeyboardInterrupt):
        ledger.mark("a", 2, "cd", also=fact(2, KeyboardInterrupt()))
    assert ledger.newest_mark("a").step == 1
    with pytest.raises(ValueError, match="step must pass"):  # refused before anything else is written
        ledger.mark("a", 1, "ef", also=fact(3))
    ledger.mark("a", 2, "cd", also=lambda db: found.extend(db.execute(f"SELECT n FROM {facts}").fetchall()))
    assert found == [(1,)]
    with pytest.raises(ValueError, match="in memory"):
        Ledger().mark("a", 1, "ab", also=fact(4))
