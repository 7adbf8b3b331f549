"""``dpkit ledger`` and ``dpkit check``."""

import json
import re
import subprocess
import sys

import pytest
from commands import run
from tabled import tabled

from accounting import Budget, BudgetExceeded, Gaussian, Ledger, PoissonSubsampled, PureDP, bound, calibrate, epsilon
from dpkit.cli.claims import Claim, read_claim
from dpkit.cli.costs import NAMES
from dpkit.cli.expression import names

# -------------------------------------------------------------------------------------------------- ledger


def test_a_list_of_80_columns_keeps_times_and_outcomes_whole(tmp_path):
    place = tmp_path / "l.ledger"
    with Ledger.create(place, Budget(3.0, 1e-6, unit="person", adjacency="add_remove")) as ledger:
        ledger.commit(
            ledger.spend(Gaussian(7.123456789, adjacency="add_remove"), label="queries.mean of Amount by Town")
        )
        ledger.spend(PureDP(0.1, adjacency="add_remove") + Gaussian(30.0, adjacency="add_remove"), label="by hand")
        row = ledger.rows()[0]
    shown = run("ledger", "list", place, columns=80)
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    (first,) = (line for line in lines if f"{row.time:%Y-%m-%d %H:%M}" in line and line.lstrip().startswith("0 "))
    assert first.rstrip().endswith("released")
    assert "Gaussian(7.12346)" in first
    assert "reserved: recorded, and nobody noted" in shown


def test_a_ledger_that_is_full_has_nothing_left(tmp_path):
    place = tmp_path / "l.ledger"
    with Ledger.create(place, Budget(4.0, 1e-6)) as ledger:
        ledger.spend(Gaussian(calibrate(Gaussian, Budget(4.0, 1e-6))))
        assert ledger.remaining() < 1e-9
    assert "ε = 0, as the filter counts it" in run("ledger", "list", place)


def test_a_ledger_from_the_command_line(new):
    """In a file, or in PostgreSQL."""
    path, copy = new("spends"), new("copy")
    shown = run("ledger", "create", path, "--epsilon", 1, "--delta", 1e-6, "--unit", "person")
    assert "ε = 1 at δ = 1e-06, one person, add_remove" in shown
    assert "needs a ledger with --adjacency replace" in shown
    assert shown.startswith(run("ledger", "open", path))
    assert "Row 0 is recorded; ε = " in run("ledger", "spend", path, "Gaussian(9.0)", "--label", "means")
    assert "north" in run("ledger", "quota", path, "north", "--epsilon", 0.3, "--delta", 1e-7)
    assert "actor" not in run("ledger", "list", path)
    run("ledger", "spend", path, "2 * PureDP(0.1)", "--scope", "north", "--label", "counts", "--actor", "ann")
    refused = run("ledger", "spend", path, "PureDP(0.15)", "--scope", "north", "--label", "more", status=1)
    assert "Refused: 'more' asks for PureDP(0.15)" in refused
    assert "of the quota of 'north'" in refused
    listed = run("ledger", "list", path)
    assert "means" in listed
    assert "counts" in listed
    assert {"actor", "ann"} <= set(listed.split())
    assert "means" not in run("ledger", "list", path, "--scope", "north")
    assert "1 earlier row is not shown" in run("ledger", "list", path, "--last", 1)
    with Ledger.open(path) as ledger:
        assert [row.label for row in ledger.rows()] == ["means", "counts"]
        head = ledger.head
        assert run("ledger", "list", path, "--format", "csv") == ledger.to_csv()
        assert json.loads(run("ledger", "list", path, "--format", "json")) == json.loads(ledger.to_json())
    assert run("ledger", "verify", path).strip() == head
    assert run("ledger", "backup", path, copy).strip() == head
    assert run("ledger", "verify", copy, "--expected-head", head).strip() == head
    assert "There is no quota" in run("ledger", "quota", path, "north", "--lift")
    assert "does not contain the expected head" in run("ledger", "verify", copy, "--expected-head", "0" * 64, status=1)


