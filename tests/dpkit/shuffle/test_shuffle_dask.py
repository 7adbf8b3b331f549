"""The Dask example, on Dask's local schedulers."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from accounting import Budget
from dpkit.shuffle import VectorSum

pytest.importorskip("dask")
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "shuffle_dask.py"


def load():
    spec = importlib.util.spec_from_file_location("shuffle_dask", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_dask_adds_up_the_same_sums(scheduler):
    example = load()
    sums = VectorSum(example.DIMENSION, example.USERS, 1.0, budget=Budget(1.0, 1e-6), symmetric=True, positive=True)
    exact = np.mean(
        [example.outer_products(example.measurements(i)).mean(axis=0) for i in range(example.PARTITIONS)], axis=0
    )
    error = (example.private_covariance(sums, scheduler) - exact) / (sums.noise_std / example.USERS)
    # ten entries of standard deviation at most 1: beyond 7 with probability below 1e-10; and noise there is
    assert 0 < np.abs(error).max() < 7
    assert sums.shuffler.rounds_left == 0
