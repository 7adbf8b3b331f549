"""The command ``dpkit``: its figures, its refusals, its exit statuses and its page."""

import importlib
import io
import json
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from commands import run
from tabled import tabled

from accounting import (
    Budget,
    DiscreteGaussian,
    Gaussian,
    Laplace,
    Ledger,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    attacker,
    audit,
    calibrate,
    compare,
    epsilon,
    parallel,
)
from accounting.ledger.filters.additive_filter import AdditiveFilter
from dpkit.__main__ import main
from dpkit.cli import app
from dpkit.cli.charts import nice_ticks
from dpkit.cli.expression import Expression
from dpkit.cli.page import page

SAMPLED = "10 * PoissonSubsampled(Gaussian(z), 0.1)"


@pytest.mark.parametrize("command", ["dpkit", "dpbandits"])
def test_what_an_encoding_lacks_is_printed_as_json_writes_it(command, monkeypatch):
    """An answer that was paid for ends in no error of the terminal, and no key loses a letter."""
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    monkeypatch.setattr(f"{command}.cli.app", lambda **_: print(json.dumps("Bür 𝄞 \udcff", ensure_ascii=False)))
    importlib.import_module(f"{command}.__main__").main()
    sys.stdout.flush()
    assert json.loads(sys.stdout.buffer.getvalue()) == "Bür 𝄞 \udcff"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "spends.ledger"
    with Ledger.create(path, Budget(1.0, 1e-6, unit="person")) as ledger:
        with ledger.reserve(Gaussian(7.0), label="a <b>bold</b> & costly label"):
            pass
        for index in range(12):
            ledger.spend(Gaussian(60.0 + index), label=f"weekly {index}", scope="north")
    return path


@pytest.fixture
def passed(tmp_path, monkeypatch):
    """A ledger that holds more than its budget allows, which no filter lets happen."""
    path = tmp_path / "passed.ledger"
    with monkeypatch.context() as patch, Ledger.create(path, Budget(1.0, 1e-6)) as ledger:
        patch.setattr(AdditiveFilter, "admits", lambda *_: True)
        for release in (DiscreteGaussian(4.0), NoisyMax(0.2)):
            ledger.spend(release)
    return path


# ------------------------------------------------------------------------------------------- descriptions


def test_descriptions_mean_what_they_mean_in_python():
    text = "2 * (Gaussian(2.0) + 3*PureDP(epsilon=1/10)) + parallel(Laplace(4.5 - .5), NoisyMax(0.1, noise='laplace'))"
    expected = 2 * (Gaussian(2.0) + 3 * PureDP(0.1)) + parallel(Laplace(4.0), NoisyMax(0.1, noise="laplace"))
    assert Expression(text)() == expected
    assert Expression("1e3 * Gaussian(2 * z)")(1.5) == 1000 * Gaussian(3.0)
    assert Expression("PoissonSubsampled(Gaussian(1.0), 0.01)")() == PoissonSubsampled(Gaussian(1.0), 0.01)


@tabled(
    ("text", "message"),
    [
        ("", "cannot read"),
        ("Gaussian(", "cannot read"),
        ("\0", "cannot read"),
        ("(" * 5000 + "1" + ")" * 5000, "cannot read"),
        ("+".join(["Gaussian(1)"] * 20_000), "nested too deeply"),
        ("__import__('os').system('true')", "unknown name '__import__'"),
        ("Gausian(1.0)", "did you mean 'Gaussian'"),
        ("Gaussian(1.0).noise_multiplier", "has no meaning"),
        ("Gaussian", "has no meaning"),
        ("Laplace(epsilon=0.05)", "has no parameter 'epsilon', only noise_multiplier"),
        ("parallel(x=1)", "parallel"),
        ("[Gaussian(1.0)]", "has no meaning"),
        ("(lambda: 1)()", "has no meaning"),
        ("9 ** 9 ** 9", "has no meaning"),
        ("'a' * 10", "has no meaning"),
        ("Gaussian(*[1])", "has no meaning"),
        ("Gaussian(**{'noise_multiplier': 1})", "has no meaning"),
        ("Gaussian(True)", "has no meaning"),
        ("Gaussian(1/0)", "divides by zero"),
        ("Gaussian(z)", "z is the unknown of a calibration"),
        ("Gaussian(-1)", "noise_multiplier must be positive"),
        ("Gaussian(1, 2)", "Gaussian"),
        ("Gaussian(1e999)", "noise_multiplier must be positive and finite"),
        ("Gaussian(1" + "0" * 400 + ")", "above 1e308"),
        ("1.5 * Gaussian(1.0)", "count must be a whole number, got count=1.5"),
        ("-Gaussian(1.0)", "is not a number"),
        ("Gaussian(1.0) + 1", "unsupported operand"),
        ("2 + 3", "is not a release"),
        ("parallel(Gaussian(1.0), 3)", "must hold releases only"),
    ],
)
def test_other_text_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Expression(text)()