@pytest.mark.thorough
def test_reports_and_refusals_of_a_ledger_in_a_database(postgres, tmp_path):
    """Under its address without the user; and what is asked of none makes none."""
    pytest.importorskip("pyarrow")
    url, missing = postgres.url(), postgres.url()
    shown = url.replace("tests@", "")
    run("ledger", "create", url, "--epsilon", 1, "--delta", 1e-6, "--adjacency", "add_remove")
    (tmp_path / "data.csv").write_text("age\n30\n40\n")
    run("query", tmp_path / "data.csv", "--count", "--epsilon", 0.1, "--ledger", url)
    page, facts = tmp_path / "page.html", tmp_path / "page.json"
    assert "The recorded releases are within the budget." in run("audit", url, "--html", page, "--json", facts)
    assert json.loads(facts.read_text(encoding="utf-8"))["name"] == shown
    assert shown in page.read_text(encoding="utf-8")
    assert "tests@" not in page.read_text(encoding="utf-8")
    for command in (["ledger", "list"], ["ledger", "verify"], ["ledger", "quota"], ["audit"]):
        output = run(*command, missing, status=2)
        assert f"there is no ledger {missing.replace('tests@', '')}" in output.replace("\n", "")
    output = run("query", tmp_path / "data.csv", "--count", "--epsilon", 0.1, "--ledger", missing, status=2)
    assert "is made by Ledger.create or `dpkit ledger create`" in output.replace("\n", " ")
    with pytest.raises(FileNotFoundError, match="there is no ledger postgresql"):
        Ledger.open(missing)
    assert "in percent codes" in run("audit", "postgresql://ann:p%zz@h/db", status=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "{new}", "--epsilon", 1], "--delta must be given, too"),
        (["create", "{old}", "--epsilon", 2, "--delta", 1e-6], "exists already"),
        (["create", ".", "--epsilon", 2, "--delta", 1e-6], "is a folder: name a file in it"),
        (["open", "{new}"], "dpkit ledger create"),
        (["list", "{new}"], "there is no ledger"),
        (["list", "{old}", "--format", "xml"], "--format must be table, csv or json"),
        (["list", "{old}", "--format", "csv", "--scope", "a"], "leave --scope out"),
        (["spend", "{new}", "Gaussian(1)"], "there is no ledger"),
        (["spend", "{old}", "Gausian(1)"], "did you mean 'Gaussian'"),
        (["spend", "{json}", "Gaussian(100)"], "is an export, which is read only"),
        (["backup", "{old}", "{old}"], "a copy of a ledger replaces nothing"),
        (["quota", "{old}", "a"], "a quota needs --epsilon and --delta, or --lift"),
    ],
)
def test_refusals(tmp_path, arguments, message):
    with Ledger.create(tmp_path / "old", Budget(1.0, 1e-6)) as ledger:
        (tmp_path / "json").write_text(ledger.to_json())
    places = {name: tmp_path / name for name in ("old", "new", "json")}
    output = run("ledger", *(str(argument).format(**places) for argument in arguments), status=2)
    assert message in output.replace("\n", "")
    assert "Traceback" not in output
    assert not (tmp_path / "new").exists()


def test_labels_cannot_move_the_cursor(tmp_path):
    path = tmp_path / "spends.ledger"
    label = "\x1b[2J\x1b[1;1HAll is well\r\u202e\x07"
    with Ledger.create(path, Budget(1.0, 1e-6)) as ledger:
        ledger.spend(Gaussian(8.0), label=label, scope="a\x1bb")
        with pytest.raises(BudgetExceeded) as refusal:
            ledger.spend(Gaussian(1.0), label=label)
        assert "\x1b" not in str(refusal.value)
    run("audit", path, "--html", tmp_path / "page.html", "--json", tmp_path / "page.json")
    texts = [
        run("audit", path),
        run("ledger", "list", path),
        run("ledger", "list", path, "--format", "csv"),
        run("ledger", "spend", path, "Gaussian(1.0)", "--label", label, status=1),
        (tmp_path / "page.html").read_text(encoding="utf-8"),
        (tmp_path / "page.json").read_text(encoding="utf-8"),
    ]
    for text in texts:
        assert not set(text) & set("\x1b\r\u202e\x07")
        assert "All is well" in text


# --------------------------------------------------------------------------------------------------- check


def test_a_claim_that_holds():
    text = "1000 * PoissonSubsampled(Gaussian(1.1), 0.01)"
    output = run("check", text, "--epsilon", 3, "--delta", 1e-5)
    assert "The claim (3, 1e-05) holds, by" in output
    assert "Neighbours: add_remove." in output
    assert "For replace, the same mechanism has ε = " in output
    assert run("check", "Gaussian(5)", "--epsilon", 1, "--delta", 1e-5, "--adjacency", "replace").count("replace") == 1


def test_a_claim_that_does_not():
    output = run("check", "100 * Gaussian(10.0)", "--epsilon", 4.3, "--delta", 1e-5, status=1)
    assert "is false: Gaussian DP is exact here" in output
    assert "4.37" in output
    output = run("check", "100 * ZCDP(0.01)", "--epsilon", 6.65, "--delta", 1e-5, status=1)
    assert "is not proved by any accountant here" in output
    assert "the description states none" in output
    sampled = "PoissonSubsampled(Gaussian(2), 0.1)"
    run("check", sampled, "--epsilon", 3, "--delta", 1e-5, "--adjacency", "replace", status=2)


SAID = "DP-SGD, noise 1.2, batch 100 of 2,000, 4 epochs"


