"""The command line: what it prints and writes, one-line errors with exit code 2, and Ctrl-C."""

import math
import subprocess
import sys

import numpy as np
import pytest
from tabled import tabled

pytest.importorskip("typer")
pd = pytest.importorskip("pandas")

from pictures import coarse_pictures  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from dpbandits.cli import app  # noqa: E402
from dpbandits.cli.policies import POLICIES, factories  # noqa: E402
from dpbandits.lab.environments import GALLERY, GLM, Available, world  # noqa: E402
from dpbandits.lab.simulation.results import Results  # noqa: E402
from dpbandits.lab.simulation.simulate import simulate  # noqa: E402


@pytest.fixture
def call(tmp_path, monkeypatch):
    # in a folder of its own, 80 columns wide
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def invoke(*arguments, drawn=False):
        with monkeypatch.context() as patch:
            coarse_pictures(patch)
            if not drawn:  # a picture takes longer than what it shows, and is tested with the results
                patch.setattr(Results, "plot", lambda self, path: path)
            return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return invoke


@pytest.fixture
def played(call):
    """What a command wrote that ended well."""

    def invoke(command, *arguments, **options):
        result = call(command, *arguments, **options)
        assert result.exit_code == 0, result.output
        return Results.load(f"{command}.json")

    return invoke


# the others are shown contexts, or protect persons only
SAME = ["standing-private"]  # whose arms are the same in every round
CHANGING = [
    name
    for name, entry in POLICIES.items()
    if not (entry.contexts or entry.names_only or name in SAME) and "round" in entry.units
]
STANDING = [name for name, entry in POLICIES.items() if entry.contexts]
NAMED = [name for name, entry in POLICIES.items() if entry.names_only]
QUICK = ("--rounds", 200, "--seeds", 2, "--jobs", 1, "--dim", 2, "--arms", 3)


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_lists_the_commands(call, arguments):
    result = call(*arguments)
    assert result.exit_code == 0
    for command in ("quickstart", "run", "replay", "reproduce"):
        assert command in result.output


@pytest.mark.parametrize("command", ["quickstart", "run", "replay"])
def test_help_is_enough_and_fits_80_columns(call, command):
    result = call(command, "--help")
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80
    text = " ".join(result.output.replace("│", " ").split())
    assert "--out" in text
    if command == "replay":
        for part in ("long", "labels", "without looking at the data", "by its row", "--feature-bound"):
            assert part in text
    if command != "quickstart":
        assert all(name in text for name in POLICIES)


