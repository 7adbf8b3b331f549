"""Whatever draws itself takes a path, axes or nothing, in all three packages alike."""

import importlib
import inspect
import pkgutil
from pathlib import Path

import numpy as np
import pytest

from accounting import Budget, Gaussian, attacker
from accounting.compose.distribution import PLD
from dpbandits import price_of_privacy, simulate
from dpbandits.lab.environments import GLM
from dpbandits.policies import OnePassPrivateGLM
from dpkit import queries

pytest.importorskip("matplotlib")
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ROWS = Budget(10.0, 0.0, adjacency="add_remove")


def simulated():
    return simulate(
        {"one pass": lambda rng: OnePassPrivateGLM(2, budget=Budget(4.0, 1e-5), horizon=50, rng=rng)},
        GLM(dim=2, arms=2),
        rounds=50,
        seeds=1,
        progress=False,
    )


MADE = {
    "Attacker": lambda: attacker(Gaussian(2.0)),
    "PLD": lambda: PLD.of(Gaussian(2.0)),
    "Answer": lambda: queries.count([1, 2, 3], budget=ROWS, rng=np.random.default_rng(0)),
    "Results": simulated,
    "PriceTable": lambda: price_of_privacy(GLM(dim=2, arms=2), [4.0], rounds=50, seeds=1, progress=False),
}


@pytest.mark.parametrize("name", MADE)
def test_a_path_axes_or_nothing(name, tmp_path):
    drawn, target, ax = MADE[name](), tmp_path / "picture.png", Figure().add_subplot()
    assert drawn.plot(target) == target
    assert target.read_bytes().startswith(b"\x89PNG")
    assert drawn.plot(str(tmp_path / "again.svg")) == tmp_path / "again.svg"
    assert drawn.plot(ax) is ax
    assert ax.has_data()
    found = drawn.plot()
    assert all(isinstance(one, Axes) for one in (found if isinstance(found, tuple) else [found]))
    with pytest.raises(TypeError, match="target must be a path, matplotlib axes or None, got a int"):
        drawn.plot(3)


def test_every_plot_is_tried():
    # by its first parameter, and those that are made in a test of their own
    owners = set()
    for package in ("accounting", "dpkit", "dpbandits"):
        root = importlib.import_module(package)
        for module in pkgutil.walk_packages(root.__path__, f"{package}."):
            path = module.module_finder.find_spec(module.name).origin
            if path and "    def plot(" in Path(path).read_text(encoding="utf-8"):
                for owner in vars(importlib.import_module(module.name)).values():
                    if isinstance(owner, type) and owner.__module__ == module.name and "plot" in vars(owner):
                        owners.add(owner.__name__)
                        target = list(inspect.signature(owner.plot).parameters.values())[1]
                        assert (target.name, target.default) == ("target", None), owner
    assert owners == {*MADE, "ExperimentResults"}
