"""The table of regrets: its reference points, its slopes, and that the command writes it and goes on."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from commands import run as run_command
from pictures import coarse_pictures
from scipy.optimize import minimize

from accounting import Budget
from dpkit.geometry import LpBall
from dpkit.optimize import FollowTheApproximateLeader, glm
from dpkit.reproduce import regret
from dpkit.reproduce.regret import Row, from_csv, run, slope, to_csv, to_markdown


@pytest.mark.parametrize("losses", ["linear", "logistic", "ridge"])
def test_the_best_fixed_point_is_the_best(losses):
    X, y, least = regret._stream(losses, 300, 3)
    assert np.linalg.norm(X, axis=1).max() <= 1.0 + 1e-12
    objective = glm("linear" if losses == "linear" else "logistic")

    def total(theta):
        return 300 * objective.mean(theta, X, y) + (
            300 * regret.RIDGE / 2 * theta @ theta if losses == "ridge" else 0.0
        )

    inside = {"type": "ineq", "fun": lambda theta: 1.0 - theta @ theta}
    found = minimize(total, np.full(4, 0.1), constraints=[inside], method="SLSQP", options={"ftol": 1e-12})
    assert least == pytest.approx(found.fun, abs=1e-4)


def test_slopes_and_their_errors():
    rows = [Row("linear", 1.0, "leader", T, 2.0 * T**0.5, 0.2 * T**0.5, 4, 0.0) for T in (16, 64, 256, 1024)]
    rows[0] = Row("linear", 1.0, "leader", 16, 1e9, 0.0, 4, 0.0)  # not among the last three
    found, error = slope(rows)
    assert found == pytest.approx(0.5)
    # relative errors of 5 % at both ends of two factors of 4
    assert error == pytest.approx(math.sqrt(2) * 0.05 / (2 * math.log(4)))
    assert math.isnan(slope([*rows[:3], Row("linear", 1.0, "leader", 1024, -1.0, 0.1, 4, 0.0)])[0])


def test_a_run_goes_on_and_is_written(tmp_path):
    seen = []
    grid = {"losses": ("linear", "ridge"), "epsilons": (8.0,), "horizons": (16, 32), "seeds": 2}
    grid["learners"] = ("regularized leader", "implicit, hidden", "Frank-Wolfe")
    rows = run(**grid, progress=lambda part, total: seen.append((len(part), total)))
    # three learners on linear losses, the one that has a ridge on the others
    assert seen == [(k, 8) for k in range(1, 9)]
    assert from_csv(to_csv(rows)) == rows
    again = run(**grid, done=rows[:-1])
    assert again[:-1] == rows[:-1]
    assert again[-1].regret == rows[-1].regret
    text = to_markdown(rows)
    assert text.startswith("| losses | ε | learner | T = 16 | T = 32 | slope | theory | bound |")
    assert "| ridge | 8 | implicit, hidden | " in text
    regret.picture(rows, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="seeds must be 3 in every line"):
        run(**grid | {"seeds": 3}, done=rows)
    with pytest.raises(ValueError, match="text must have the columns losses, epsilon"):
        from_csv("losses\nlinear\n")


@pytest.mark.thorough
@pytest.mark.parametrize("losses", ["linear", "ridge"])
def test_regrets_are_within_what_is_proved(losses):
    # the nearest is the regularized leader's on linear losses: 10 with a deviation of 1.6 for the mean of ten, below 21
    for learner in ("leader", "regularized leader", "implicit", "implicit, hidden"):
        if losses in regret.LEARNERS[learner].theory:
            (row,) = run(losses=(losses,), epsilons=(8.0,), learners=(learner,), horizons=(200,), seeds=10)
            assert row.regret < regret.bound(losses, 8.0, learner, 200)
    assert math.isnan(regret.bound("linear", 8.0, "Frank-Wolfe", 200))


def test_the_leaders_bound_holds_for_the_worst_of_short_streams(monkeypatch):
    # Gradients of ±1 on a line with a ridge of 1, and next to no noise: two opposite ones lose 1.5.
    monkeypatch.setattr(regret, "RIDGE", 1.0)
    objective, budget = glm("linear", clip=1.0), Budget(1e9, regret.DELTA)
    for T, expected in ((1, 0.5), (2, 1.5), (3, 5 / 3), (4, 17 / 9)):
        found = []
        for signs in itertools.product((1.0, -1.0), repeat=T):
            rng = np.random.default_rng(0)
            learner = FollowTheApproximateLeader(objective, LpBall(2, 1), horizon=T, budget=budget, ridge=1.0, rng=rng)
            thetas = np.array([learner.theta, *(learner.step([1.0], sign) for sign in signs)])[:-1, 0]
            best = -sum(signs) / T
            lost = (np.array(signs) @ thetas + thetas @ thetas / 2) - (sum(signs) * best + T * best**2 / 2)
            found.append(lost)
        assert max(found) == pytest.approx(expected, abs=1e-3)
        assert max(found) <= regret.bound("ridge", 1e9, "leader", T) + 1e-3


def test_the_command_writes_three_files(tmp_path, monkeypatch):
    coarse_pictures(monkeypatch)
    monkeypatch.setattr(regret, "QUICK_HORIZONS", (16, 32))
    fewer = {"learners": ("leader", "implicit"), "losses": ("linear",)}
    monkeypatch.setattr(regret.run, "__kwdefaults__", regret.run.__kwdefaults__ | fewer)
    command = ["reproduce", "regret", "--quick", "--jobs", "1", "--out", str(tmp_path)]
    run_command(*command)
    assert {path.name for path in tmp_path.iterdir()} == {"regret.md", "regret.csv", "regret.png"}
    before = (tmp_path / "regret.csv").read_text()
    run_command(*command)
    assert (tmp_path / "regret.csv").read_text() == before  # the times too: nothing ran again
    run_command(*(part for part in command if part != "--quick"), status=2)
