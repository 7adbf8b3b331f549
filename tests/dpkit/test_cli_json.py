"""``--json`` of every command: one object, the same names every time, and all of them in --help."""

import json
import re
from functools import partial

import pytest
import typer
from commands import run
from typer.testing import CliRunner

from accounting import Budget, Gaussian, Ledger, calibrate
from dpbandits import Policy
from dpbandits.cli import app as bandits
from dpkit.cli import app

dpbandits = partial(CliRunner().invoke, bandits)


def _commands(group, path=()):
    found = typer.main.get_command(group) if isinstance(group, typer.Typer) else group
    for name, command in found.commands.items():
        yield from _commands(command, (*path, name)) if hasattr(command, "commands") else [((*path, name), command)]


ALL = [("dpkit", *one) for one in _commands(app)] + [("dpbandits", *one) for one in _commands(bandits)]


@pytest.mark.parametrize("command", [one[2] for one in ALL], ids=[" ".join((one[0], *one[1])) for one in ALL])
def test_every_command_has_it_and_says_what_it_holds(command):
    option = next(parameter for parameter in command.params if "--json" in parameter.opts)
    said = f"{option.help} {command.epilog or ''}"
    assert re.search(r"JSON", said)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    place = tmp_path_factory.mktemp("json") / "team.ledger"
    run("ledger", "create", place, "--epsilon", 3, "--delta", 1e-6)
    run("ledger", "quota", place, "north", "--epsilon", 1, "--delta", 1e-7)
    run("ledger", "spend", place, "Gaussian(6.0)", "--scope", "north")
    return place


@pytest.mark.parametrize(
    ("asked", "status", "names"),
    [
        (["epsilon", "Gaussian(2.0)", "--delta", 1e-6], 0, "description epsilon delta accountant accountants"),
        (
            ["calibrate", "Gaussian(z)", "--epsilon", 1, "--delta", 1e-6], 0,
            "noise_multiplier description epsilon delta accountant accountants",
        ),
        (
            ["check", "Gaussian(1.0)", "--epsilon", 1, "--delta", 1e-6], 1,
            "verdict claim description epsilon delta accountant accountants at_least neighbours",
        ),
        pytest.param(
            ["check", "DP-SGD, noise 4, batch 256 of 60,000, 1 epochs, Poisson", "--epsilon", 3, "--delta", 1e-5], 0,
            "verdict claim ways", marks=pytest.mark.slow,
        ),
        (["ledger", "open", "LEDGER"], 0, "budget accountant spent left quotas head"),
        (["ledger", "verify", "LEDGER"], 0, "verified head"),
        (["ledger", "quota", "LEDGER"], 0, "quotas"),
        (["ledger", "spend", "LEDGER", "Gaussian(0.1)"], 1, "recorded left refusal"),
        (["explain", "--epsilon", 1, "--delta", 1e-6], 0, None),
    ],
    ids=lambda value: " ".join(map(str, value[:2])) if isinstance(value, list) else "",
)  # fmt: skip
def test_what_it_prints(asked, status, names, ledger):
    found = json.loads(run(*(ledger if one == "LEDGER" else one for one in asked), "--json", status=status))
    assert names is None or list(found) == names.split()


def test_a_certificate_is_written_and_checked(tmp_path):
    pytest.importorskip("flint", reason="certificates are checked with python-flint")
    path = tmp_path / "c.json"
    run("epsilon", "10 * Gaussian(5.0)", "--delta", 1e-6, "--certificate", path)
    names = "accepted reason epsilon at_least delta at_upper at_lower"
    found = json.loads(run("verify", path, "--json"))
    assert list(found) == names.split()
    assert found["accepted"]
    stored = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**stored, "lower": None, "upper": 0.99 * stored["upper"]}), encoding="utf-8")
    assert "Refused" in run("verify", path, status=1)
    path.write_text("{}", encoding="utf-8")
    run("verify", path, status=2)
    assert "numerical" in run("epsilon", "9 * NoisyMax(0.1)", "--delta", 1e-6, "--certificate", path, status=2)


def test_a_ledger_has_one_word_for_each_sum(ledger):
    """What was spent there, by the best accountant, and what its filter has booked: never one word for both."""
    quota = json.loads(run("ledger", "quota", ledger, "--json"))["quotas"]["north"]
    report = json.loads(run("audit", ledger, "--json", "-"))
    (north,) = report["scopes"]
    assert north["booked"] == pytest.approx(quota["booked"])
    assert north["spent"] == pytest.approx(0.767749, rel=1e-5)  # Gaussian(6) at δ = 1e-7
    assert north["spent"] < quota["booked"] <= 1.0
    assert quota["left"] == pytest.approx(1.0 - quota["booked"])
    for told in (run("audit", ledger), run("ledger", "quota", ledger), run("ledger", "list", ledger)):
        assert not re.search(r"\bused\b", told)
    assert f"{quota['booked']:.6g}" in run("audit", ledger)


@pytest.mark.slow
def test_commands_that_play_say_so_as_an_object(tmp_path):
    asked = ["run", "-t", "50", "--seeds", "1", "--jobs", "1", "-p", "uniform", "--json", "--out", str(tmp_path)]
    found = json.loads(dpbandits(asked).stdout)
    assert list(found) == ["caption", "metric", "complete", "simulation", "policies", "plot", "data"]
    assert found["policies"][0]["epsilon"] is None


def test_a_token_is_an_object_too():
    token = json.loads(dpbandits(["serve", "--token", "--json"]).stdout)
    assert list(token) == ["token", "digest"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: calibrate(Gaussian(1.0), Budget(1.0, 1e-6)), "make_release must be a function"),
        (lambda: calibrate(Budget(1.0, 1e-6), Gaussian), "the function comes first"),
        (lambda: calibrate(Gaussian, 1.0), "budget a Budget"),
    ],
)
def test_what_is_no_function_and_no_budget_is_named(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_a_policy_that_was_never_saved(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"path must be a file that Policy\.save or a checkpoint wrote, and nothing is at"
    ):
        Policy.load(tmp_path / "nofile")
    with pytest.raises(FileNotFoundError, match="a folder is at"):
        Policy.load(tmp_path)


def test_a_budget_that_protects_nobody_is_told_to_whoever_states_it():
    import warnings

    with pytest.warns(UserWarning, match="delta is so large .* got delta=0.1"):
        Budget(1.0, 0.1)
    with pytest.warns(UserWarning, match="epsilon is so large .* got epsilon=1e\\+06"):
        weak = Budget(1e6, 1e-6)
    with pytest.warns(UserWarning, match="are epsilon and delta swapped"):
        Budget(1e-6, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Budget(99.0, 0.009)
        Ledger(weak)  # once is enough
        calibrate(Gaussian, weak)


def test_a_command_warns_in_a_line_and_without_a_path():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = CliRunner().invoke(app, ["calibrate", "Gaussian(z)", "--epsilon", "1e6", "--delta", "1e-6", "--json"])
    assert result.stderr.startswith("dpkit: note: epsilon is so large")
    assert ".py" not in result.stderr
    assert json.loads(result.stdout)["epsilon"] <= 1e6