def test_quickstart_prints_reward_cost_and_unit_and_writes_both_files(call, tmp_path):
    result = call("quickstart", "--seeds", 1, "--jobs", 1, "--out", "made", drawn=True)
    assert result.exit_code == 0, result.output
    assert max(map(len, result.output.splitlines()[:14])) <= 80
    text = " ".join(result.output.split())
    for part in (
        "film recommendations: 6,393 rounds, 1 seed",
        "one-pass private, ε = 1",
        "1, 1e-05 joint",
        "4, 1e-05 joint",
        "not private",
        "not one person",
        "private by person, ε = 1",
        "This was a simulation",
        str(tmp_path / "made" / "quickstart.png"),
    ):
        assert part in text
    results = Results.load(tmp_path / "made" / "quickstart.json")
    reward = {row["policy"]: row["reward"] for row in results.table()}
    assert results.complete
    # seed 0 is fixed; the margins to chance (0.497) are what the example is there to show
    assert 0.48 < reward["uniform"] < 0.52
    assert reward["GLB-OMD"] > 0.58
    assert reward["one-pass private, ε = 4"] > 0.57
    assert reward["private by person, ε = 4"] > 0.53
    assert {run.privacy.unit for run in results.runs if "person" in run.policy} == {"person"}
    assert (tmp_path / "made" / "quickstart.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.thorough
def test_run_compares_policies_and_budgets(call, tmp_path):
    result = call(
        "run", *QUICK, "-p", "uniform", "-p", "one-pass-private", "-e", 1, "-e", 2.5, "--delta", 1e-6, drawn=True
    )
    assert result.exit_code == 0, result.output
    results = Results.load(tmp_path / "run.json")
    assert results.policies == ["uniform", "one-pass private, ε = 1", "one-pass private, ε = 2.5"]
    assert [row["epsilon"] for row in results.table()] == [math.inf, pytest.approx(1.0), pytest.approx(2.5)]
    assert "regret" in result.output
    assert (tmp_path / "run.png").exists()


@pytest.mark.thorough
@tabled("link", ["logistic", "probit", "linear", "poisson", "with arms that come and go"])
def test_every_policy_plays_every_link(link, played):
    """One test, as their noise is calibrated once."""
    if link == "with arms that come and go":
        environment = Available(GLM(2, arms=6, theta_norm=1.0), share=0.4, stay=0.5)
        results = simulate(factories(CHANGING, [1.0], 1e-5, environment, 25), environment, rounds=25, seeds=1)
        assert all(np.isfinite(run.regret).all() for run in results.runs)
    else:
        # it takes a second to price shufflers, whose records have tests for every link
        some = [name for name in CHANGING if link in ("logistic", "poisson") or not name.startswith("shuffle")]
        named = [word for policy in some for word in ("-p", policy)]
        options = ("--rounds", 25, "--seeds", 1, "--link", link, *named, "-e", 1, "--theta-norm", 1)
        results = played("run", *QUICK, *options, drawn=link == "logistic")
        assert results.complete
        assert len(results.policies) == len(some)


@tabled("link", ["logistic", "poisson"])
def test_policies_for_arms_that_stand_are_told_these(link, played):
    options = ("--rounds", 50, "--seeds", 2, "--link", link, "--arm-law", "fixed_sphere", "-e", 1, "--theta-norm", 1)
    assert played("run", *QUICK, *options, "-p", *SAME).policies == ["standing private, ε = 1"]


@pytest.mark.thorough
def test_policies_that_know_names_play_fixed_arms(call, played):
    """Beside policies of all other kinds where arms have no features, and alone where they have some."""
    named = [word for policy in NAMED for word in ("-p", policy)]
    short = ("--seeds", 1, "--jobs", 1, "-e", 1)
    others = ("-p", "one-pass-private", *(word for policy in [*SAME, *STANDING] for word in ("-p", policy)))
    results = played("run", "--world", "abn", "-t", 40, *short, *named, *others)
    assert len(results.policies) == len(NAMED) + 1 + len(SAME) + len(STANDING)
    results = played("run", *QUICK, "--arm-law", "fixed_sphere", *short, *named)
    assert len(results.policies) == len(NAMED) == 8
    assert played("run", "--world", "rare", "-t", 40, *short).policies[1:] == [
        "Thompson for arms",
        "private arms, ε = 1",
    ]
    refused = call("run", *QUICK, "-p", "kl-ucb")
    assert refused.exit_code == 2
    assert "whose arms are not fixed" in " ".join(refused.output.split())


@pytest.mark.thorough
def test_policies_with_a_parameter_per_arm_play_contexts(tmp_path, played):
    named = [word for policy in (*STANDING, "private-arms") for word in ("-p", policy)]
    results = played("run", "--world", "disjoint", "-t", 60, "--seeds", 1, "--jobs", 1, *named, "-e", 1)
    assert results.complete
    assert len(results.policies) == 1 + len(STANDING) == 5
    log = tmp_path / "log.csv"
    log.write_text("a,b,label\n" + "0.9,0.1,yes\n0.1,0.8,no\n-0.4,0.3,maybe\n" * 20)
    replayed = played("replay", log, "--layout", "labels", "--seeds", 1, "--jobs", 1, *named, "-e", 1, drawn=True)
    assert set(replayed.policies) == set(results.policies)


@pytest.mark.thorough
@tabled("name", GALLERY)
def test_run_plays_the_gallery(name, played):
    results = played("run", "--world", name, "-t", 30, "--seeds", 1, "--jobs", 1, "-p", "uniform", "-p", "glb-omd")
    assert (results.complete, results.environment) == (True, world(name).make().name)


def test_run_takes_as_many_rounds_as_the_gallery_has(played):
    assert played("run", "--world", "people", "--seeds", 1, "--jobs", 1, "-p", "uniform").runs[0].round[-1] == 5000


@pytest.mark.thorough
@tabled("noise", ["gaussian", "student_t", "pareto", "symmetric_pareto"])
def test_run_knows_heavy_tails(noise, played):
    named = [word for policy in ("uniform", "oful", "hvt-ucb", "crtm", "one-pass-private") for word in ("-p", policy)]
    results = played("run", *QUICK, "--noise", noise, "--tail-index", 1.5, "--arm-law", "cube", *named, "-e", 1)
    assert results.environment.startswith("linear bandit, ")
    regret = {row["policy"]: row["regret"] for row in results.table()}
    assert regret["Hvt-UCB"] < regret["uniform"]


def test_run_has_late_and_missing_rewards(played):
    results = played("run", *QUICK, "-p", "uniform", "--delay", 20, "--missing", 0.2)
    assert results.environment.endswith("delays around 20, 20 % missing")
    assert 20 < results.table()[0]["untold"] < 120
    assert played("run", *QUICK, "-p", "uniform", "--missing", 0.5).environment.endswith("delay 0, 50 % missing")


def test_run_goes_on_where_it_stopped(call, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("dpbandits.policies.GLBOMD.select", interrupt)
        result = call("run", *QUICK, "-p", "uniform", "-p", "glb-omd", "--resume", "runs.jsonl")
        assert result.exit_code == 130
    assert len(Results.load(tmp_path / "runs.jsonl").runs) == 1
    whole = call("run", *QUICK, "-p", "uniform", "-p", "glb-omd", "--resume", "runs.jsonl")
    assert whole.exit_code == 0, whole.output
    kept = [run.seconds.tolist() for run in Results.load(tmp_path / "runs.jsonl").runs]
    assert [run.seconds.tolist() for run in Results.load(tmp_path / "run.json").runs] == kept
    assert "resume must be a file of the same environment" in call("run", "--resume", "runs.jsonl").output


@pytest.mark.thorough
def test_run_is_reproducible_over_processes(call, tmp_path):
    rewards = []
    for jobs in (1, 2):
        assert call("run", *QUICK, "--jobs", jobs, "--out", tmp_path / str(jobs)).exit_code == 0
        rewards.append([run.reward.tolist() for run in Results.load(tmp_path / str(jobs) / "run.json").runs])
    assert rewards[0] == rewards[1]


def test_replay_learns_from_a_long_log(call, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 3000)
    good = (rng.random(3000) < 1 / (1 + np.exp(-2 * x))).astype(int)
    frame = pd.DataFrame({"day": np.arange(3000) // 5, "clicked": good, "shade": x, "id": "text"})
    frame.to_csv(tmp_path / "log.csv", index=False)
    result = call(
        "replay", "log.csv", "--round", "day", "--reward", "clicked", "--feature", "shade", "--feature-bound", 2,
        "-p", "uniform", "-p", "glb-omd", "--seeds", 2, "--jobs", 1,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    longer = int((np.abs(x) > 2).sum())
    assert f"log.csv: 600 rounds, 3,000 rows, d = 2; {longer:,} rows longer than --feature-bound 2" in result.output
    reward = {row["policy"]: row["reward"] for row in Results.load(tmp_path / "replay.json").table()}
    assert reward["GLB-OMD"] > reward["uniform"] + 0.2


def test_replay_learns_labels_from_parquet(call, tmp_path):
    x = np.random.default_rng(1).uniform(-1, 1, 600)
    pd.DataFrame({"side": np.where(x > 0, "right", "left"), "x": x}).to_parquet(tmp_path / "log.parquet")
    result = call("replay", "log.parquet", "--layout", "labels", "--label", "side", "-e", 8, "--seeds", 1, "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert "600 rounds, 600 rows, d = 4" in result.output
    reward = {row["policy"]: row["reward"] for row in Results.load(tmp_path / "replay.json").table()}
    assert reward["GLB-OMD"] > 0.8
    assert reward["one-pass private, ε = 8"] > 0.55


@tabled(
    ("arguments", "message"),
    [
        (("run", "--rounds", "many"), "--rounds"),
        (("run", "--rounds", 0), "--rounds must be at least 1, got --rounds 0"),
        (("run", "--epsilon", 0), "--epsilon must be positive and finite, got --epsilon 0.0"),
        (("run", "--delta", 1), "--delta must lie in [0, 1), got --delta 1.0"),
        (("run", "--link", "cauchit"), "link must be one of"),
        (("run", "--policy", "best"), "policy must be one of uniform, "),
        (("run", "--policy", "disjoint-private"), "policy must be one that chooses from changing arms in "),
        (
            ("run", "--policy", "standing-private", "--rounds", 9),
            "environment must have fixed arms for a policy that is told them",
        ),
        (("run", "--seeds", 0), "seeds must be at least 1"),
        (("run", "--jobs", 0), "jobs must be at least 1"),
        (("run", "--theta-norm", -1), "--theta-norm must be positive"),
        (("run", "--noise", "cauchy"), "noise must be one of 'gaussian', 'student_t', 'pareto', 'symmetric_pareto'"),
        (("run", "--noise", "pareto", "--tail-index", 1), "--tail-index must be above 1, or the noise has no mean"),
        (("run", "--arm-law", "disc"), "--arm-law must be one of 'ball'"),
        (("run", "--world", "casino"), "world must be one of logit-shift, advertising, "),
        (("run", "--world", "digits", "--rounds", 7189), "rounds must be at most 7188 for digits"),
        (("run", "--delay", -2), "--delay must be nonnegative and finite, got --delay -2.0"),
        (("run", "--missing", 2), "--missing must lie in [0, 1], got --missing 2.0"),
        (("run", "--resume", "runs.txt"), "resume must end in .jsonl, got runs.txt"),
        (("run", "--colour", "red"), "No such option"),
        (("walk",), "No such command"),
        (("replay",), "Missing argument"),
        (("replay", "none.csv"), "there is no file none.csv"),
        (("replay", "bad.csv"), "bad.csv, row 3, column 'price': the value is missing"),
        (("replay", "bad.csv", "--layout", "wide"), "--layout must be 'long' or 'labels', got --layout 'wide'"),
        (
            ("replay", "bad.csv", "--person", "who"),
            "there must be a column 'who' (named by --person), got round",
        ),
        (
            ("replay", "bad.csv", "--reward-range", 1, 0),
            "--reward-range must be finite and increasing",
        ),
        (("replay", "bad.csv", "--round", "day"), "there must be a column 'day' (named by --round)"),
        (("replay", "bad.csv", "--unit", "person"), "--person must be given for --unit person"),
        (("evaluate", "bad.csv", "--top", -1), "--top must be at least 0, got -1"),
        (("evaluate", "bad.csv"), "there must be a column 'probability' (named by --probability), got round, reward"),
        (("evaluate", "bad.csv", "--reward", "when"), "there must be a column 'when' (named by --reward)"),
        (("evaluate", "gap.csv"), "the value is missing: --default-reward must say what a reward that never came"),
        (("price", "people", "--epsilons", 0), "--epsilons must be positive and finite, got --epsilons 0.0"),
        (("price", "bad.csv", "--delay", "late", "--feature", "price"), "a column 'late' (named by --delay)"),
        (("run", "--unit", "person"), "--world must be one with persons for --unit person, people, regulars, films"),
        (("run", *QUICK, "--out", "bad.csv"), "--out must be a folder that can be made, got 'bad.csv'"),
        (("run", *QUICK, "--resume", "no/where.jsonl"), "--resume must be a file in a folder that exists"),
        (("serve", "--demo", "--port", 70000), "--port must lie in 0, …, 65535, got 70000"),
        (
            ("serve", "run.toml", "--port", 8001),
            "run.toml describes its own service, write port = 8001 under [service]",
        ),
    ],
)
def test_wrong_values_end_with_one_line(call, tmp_path, arguments, message):
    (tmp_path / "bad.csv").write_text("round,reward,price\n1,0,0.3\n1,1,\n")
    (tmp_path / "gap.csv").write_text("arm,reward,probability\na,,0.5\n")
    result = call(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.startswith("error: ")
    assert result.output.count("\n") == 1


def test_a_budget_that_a_policy_refuses_ends_with_one_line_naming_the_run(call):
    result = call("run", *QUICK, "--delta", 0)
    assert result.exit_code == 2
    assert "delta must be positive" in result.output
    assert "in the run of policy 'one-pass private, ε = 1' on seed 0" in result.output


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_an_interrupt_saves_what_is_done(call, tmp_path, monkeypatch):
    monkeypatch.setattr("dpbandits.policies.GLBOMD.select", interrupt)
    result = call("run", *QUICK, "-p", "uniform", "-p", "glb-omd", drawn=True)
    assert result.exit_code == 130
    assert "interrupted: 1 of 4 runs are kept" in result.output
    assert "INCOMPLETE: 1 of 4 runs" in " ".join(result.output.split())
    results = Results.load(tmp_path / "run.json")
    assert not results.complete
    assert results.policies == ["uniform"]
    assert (tmp_path / "run.png").exists()


def test_an_interrupt_before_anything_is_done_writes_nothing(call, tmp_path, monkeypatch):
    monkeypatch.setattr("dpbandits.policies.Uniform.select", interrupt)
    result = call("run", *QUICK)
    assert result.exit_code == 130
    assert "nothing is written" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_help_loads_nothing_heavy_and_the_module_can_be_run():
    code = (
        "import sys, dpbandits.cli\n"
        "print({'pandas', 'matplotlib', 'pyarrow', 'sklearn', 'dpbandits.policies'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
    done = subprocess.run([sys.executable, "-m", "dpbandits", "--help"], capture_output=True, text=True, check=True)
    assert "quickstart" in done.stdout


def test_a_missing_typer_is_named():
    code = "import sys; sys.modules['typer'] = None; from dpbandits.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip() == 'error: the command line needs typer: python -m pip install "dpkit[cli]"'


def test_persons_are_protected_where_there_are_some(call, tmp_path, played):
    known = ("--seeds", 1, "--jobs", 1, "--rounds", 60, "-e", 4)
    (run,) = played("run", "--world", "people", "--unit", "person", *known, "-p", "one-pass-private").runs
    assert (run.policy, run.privacy.unit) == ("one-pass private, ε = 4, person", "person")
    result = call("run", "--world", "people", "--unit", "person", *known)
    assert result.exit_code == 0, result.output
    runs = Results.load(tmp_path / "run.json").runs
    assert [run.policy for run in runs] == ["uniform", "GLB-OMD", "private by person, ε = 4"]
    run = runs[-1]
    assert (run.algorithm, run.privacy.unit) == ("PersonPrivateGLM", "person")
    assert "The unit of privacy is one person" in " ".join(result.output.split())
    rows = [f"{t},{t % 3},{k},{int(k == t % 2)},{0.1 * k}" for t in range(20) for k in range(2)]
    (tmp_path / "log.csv").write_text("\n".join(["round,customer,arm,reward,x", *rows]))
    known = (tmp_path / "log.csv", "--seeds", 1, "--jobs", 1, "-p", "person-private", "-e", 4, "--unit", "person")
    (run,) = played("replay", *known, "--person", "customer").runs
    assert run.privacy.unit == "person"
    for command, complaint in (
        (("replay", *known), "person must be given"),
        (("run", "--unit", "person", *QUICK), "--world must be one with persons"),
        (("run", "--unit", "row", *QUICK), "unit must be 'round' or 'person'"),
        (
            ("run", "-p", "person-private", *QUICK),
            "unit must be 'person' for policy 'person-private', got",
        ),
    ):
        result = call(*command)
        assert result.exit_code == 2
        assert complaint in " ".join(result.output.replace("│", " ").split())