# ------------------------------------------------------------------------------------ epsilon and calibrate


def figures(output):
    """Accountant → figure, from the table."""
    return {name.strip(): float(value) for name, value in re.findall(r"^ (\S.*?) {2,}([\d.e+-]+) *$", output, re.M)}


def test_epsilon_shows_every_accountant():
    output = run("epsilon", "--gaussian", 2.0, "--count", 1000, "--delta", 1e-6)
    assert "ε = 199.284569 at δ = 1e-06, by Gaussian DP" in output  # 199.284568805627848 by mpmath
    expected = compare(1000 * Gaussian(2.0), 1e-6)
    assert sorted(figures(output).values()) == pytest.approx(sorted(expected.values()), rel=1e-8)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--gaussian", 2, "--gaussian", 3, "--laplace", 10], "Gaussian(2) + Gaussian(3) + Laplace(10)"),
        (["--tree", 5, "--steps", 1023], "TreeAggregation(5.0, 1023)"),
        (["--subsampled", 1, "--rate", 0.01, "--count", 50], "50 * PoissonSubsampled(Gaussian(1), 0.01)"),
        (["Gaussian(2)", "--pure", 0.1, "--count", 3], "3 * (Gaussian(2) + PureDP(0.1))"),
    ],
)
def test_options_are_short_for_descriptions(arguments, text):
    expected = epsilon(Expression(text)(), 1e-6)
    assert f"ε = {expected:.9g} at" in run("epsilon", *arguments, "--delta", 1e-6)


def test_calibrate_finds_the_noise():
    output = run("calibrate", "100 * Gaussian(z)", "--epsilon", 1, "--delta", 1e-6)
    z = float(re.search(r"^z = (\S+)$", output, re.M).group(1))
    assert z == calibrate(lambda z: 100 * Gaussian(z), Budget(1.0, 1e-6))
    assert z == pytest.approx(42.2467888932683528, rel=1e-12)


@pytest.mark.thorough
def test_calibrate_counts_the_neighbours_of_the_description():
    output = run("calibrate", SAMPLED, "--epsilon", 1, "--delta", 1e-6)
    z = calibrate(lambda z: 10 * PoissonSubsampled(Gaussian(z), 0.1), Budget(1.0, 1e-6, adjacency="add_remove"))
    assert f"z = {z!r}\nNeighbours: add_remove.\n" in output


@tabled(
    ("arguments", "message"),
    [
        (["epsilon", "--delta", 1e-6], "nothing is released"),
        (["epsilon", "Gausian(1)", "--delta", 1e-6], "did you mean 'Gaussian'"),
        (["epsilon", "--gaussian", -1, "--delta", 1e-6], "got noise_multiplier=-1.0"),
        (["epsilon", "--gaussian", "nan", "--delta", 1e-6], "noise_multiplier must be a number"),
        (["epsilon", "--gaussian", 1, "--delta", 1], "--delta must lie in [0, 1), got --delta 1.0"),
        (["epsilon", "--gaussian", 1, "--count", -1, "--delta", 1e-6], "--count must be at least 0, got --count -1"),
        (["epsilon", "--tree", 1, "--delta", 1e-6], "--tree needs --steps"),
        (["epsilon", "--subsampled", 1, "--delta", 1e-6], "--subsampled needs --rate"),
        (["epsilon", "--subsampled", 1, "--rate", 2, "--delta", 1e-6], "rate must lie in"),
        (["calibrate", "Gaussian(1)", "--epsilon", 1, "--delta", 1e-6], "must contain z"),
        (["calibrate", "Gaussian(z)", "--epsilon", 0, "--delta", 1e-6], "--epsilon must be positive"),
        (
            ["calibrate", "Gaussian(z)", "--epsilon", 1, "--delta", 1e-6, "--adjacency", "x"],
            "--adjacency must be",
        ),
        (["calibrate", "Gaussian(z) + PureDP(2)", "--epsilon", 1, "--delta", 1e-6], "no noise multiplier"),
        (["calibrate", "Gaussian(z)", "--epsilon", 1, "--delta", 0], "allow a delta, 1e-6 say, or take noise"),
        (["audit", "at.all", "--html", "/nowhere/page.html"], "--html must be a file in a folder that exists"),
        (
            ["calibrate", SAMPLED, "--epsilon", 1, "--delta", 1e-6, "--adjacency", "replace"],
            "state one of them in both, adjacency='add_remove' of the budget, or adjacency='replace' of the",
        ),
        (["audit", "/nowhere/at.all"], "there is no ledger"),
    ],
)
def test_refusals_are_one_message_and_status_2(arguments, message):
    output = run(*arguments, status=2)
    assert message in output
    assert "Traceback" not in output


