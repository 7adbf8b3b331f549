"""What privacy costs on one's own data: the prices, their errors, the model of a log of choices, and the command."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from pictures import coarse_pictures
from tabled import tabled

pd = pytest.importorskip("pandas")

from dpbandits import PriceTable, price_of_privacy, simulate  # noqa: E402
from dpbandits.lab.environments import GLM, ChosenLog, Delayed, Disjoint, LogReplay, People  # noqa: E402
from dpbandits.lab.evaluate import Log  # noqa: E402
from dpbandits.lab.price import _ratio  # noqa: E402
from dpbandits.lab.price_table import PriceRow  # noqa: E402
from dpbandits.policies import GLBOMD, LinearThompson  # noqa: E402


def log(rows: int = 3000, items: int = 20, seed: int = 0, **more) -> tuple[Log, np.ndarray]:
    """Choices at random among items of three features, and the true mean of every row."""
    rng = np.random.default_rng(seed)
    F = rng.uniform(-1, 1, (items, 3)) / math.sqrt(3)
    law = rng.dirichlet(np.ones(items))
    law = 0.5 * law + 0.5 / items
    chosen = rng.choice(items, size=rows, p=law)
    means = 1 / (1 + np.exp(-4 * F[chosen] @ [1.0, -1.0, 0.5]))
    persons = rng.integers(rows // 5, size=rows)
    known = {"features": F[chosen], "persons": persons, **more}
    return Log.of((rng.random(rows) < means).astype(float), law[chosen], chosen, **known), means


def people(rounds: int = 600) -> People:
    return People(GLM(3, link="probit", theta_norm=2.0), persons=100, rounds=rounds)


# ------------------------------------------------------------------------------------------------- prices


@pytest.fixture(scope="module")
def table() -> PriceTable:
    return price_of_privacy(people(), [0.3, 16.0], seeds=3, progress=False)


@pytest.mark.thorough
def test_more_privacy_costs_more(table):
    assert [(row.unit, row.epsilon) for row in table.rows] == [
        ("round", 0.3), ("round", 16.0), ("person", 0.3), ("person", 16.0)
    ]  # fmt: skip
    prices = [row.price for row in table.rows]
    assert prices[0] > prices[1]
    assert prices[2] > prices[3]
    assert table.uniform < table.rows[0].reward < table.free
    assert all(0 < row.price_se < 1 for row in table.rows)
    assert not table.modelled


@pytest.mark.thorough
def test_prices_are_those_of_the_simulation():
    """Price and rewards, from the definition, with the policies played by hand."""
    from accounting import Budget
    from dpbandits.lab.simulation.simulate import simulate
    from dpbandits.policies import GLBOMD, OnePassPrivateGLM, Uniform

    world, T = GLM(2), 300
    table = price_of_privacy(world, [2.0], rounds=T, seeds=3, progress=False)
    model = {"theta_bound": world.theta_bound, "base_rate": world.base_rate}
    private = {**model, "budget": Budget(2.0, 1e-5), "horizon": T, "reward_range": (0, 1), "on_violation": "clip"}
    made = {
        "not private": lambda rng: GLBOMD(2, **model, rng=rng),
        "uniform": lambda rng: Uniform(2, rng=rng),
        "round, ε = 2.0, δ = 1e-05": lambda rng: OnePassPrivateGLM(2, **private, rng=rng),
    }
    rows = simulate(made, world, rounds=T, seeds=3, progress=False).table()
    free, uniform, own = (row["regret"] for row in rows)
    assert table.rows[0].price == pytest.approx((own - free) / (uniform - free))
    assert (table.free, table.uniform, table.rows[0].reward) == tuple(row["reward"] for row in rows)


def test_standing_arms_and_a_base_rate():
    """A policy for fixed arms is given contexts, and everybody the public base rate."""
    world = People(Disjoint(dim=2, arms=3), persons=50, rounds=200)
    asked = {"units": ["person"], "policies": {"person": "DisjointPrivateGLM"}, "seeds": 1, "progress": False}
    told, untold = (price_of_privacy(world, [8.0], base_rate=rate, **asked) for rate in (0.05, None))
    assert told.rows[0].policy == untold.rows[0].policy == "DisjointPrivateGLM"
    assert told.rows[0].reward != untold.rows[0].reward
    with pytest.raises(ValueError, match=r"no contexts to fixed arms.*got DisjointPrivateGLM"):
        price_of_privacy(people(), [8.0], **asked)
    with pytest.raises(ValueError, match="base_rate"):
        price_of_privacy(world, [8.0], base_rate=1.0, **asked)


def test_the_error_of_a_ratio_covers():
    """1,000 ratios of means of 20 paired numbers: 95 % intervals miss the truth in at most 13 %, and at least 1 %."""
    rng = np.random.default_rng(0)
    missed = 0
    for _ in range(1000):
        gain = rng.normal(2.0, 0.4, 20)
        share, error = _ratio(0.3 * gain + rng.normal(0, 0.1, 20), gain)
        missed += abs(share - 0.3) > 2.093 * error
    assert 10 < missed < 130


def test_nothing_is_lost_where_nothing_is_gained():
    row = PriceRow("round", 1.0, 1e-5, "OnePassPrivateGLM", 0.5, 0.01, math.nan, math.nan, math.nan, math.nan, False)
    table = PriceTable("nothing", 100, 5, False, 0.5, 0.01, 0.5, 0.01, (row,))
    assert "nothing is learned here even without privacy" in table.sentence()
    assert "?" in str(table)
    assert json.loads(table.to_json())["rows"][0]["price"] is None


def test_a_hopeless_budget_is_marked():
    table = price_of_privacy(GLM(30), [0.05, 50.0], rounds=200, seeds=1, progress=False)
    assert [row.hopeless for row in table.rows] == [True, False]
    assert "noise exceeds signal" in str(table)
    assert math.isnan(table.rows[0].price_se)


def test_the_sentence_names_the_least_budget_that_keeps_nine_tenths():
    def row(unit, epsilon, price):
        return PriceRow(unit, epsilon, 1e-5, "", 0.5, 0.0, 1.0, 0.0, price, 0.01, False)

    rows = (row("round", 1.0, 0.2), row("round", 2.0, 0.08), row("round", 4.0, 0.02), row("person", 4.0, 0.4))
    said = PriceTable("w", 100, 5, True, 0.6, 0.001, 0.2, 0.001, rows).sentence()
    assert "protecting every round at ε = 2 keeps 92 %" in said
    assert "protecting every person at ε = 4 keeps 60 % of that gain (± 1 %, the most that any ε tried keeps)" in said
    assert "a model that was fitted to the log" in said
    # with few seeds a larger budget may keep less, or nothing is kept at all
    rows = (row("round", 1.0, 0.3), row("round", 4.0, 1.6), row("person", 1.0, 1.2), row("person", 4.0, 1.6))
    said = PriceTable("w", 100, 1, True, 0.6, 0.001, 0.2, 0.001, rows).sentence()
    assert "protecting every round at ε = 1 keeps 70 % of that gain (± 1 %, the most" in said
    assert "protecting every person keeps nothing of that gain at any ε tried" in said


def test_a_private_policy_that_gains_more_than_the_reference_puts_prices_in_doubt():
    def said(price, error):
        row = PriceRow("round", 1.0, 1e-5, "", 0.5, 0.0, 1.0, 0.0, price, error, False)
        return PriceTable("w", 100, 5, False, 0.6, 0.001, 0.2, 0.001, (row,), reference="GLBOMD").sentence()

    assert "gains 41 % more than GLBOMD, which has not learned all that there is" in said(-0.41, 0.2)
    assert "has not learned" not in said(-0.41, 0.21)
    assert "keeps all of that gain (± 21 %, the least" in said(-0.41, 0.21)


@pytest.mark.parametrize(("law", "better"), [("ball", "GLBOMD"), ("fixed", "LinearThompson")])
def test_of_policies_without_privacy_the_better_one_counts(law, better):
    world = GLM(4, arms=10, arm_law=law)
    table = price_of_privacy(world, [1.0], rounds=500, seeds=2, progress=False)
    told = {"base_rate": 0.5, "reward_range": (0.0, 1.0)}
    references = {
        "not private": lambda rng: GLBOMD(4, "logistic", theta_bound=world.theta_bound, base_rate=0.5, rng=rng),
        "not private, exploring": lambda rng: LinearThompson(4, **told, rng=rng),
    }
    played = simulate(references, world, rounds=500, seeds=2, progress=False).table()
    best = min(played, key=lambda row: row["regret"])
    assert (table.free, table.reference) == (best["reward"], better)
    assert f"{better} (not private)" in str(table)


def test_files_and_plots(table, tmp_path):
    saved = json.loads(table.save(tmp_path / "p.json").read_text(encoding="utf-8"))
    assert saved["rows"][1]["price"] == table.rows[1].price
    assert saved["sentence"] == table.sentence()
    pytest.importorskip("matplotlib")
    assert table.plot(tmp_path / "p.png").stat().st_size > 10_000
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    assert table.plot(ax) is ax
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["round", "person"]


# ------------------------------------------------------------------------------------------- logs of choices


def test_the_model_is_near_the_truth():
    choices, means = log(10_000)
    found = ChosenLog(choices).means
    assert np.corrcoef(found, means)[0, 1] > 0.97
    assert np.sqrt(np.mean((found - means) ** 2)) < 0.06


def test_no_row_is_in_its_own_model():
    """Another reward of a row (or of its person) moves the model of others, but not its own."""
    choices, _ = log(1000)
    before = ChosenLog(choices).means
    rewards = choices.rewards.copy()
    mine = choices.persons == choices.persons[7]
    rewards[mine] = 1 - rewards[mine]
    after = ChosenLog(Log.of(rewards, choices.probabilities, choices.chosen, features=choices.features,
                             persons=choices.persons)).means  # fmt: skip
    np.testing.assert_allclose(after[mine], before[mine], atol=1e-12)
    assert np.abs(after - before).max() > 1e-6


def test_every_row_is_a_round_with_its_person():
    choices, _ = log(1000)
    rounds = list(ChosenLog(choices, offered=4).episode(np.random.default_rng(0)))
    assert len(rounds) == 1000
    assert sorted(now.person for now in rounds) == sorted(choices.persons)
    assert all(now.arms.shape == (4, 4) and np.linalg.norm(now.arms, axis=1).max() <= 1 for now in rounds)
    assert {float(r) for now in rounds for r in now.rewards} == {0.0, 1.0}


def test_items_are_offered_as_often_as_they_were_there():
    """Three items, of which one is always there and the others in one half of the rounds each: 6 standard errors."""
    rng = np.random.default_rng(0)
    late = rng.integers(2, size=4000)
    often = rng.random(4000) < 0.9
    chosen = np.where(often, 0, 1 + late)
    world = ChosenLog(Log.of((rng.random(4000) < 0.2 + 0.2 * chosen) * 1.0, np.where(often, 0.9, 0.1), chosen))
    assert world.offered == 2
    there = np.array([now.arms.sum(axis=0) > 0 for now in world.episode(np.random.default_rng(0))])
    # two of three without replacement, with weights 2 : 1 : 1
    expected = np.array([1 / 2 + 2 * (1 / 4) * (2 / 3), 1 / 4 + (1 / 2) * (1 / 2) + (1 / 4) * (1 / 3)])
    assert np.abs(there.mean(axis=0) - expected[[0, 1, 1]]).max() < 0.03


def test_rewards_that_are_not_clicks():
    rng = np.random.default_rng(0)
    chosen = rng.integers(2, size=1000)
    world = ChosenLog(Log.of(2.0 + chosen + rng.uniform(-1, 1, 1000), np.full(1000, 0.5), chosen), reward_range=(0, 5))
    told = np.array([now.rewards for now in world.episode(rng)])
    assert 0 <= told.min() <= told.max() <= 1
    assert len(np.unique(told)) > 500
    assert told.mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.thorough
def test_a_log_of_choices_says_that_it_was_a_model():
    table = price_of_privacy(log(1000)[0], [2.0], rounds=300, seeds=1, progress=False)
    assert table.modelled
    assert [row.unit for row in table.rows] == ["round", "person"]
    assert "a plan and no promise" in str(table)
    late = Delayed(ChosenLog(log(1000)[0]))
    assert price_of_privacy(late, [2.0], units=["round"], rounds=300, seeds=1, progress=False).modelled


def test_a_full_log_is_played_as_it_is(tmp_path):
    rng = np.random.default_rng(0)
    price = rng.uniform(0, 1, 400)
    frame = pd.DataFrame({"round": np.arange(200).repeat(2), "reward": (rng.random(400) < price) * 1, "price": price})
    table = price_of_privacy(LogReplay(frame), [4.0], seeds=2, progress=False)
    assert not table.modelled
    assert math.isnan(table.rows[0].regret)
    assert table.rounds == 200


# --------------------------------------------------------------------------------------------------- command


@pytest.fixture
def call(tmp_path, monkeypatch):
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from dpbandits.cli import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    coarse_pictures(monkeypatch)
    return lambda *arguments: CliRunner().invoke(app, ["price", *map(str, arguments)])


@pytest.fixture
def file(tmp_path):
    choices, _ = log(1000)
    frame = pd.DataFrame(choices.features, columns=["a", "b", "c"])
    frame["click"], frame["p"], frame["item"] = choices.rewards, choices.probabilities, choices.chosen
    frame["user"] = choices.persons
    frame.to_csv(tmp_path / "clicks.csv", index=False)
    return tmp_path / "clicks.csv"


COLUMNS = ("--reward", "click", "--probability", "p", "--arm", "item", "--person", "user",
           "--feature", "a", "--feature", "b", "--feature", "c")  # fmt: skip
QUICK = ("--seeds", 1, "--jobs", 1)
FEW = ("--rounds", 400)


@pytest.mark.thorough
def test_from_file_to_table_and_picture(call, file, tmp_path):
    lists = ("--epsilons", 1, 4, "--units", "round", "person")
    result = call(file, *COLUMNS, "--delay", 20, *lists, *QUICK, *FEW)
    assert result.exit_code == 0, result.output
    assert max(map(len, result.output.split("Plot:")[0].splitlines())) <= 80
    assert "a plan and no promise" in " ".join(result.output.split())
    saved = json.loads((tmp_path / "price.json").read_text(encoding="utf-8"))
    assert [(row["unit"], row["epsilon"]) for row in saved["rows"]] == [
        ("round", 1.0), ("round", 4.0), ("person", 1.0), ("person", 4.0)
    ]  # fmt: skip
    assert (tmp_path / "price.png").is_file()


@pytest.mark.thorough
def test_delays_of_a_column(call, file, tmp_path):
    frame = pd.read_csv(file)
    frame["late"] = [3.0, np.nan] * (len(frame) // 2)
    frame.to_csv(file, index=False)
    result = call(file, *COLUMNS, "--delay", "late", "--epsilons", 4, *QUICK, *FEW, "--units", "round")
    assert result.exit_code == 0, result.output
    assert "1,000 observed delays around 3" in " ".join(result.output.split())
    frame["late"] = [1.5, 0.0] * (len(frame) // 2)
    frame.to_csv(file, index=False)
    result = call(file, *COLUMNS, "--delay", "late", "--epsilons", 4)
    assert result.exit_code == 2
    assert "row 2, column 'late' (named by --delay): '1.5' must be a whole number of rounds" in result.output
    assert "there must be a column 'when'" in call(file, *COLUMNS, "--delay", "when", "--epsilons", 4).output
    told = call(file, "--reward", "click", "--delay", "late", "--epsilons", 4).output
    assert "must be a whole number" in told
    frame["late"] = 0
    frame.to_csv(file, index=False)
    assert "--feature must name the features where" in call(file, "--delay", "late", "--epsilons", 4).output


def test_json_and_a_world(call):
    result = call("--epsilons", 2, "people", "--rounds", 200, *QUICK, "--json")
    assert result.exit_code == 0, result.output
    assert [row["epsilon"] for row in json.loads(result.output)["rows"]] == [2.0, 2.0]


@tabled(
    ("arguments", "message"),
    [
        (("nowhere.csv",), "SOURCE must be a .csv or .parquet file or one of logit-shift"),
        (("sphere", "--epsilons", "x"), "--epsilons"),
        (("sphere", "--epsilons"), "--epsilons"),
        (("sphere", "--units", "cat", "--epsilons", 1, *QUICK), "units must be one or both"),
        (("sphere", "--epsilons", 1, "--units", "person", *QUICK), "units must be ('round',)"),
        (("sphere", "--epsilons", -1, *QUICK), "--epsilons must be"),
        (("sphere", "--epsilons", 1, 1, *QUICK), "budgets must be different"),
        (("sphere", "--rounds", 0), "rounds must be"),
        (("sphere", "--delay", "nan"), "--delay must be a number, got --delay nan"),
        (("sphere", "--delay", "inf"), "--delay must be nonnegative and finite, got --delay inf"),
        (("sphere", "--delay=-5"), "--delay must be nonnegative and finite, got --delay -5.0"),
        (("sphere", "--delay", "late"), "--delay must be a number, or a column of a log, got 'late' for no log"),
    ],
)
def test_wrong_commands_end_with_one_line(call, arguments, message):
    result = call(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert len(result.output.strip().splitlines()) == 1


@pytest.mark.thorough
def test_the_sentence_asks_for_a_base_rate_where_rewards_are_rare():
    found, _ = log(4000)
    rare = Log.of(
        found.rewards * (np.arange(4000) % 2 == 0), found.probabilities, found.chosen, features=found.features
    )
    keywords = {"rounds": 200, "seeds": 2, "progress": False}
    said = price_of_privacy(rare, [1.0], **keywords).sentence()
    assert "policies believed 0.5" in said
    assert "base_rate= or --base-rate" in said
    assert "base-rate" not in price_of_privacy(rare, [1.0], base_rate=0.05, **keywords).sentence()
    assert "base-rate" not in price_of_privacy(GLM(2), [1.0], **keywords).sentence()


def test_an_interrupted_price_goes_on_with_what_was_kept(call, tmp_path, monkeypatch):
    asked = ("sphere", "--rounds", 200, "--epsilons", 4, *QUICK, "--resume", "runs.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr("dpbandits.policies.OnePassPrivateGLM.select", interrupt)
        stopped = call(*asked)
    assert stopped.exit_code == 130
    assert "interrupted: what is done is kept in runs.jsonl" in " ".join(stopped.output.split())
    with monkeypatch.context() as patch:
        patch.setattr("dpbandits.policies.Uniform.select", interrupt)  # is not played again
        assert call(*asked).exit_code == 0


@pytest.mark.parametrize(
    ("resume", "said"), [("runs.jsonl", "kept in runs.jsonl, from which"), (None, "lost: resume=FILE.jsonl keeps them")]
)
def test_an_interrupted_price_says_what_is_kept(resume, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dpbandits.policies.OnePassPrivateGLM.select", interrupt)
    with pytest.raises(KeyboardInterrupt, match=f"^3 of 4 runs are done, and {said}"):
        price_of_privacy(GLM(2), [1.0], rounds=50, seeds=1, resume=resume, progress=False)


def interrupt(*_, **__):
    raise KeyboardInterrupt
