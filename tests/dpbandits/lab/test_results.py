"""Results: the table's arithmetic, files without loss, and plots that say what they show."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from bits import bits
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbandits.lab.simulation.results import Results
from dpbandits.lab.simulation.runs import Run
from dpbandits.policy.protocol import PrivacyReport

NOT_PRIVATE = PrivacyReport(math.inf, 0.0, 0.0, "none", "replace", "round", True)


def private(epsilon):
    return PrivacyReport(epsilon, 1e-5, 0.25, "joint", "replace", "round", True)


def run(policy, seed, reward, regret, privacy=NOT_PRIVATE, algorithm="Uniform"):
    n = len(reward)
    noted = 10 * np.arange(1, n + 1)
    return Run(policy, algorithm, seed, noted, np.array(reward), np.array(regret), 1e-4 * noted, privacy)


def example(regret=True):
    def curve(values):
        return values if regret else [math.nan] * len(values)

    runs = (
        run("uniform", 0, [5.0, 9.0], curve([4.0, 8.0])),
        run("uniform", 1, [6.0, 11.0], curve([5.0, 9.0])),
        run("one-pass private, ε = 1", 0, [7.0, 15.0], curve([2.0, 3.0]), private(1.0), "OnePassPrivateGLM"),
        run("one-pass private, ε = 1", 1, [8.0, 16.0], curve([1.0, 1.5]), private(1.0), "OnePassPrivateGLM"),
        run("one-pass private, ε = 4", 0, [8.0, 17.0], curve([1.0, 1.0]), private(4.0), "OnePassPrivateGLM"),
        run("one-pass private, ε = 4", 1, [9.0, 18.0], curve([0.5, 0.5]), private(4.0), "OnePassPrivateGLM"),
    )
    return Results("a world", runs, 6)


def contents(results):
    return results.environment, results.planned_runs, bits(results.runs)


def test_table_has_means_and_standard_errors_over_seeds():
    first, second, _ = example().table()
    assert (first["policy"], first["seeds"], first["rounds"]) == ("uniform", 2, 20)
    assert first["reward"] == pytest.approx((9 + 11) / 2 / 20)
    # two values 9/20 and 11/20: standard deviation (2/20)/√2, over √2
    assert first["reward_se"] == pytest.approx(0.05)
    assert (first["regret"], first["regret_se"]) == (pytest.approx(8.5), pytest.approx(0.5))
    assert first["seconds_per_round"] == pytest.approx(1e-4)
    assert math.isinf(first["epsilon"])
    assert (second["epsilon"], second["delta"], second["trust"], second["unit"]) == (1.0, 1e-5, "joint", "round")


def test_one_seed_has_no_standard_error():
    results = Results("a world", example().runs[:1], 1)
    assert math.isnan(results.table()[0]["reward_se"])
    assert "±" not in str(results)


def test_summary_says_what_it_is_about():
    text = str(example())
    for part in (
        "a world: 20 rounds, 2 seeds",
        "seeded simulation: not a private release",
        "0.500 ± 0.050",
        "joint (1, 1e-05)-DP per round",
        "not private",
    ):
        assert part in text
    assert "regret" in text
    assert "regret" not in str(example(regret=False))


def test_a_notebook_shows_the_table_escaped_and_a_list_one_line():
    results = replace(example(), environment="a <b>")
    assert "\n" not in repr(results)
    assert repr(results).startswith("Results('a <b>', ")
    page = results._repr_html_()
    assert page.count("<tr>") == 1 + len(results.policies)
    assert "a &lt;b&gt;" in page
    assert "<b>" not in page


@pytest.mark.parametrize("suffix", [".json", ".csv", ".parquet"])
@pytest.mark.parametrize("regret", [True, False])
def test_files_keep_everything(tmp_path, suffix, regret):
    results = example(regret)
    path = results.save(tmp_path / f"results{suffix}")
    assert contents(Results.load(path)) == contents(results)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5), st.floats(1e-300, 1e300))
def test_files_keep_every_bit(tmp_path_factory, values, epsilon):
    results = Results('odd, "name"\n', (run("ε", 2**40, values, values, private(epsilon)),), 3)
    folder = tmp_path_factory.mktemp("bits")
    for suffix in (".json", ".csv", ".parquet"):
        again = Results.load(results.save(folder / f"r{suffix}"))
        assert contents(again) == contents(results)
        assert not again.complete


def test_json_is_strict(tmp_path):
    def refuse(constant):
        raise AssertionError(constant)

    text = example(regret=False).save(tmp_path / "r.json").read_text()
    document = json.loads(text, parse_constant=refuse)
    assert document["simulation"] is True
    assert document["runs"][0]["privacy"]["epsilon"] is None


@pytest.mark.parametrize("name", ["r.json", "r.csv", "r.parquet"])
def test_other_files_are_refused(tmp_path, name):
    path = tmp_path / name
    for text in ("", "{}", "a,b\n1,2\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match="path must hold results that were saved by this package"):
            Results.load(path)
    with pytest.raises(ValueError, match=r"path must end in \.json, \.csv or \.parquet"):
        example().save(tmp_path / "r.xlsx")


def test_frame_has_one_row_per_noted_round():
    frame = example().to_frame()
    assert len(frame) == 12
    assert frame.groupby("policy")["reward"].max()["uniform"] == 11.0


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"policy must be one of 'uniform', .* got policy='greedy'"):
        example().runs_of("greedy")
    for call in (lambda: example().curves("uniform", "loss"), lambda: example().plot_time("none.png", "loss")):
        with pytest.raises(ValueError, match="metric must be 'reward' or 'regret', got metric='loss'"):
            call()


# ------------------------------------------------------------------------------------------------- plots


@pytest.fixture
def axes():
    figure = pytest.importorskip("matplotlib.figure")
    return figure.Figure().subplots()


def texts(ax):
    return {text.get_text() for text in ax.texts}


def test_time_plot_shows_each_policy_with_its_band(axes):
    results = example()
    assert results.plot_time(axes) is axes
    assert len(axes.lines) == len(axes.collections) == 3
    assert texts(axes) == set(results.policies)
    assert axes.lines[0].get_ydata().tolist() == [4.5, 8.5]
    # Student's t with one degree of freedom: 12.7062 standard errors of 0.5
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(8.5 + 12.7062047 * 0.5)
    assert "regret" in axes.get_ylabel()


def test_standard_error_bands_and_mean_rewards(axes):
    example(regret=False).plot_time(axes, band="se")
    assert axes.lines[0].get_ydata().tolist() == [0.55, 0.5]
    assert axes.collections[0].get_paths()[0].vertices[:, 1].min() == pytest.approx(0.45)
    assert "mean reward" in axes.get_ylabel()


def test_epsilon_plot_orders_budgets_and_draws_the_rest_as_lines(axes):
    example().plot_epsilon(axes, "reward")
    assert "OnePassPrivateGLM" in texts(axes)
    assert "uniform" in texts(axes)
    curve = next(line for line in axes.lines if len(line.get_xdata()) == 2 and line.get_xdata()[0] == 1.0)
    assert curve.get_xdata().tolist() == [1.0, 4.0]
    assert curve.get_ydata() == pytest.approx([15.5 / 20, 17.5 / 20])
    assert "δ = 1e-05" in axes.get_xlabel()
    assert "one round" in axes.get_title(loc="left") + axes.get_title()


def test_one_algorithm_for_rounds_and_for_persons_is_two_curves(axes):
    runs = [
        run(f"{unit} {epsilon}", 0, [9.0, 10.0 + epsilon], [1.0, 2.0], replace(private(epsilon), unit=unit), "OnePass")
        for unit in ("round", "person")
        for epsilon in (1.0, 4.0)
    ]
    Results("a world", tuple(runs), 4).plot_epsilon(axes, "reward")
    assert {"OnePass, per round", "OnePass, per person"} <= set(texts(axes))
    assert sum(line.get_xdata().tolist() == [1.0, 4.0] for line in axes.lines if len(line.get_xdata()) == 2) == 2


def test_regret_is_drawn_on_a_logarithmic_axis_where_one_policy_would_flatten_the_rest(axes):
    runs = [run("bad", 0, [1.0, 1.0], [500.0, 1000.0]), run("good", 0, [9.0, 19.0], [2.0, 3.0])]
    Results("a world", tuple(runs), 2).plot_time(axes)
    assert axes.get_yscale() == "log"
    assert "log scale" in axes.get_ylabel()


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12))
def test_names_in_the_margin_never_overlap(values):
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    runs = tuple(run(f"p{i}", 0, [20 * value, 20 * value], [math.nan] * 2) for i, value in enumerate(values))
    Results("a world", runs, len(runs)).plot_time(ax)
    heights = np.array(sorted(text.get_position()[1] for text in ax.texts))
    assert len(heights) == len(values)
    assert heights.min() >= -1e-9
    assert heights.max() <= 1 + 1e-9
    assert (np.diff(heights) > 0.059).all()


@pytest.mark.thorough
def test_without_private_policies_there_is_one_panel(tmp_path):
    results = Results("a world", example().runs[:2], 2)
    both = example().plot(tmp_path / "both.png").read_bytes()
    one = results.plot(tmp_path / "one.png").read_bytes()

    def width(png):
        assert png.startswith(b"\x89PNG")
        return int.from_bytes(png[16:20], "big")

    assert width(one) < width(both)
    with pytest.raises(ValueError, match="results must hold a private policy"):
        results.plot_epsilon(tmp_path / "none.png")


def test_bad_plot_parameters_are_refused(axes):
    with pytest.raises(ValueError, match="metric must be 'reward' where regret is unknown"):
        example(regret=False).plot_time(axes, "regret")
    with pytest.raises(ValueError, match="band must be '95%' or 'se', got band='99%'"):
        example().plot_time(axes, band="99%")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r'to_frame needs pandas: python -m pip install "dpkit\[cli\]"'):
        example().to_frame()


@pytest.mark.thorough
def test_plotting_leaves_pyplot_alone(tmp_path):
    code = f"""
import sys
from dpbandits.lab.simulation.results import Results
Results.load({str(example().save(tmp_path / "r.json"))!r}).plot_time({str(tmp_path / "p.png")!r})
print("matplotlib" in sys.modules, "matplotlib.pyplot" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True False"