def test_explain_says_what_an_attack_can_reach(path, tmp_path):
    words = run("explain", "--epsilon", "1", "--prior", "0.1")
    assert "1 % false positives finds at most 2.72 %" in words
    assert "a suspicion of 10 % grows to at most 23.2 %" in words
    picture = tmp_path / "attack.png"
    assert str(picture) in run("explain", "100 * Gaussian(10.0)", "--plot", str(picture)).replace("\n", "")
    assert picture.read_bytes()[:4] == b"\x89PNG"
    figures = json.loads(run("explain", "--ledger", str(path), "--json"))
    with Ledger.open(path) as ledger:
        assert figures["advantage"] == attacker(ledger.total).advantage
    for wrong in ([], ["Gaussian(1.0)", "--epsilon", "1"], ["Gaussian(1.0)", "--prior", "0"], ["nothing(1)"]):
        assert "dpkit: " in run("explain", *wrong, status=2)


def test_help_names_what_there_is():
    assert all(command in run("--help") for command in ("epsilon", "calibrate", "audit"))
    for command in ("epsilon", "calibrate"):
        assert "PoissonSubsampled" in run(command, "--help")
    assert "Exit status" in run("audit", "--help")


# --------------------------------------------------------------------------------------------------- audit


class Page(HTMLParser):
    """Collects what a page would load, its text, and whether its tags match."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.loads, self.words = [], [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.loads += [value for name, value in attributes if name in ("src", "href", "data", "srcset", "action")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


def test_audit_of_a_good_ledger(path, tmp_path):
    with Ledger.open(path) as ledger:
        ledger.backup(witness := tmp_path / "witness")
    for command in (["audit"], ["ledger", "card"]):  # neither writes over what it reads
        for option, target in (("--html", path), ("--html", witness), *[("--json", witness)] * (command == ["audit"])):
            output = run(*command, path, "--witness", witness, option, target, status=2)
            assert f"{option} must be a file of its own" in output
    output = run("audit", path, "--html", tmp_path / "report.html")
    with Ledger.open(path) as ledger:
        figures = compare(ledger.total, 1e-6)
        assert ledger.head in output
    assert all(f"{value:.6g}" in output for value in figures.values())
    assert "The recorded releases are within the budget." in output
    assert "a <b>bold</b> & costly label" in output
    assert output.index("weekly 0") < output.index("weekly 8")
    assert "weekly 9" not in output  # ten with the largest costs
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.loads == []
    assert "script" not in page.tags
    assert not re.search(r"url\(|@import|https?://", text)
    assert page.tags.count("svg") == 3
    assert "b" not in page.tags  # the label is text
    for words in ("a <b>bold</b> & costly label", "within the budget", "Spends over time", "one person, replace"):
        assert words in page.words
    assert all(f"{value:.6g}" in page.words for value in figures.values())


@pytest.mark.thorough
def test_audit_of_a_passed_budget(passed, tmp_path):
    output = run("audit", passed, "--html", tmp_path / "report.html", status=1)
    assert "The recorded releases pass the budget." in output
    assert "pass the budget" in Page((tmp_path / "report.html").read_text(encoding="utf-8")).words


def test_a_total_that_a_filter_proves_has_a_page(tmp_path):
    """There is no curve of it: it is no accountant of descriptions."""
    ledger = Ledger(Budget(1.0, 1e-6))
    ledger.spend(Gaussian(8.0))
    report = audit.recompute(ledger)
    text = page(ledger, replace(report, epsilons={"mixed": 0.4, **report.epsilons}), name="l", made=datetime.now(UTC))
    assert "Gaussian, Rényi and pure DP" in text
    assert text.count("<svg") == page(ledger, report, name="l", made=datetime.now(UTC)).count("<svg") > 0


def test_audit_of_a_broken_chain(path, tmp_path):
    damaged = bytearray(path.read_bytes())
    at = damaged.index(b'"label":"weekly 3"')
    damaged[at + 16] = ord("4")
    path.write_bytes(damaged)
    output = run("audit", path, "--html", tmp_path / "report.html", status=1)
    assert re.search(r"does not verify.*entry 6 does not match its hash", output)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "entry 6 does not match its hash" in page.words
    assert "weekly" not in page.words


def test_audit_against_a_noted_head(path):
    with Ledger.open(path) as ledger:
        noted = ledger.head
        ledger.spend(Gaussian(100.0))
    run("audit", path, "--expected-head", noted)
    assert "does not contain the expected head" in run("audit", path, "--expected-head", "0" * 64, status=1)


def test_audit_of_an_export(path, tmp_path):
    export = tmp_path / "spends.json"
    with Ledger.open(path) as ledger:
        export.write_text(ledger.to_json(), encoding="utf-8")
    assert run("audit", export) == run("audit", path)
    export.write_text(export.read_text().replace("weekly 3", "weekly 4"))
    assert "does not verify" in run("audit", export, status=1)


def test_audit_without_a_budget(tmp_path):
    path = tmp_path / "free.ledger"
    with Ledger.create(path) as ledger:
        ledger.spend(Gaussian(1.0), simulation=True)
    assert "delta must be given" in run("audit", path, status=2)
    output = run("audit", path, "--delta", 1e-5, "--html", tmp_path / "report.html")
    assert "4.37718" in output
    assert "No budget was declared" in output
    assert "not a private release" in output
    assert "not a private release" in Page((tmp_path / "report.html").read_text(encoding="utf-8")).words


def test_audit_of_an_empty_ledger(tmp_path):
    path = tmp_path / "empty.ledger"
    Ledger.create(path, Budget(1.0, 1e-6)).close()
    assert "within the budget" in run("audit", path, "--html", tmp_path / "report.html")
    assert "Nothing was recorded" in Page((tmp_path / "report.html").read_text(encoding="utf-8")).words


def test_audit_makes_no_ledger(tmp_path):
    run("audit", tmp_path / "new.ledger", status=2)
    assert list(tmp_path.iterdir()) == []


def test_without_typer_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "dpkit.cli")
    with pytest.raises(SystemExit, match=r'the command needs typer: python -m pip install "dpkit\[commands\]"'):
        main()


@tabled("top", [1e-9, 0.3, 1.0, 4.3, 5.0, 99.0, 1234.5])
def test_ticks_reach_the_top_in_few_round_steps(top):
    ticks = nice_ticks(top)
    assert ticks[0] == 0
    assert ticks[-2] < top <= ticks[-1] * (1 + 1e-9)
    assert 3 <= len(ticks) <= 6


def test_help_breaks_no_line_within_a_sentence():
    """Only the first paragraph of a command's text is filled; the others keep their lines."""
    texts = {command.callback.__name__: command.callback.__doc__ for command in app.registered_commands}
    (group,) = app.registered_groups
    texts |= {
        command.callback.__name__: command.callback.__doc__ for command in group.typer_instance.registered_commands
    }
    assert len(texts) > 10
    for name, text in texts.items():
        for paragraph in text.strip().split("\n\n")[1:]:
            assert "\n" not in paragraph.strip(), (name, paragraph)


@pytest.mark.parametrize("command", ["dpkit", "dpbandits"])
def test_an_interrupt_while_the_command_is_loaded_is_one_line(command, monkeypatch, capsys):
    main = importlib.import_module(f"{command}.__main__").main

    class Interrupts:
        def find_spec(self, name, *_):
            if name == f"{command}.cli":
                raise KeyboardInterrupt

    for name in [name for name in sys.modules if name.startswith(f"{command}.cli")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Interrupts(), *sys.meta_path])
    monkeypatch.delattr(f"{command}.cli", raising=False)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err in ("dpkit: interrupted\n", "interrupted\n")


def test_an_interrupt_is_one_line(monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("accounting.compare", interrupt)
    assert run("epsilon", "Gaussian(1)", "--delta", 1e-6, status=130).strip() == "dpkit: interrupted"