@pytest.mark.slow
def test_a_claim_in_words_is_answered_for_every_way_to_make_batches():
    output = run("check", f"{SAID}, shuffled", "--epsilon", 3, "--delta", 1e-5, status=1)
    rows = {(way, kind): verdict for way, kind, verdict in re.findall(ROW, output, re.M)}
    assert rows == {
        ("Poisson samples", "add_remove"): "holds",
        ("Poisson samples", "replace"): "is false",
        ("balls in bins", "add_remove"): "holds",
        ("balls in bins", "replace"): "is not proved",
        ("shuffled batches", "zero_out"): "is not proved",
        ("shuffled batches", "replace"): "is false",  # which is what Poisson sampling is quoted for
    }
    assert "80 steps" in output
    assert "under zero_out the claim is not proved; under replace the claim is false" in output.replace("\n", " ")
    # of what is said of nobody in particular a row is false, and the way out is named
    output = run("check", f"{SAID}, Poisson", "--epsilon", 3, "--delta", 1e-5, status=1)
    assert "A claim for add_remove alone, which holds, is asked for by --adjacency add_remove." in output
    run("check", f"{SAID}, Poisson", "--epsilon", 3, "--delta", 1e-5, "--adjacency", "add_remove")
    run("check", f"{SAID}, Poisson", "--epsilon", 3, "--delta", 1e-5, "--adjacency", "replace", status=1)


@pytest.mark.thorough
def test_a_claim_in_words_holds_for_the_way_and_the_neighbours_that_it_names():
    output = run("check", f"{SAID}, balls in bins", "--epsilon", 3, "--delta", 1e-5, "--adjacency", "add_remove")
    assert [verdict for _, _, verdict in re.findall(ROW, output, re.M)] == ["holds", "holds"]
    assert "You said balls in bins: under add_remove the claim holds." in output
    output = run("check", f"{SAID}, shuffled", "--epsilon", 3, "--delta", 1e-5, "--adjacency", "add_remove", status=1)
    assert "For add_remove nothing is known of shuffled batches." in output
    shuffled = read_claim(SAID).ways()[-1]
    assert (shuffled.sampling, shuffled.adjacency) == ("shuffle", "replace")
    # less than what shuffled batches cost at least is what Poisson samples cost
    assert bound(shuffled.least, 1e-5).lower > 1.5 * epsilon(80 * PoissonSubsampled(Gaussian(1.2), 0.05), 1e-5)


ROW = r"^ (Poisson samples|balls in bins|shuffled batches) +(\w+) +\S+ +\S+ +(holds|is false|is not proved) *$"


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("DP-SGD, noise 1.1, batch 256 of 60,000, 60 epochs, shuffled", Claim(1.1, 256, 60_000, 14_100, "shuffle")),
        ("noise multiplier of 0.8; batches of 64 from 1000 images, 100 steps", Claim(0.8, 64, 1000, 100)),
        (
            "dp-sgd with noise=2, clip norm 1.0 and batch size 50 out of 500 rows for 3 epochs, balls and bins",
            Claim(2.0, 50, 500, 30, "balls_in_bins"),
        ),
        ("noise multiplier 1.1, batch size 64, n = 1,000, 2 epochs", Claim(1.1, 64, 1000, 32)),
        ("noise 1.1, 1000 training examples, batch=64, 100 steps", Claim(1.1, 64, 1000, 100)),
        ("DPSGD sigma=1.1 lot size 64, N=1000, epochs=2", Claim(1.1, 64, 1000, 32)),
        ("σ = 1.1, minibatches of 64 from 1000 rows, steps: 100", Claim(1.1, 64, 1000, 100)),
        ("noise 1e0, batch 5 of 10, 1 epoch, Poisson-sampled", Claim(1.0, 5, 10, 2, "poisson")),
        ("1000 * PoissonSubsampled(Gaussian(1.1), 0.01)", None),
        ("Gaussian(noise_multiplier=1.1)", None),
    ],
)
def test_claims_in_words_mean_what_they_say(text, claim):
    assert read_claim(text) == claim


@tabled(
    ("text", "message"),
    [
        ("noise 1.1", "does not say its batch, and of how many rows: write it as 'DP-SGD, noise 1.1, batch 256 of"),
        ("DP-SGD with 60 epochs", "does not say its noise"),
        ("noise 1.1, batch 10 of 100, 10k steps", "'10k' is not understood"),
        ("noise 1.1, batch 10, 3 epochs", "does not say its batch, and of how many rows"),
        ("noise 1.1, batch 10 of 100", "a number of epochs, or of steps"),
        ("noise 1.1, batch 10 of 100, 3 epochs, 4 steps", "a number of epochs, or of steps"),
        ("ε=3, δ=1e-5 for noise 1.1, batch 10 of 100, 3 epochs", "go into --epsilon and --delta"),
        ("noise 1.1, batch 10 of 100, 3 epochs, 50 rows", "says its batch, and of how many rows, twice"),
        ("noise 1.1, batch 10 of 100, 3 epochs, sorted", "'sorted' is not understood"),
        ("noise 1.1, batch 10 of 100, 3 epochs, shuffled, Poisson", "in one way"),
        ("noise 0, batch 10 of 100, 3 epochs", "noise must be positive"),
        ("noise 1, batch 101 of 100, 3 epochs", "batch must be from 1"),
        ("noise 1, batch 10 of 100, 2.5 epochs", "must be a whole number"),
        ("noise 1, batch 10 of 100, 0 epochs", "at least one step"),
    ],
)
def test_other_words_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read_claim(text)


def test_help_names_every_description():
    assert sorted(NAMES) == sorted(names())


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from dpkit.cli import app; import typer.main; typer.main.get_command(app)\n"
        "print([m for m in ('numpy', 'scipy', 'accounting') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
