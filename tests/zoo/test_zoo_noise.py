"""Faults of the noise itself are caught, and this project's mechanisms do not have them."""

from __future__ import annotations

import os
from functools import partial

import broken_mechanisms
import numpy as np
import pytest
import zoo_noise as broken
from published import is_caught, lower_bound

from accounting import Gaussian, Laplace, TreeAggregation
from dpkit.continual import BinaryTree
from dpkit.mechanisms import LaplaceMechanism
from dpkit.randomness import generator


def laplace(value, trials):
    return LaplaceMechanism(epsilon=1.0, sensitivity=1.0).release(np.full((trials, 1), value))[:, 0]


def each_alone(value, trials):
    """Single numbers, which have a lattice of their own."""
    mechanism = LaplaceMechanism(epsilon=1.0, sensitivity=1.0)
    return np.array([float(mechanism.release(float(value))) for _ in range(trials)])


def ends_early(outputs):
    """1 where a number is no multiple of 2⁻⁵⁴."""
    return (np.ldexp(outputs, 54) % 1.0 != 0).astype(float)


def test_textbook_laplace_is_caught():
    program = partial(broken.textbook_laplace, rng=np.random.default_rng(1))
    is_caught(
        lower_bound(program, 1.0, 0.0, trials=10_000, delta=0.0, score=broken_mechanisms.unreachable_from_zero),
        Laplace(1.0),
    )


def test_textbook_laplace_is_not_ours():
    found = lower_bound(
        each_alone, 1.0, 0.0, trials=4_000, delta=0.0, score=broken_mechanisms.unreachable_from_zero
    )  # fmt: skip
    found.check(Laplace(1.0))
    outputs = laplace(1.0, 1_000)
    # whole multiples of one step, which depends on no value
    step = LaplaceMechanism(epsilon=1.0, sensitivity=1.0)._lattice(1_000)[0]
    assert np.all(outputs / step % 1.0 == 0)


def test_good_noise_added_in_floats_is_caught():
    program = partial(broken.good_noise_added_in_floats, rng=np.random.default_rng(2))
    is_caught(lower_bound(program, 0.0, 1.0, trials=4_000, delta=0.0, score=ends_early), Laplace(1.0))


def test_good_noise_added_in_floats_is_not_ours():
    for value in (0.0, 1.0):
        assert not ends_early(laplace(value, 4_000)).any()
        assert not ends_early(each_alone(value, 400)).any()


def test_restored_tree_is_caught():
    scale = 9.0
    program = partial(broken.restored_tree, scale=scale, rewind=True, rng=np.random.default_rng(3))
    found = lower_bound(
        program, [0.0, 0.0, 1.0, 0.0], [0.0] * 4, trials=4_000, delta=1e-5,
        score=lambda y: -np.abs(y[:, 2] - y[:, 3] - 1.0),
    )  # fmt: skip
    is_caught(found, 2 * TreeAggregation(scale, steps=4))


def test_restored_tree_is_not_ours():
    tree = BinaryTree(horizon=4, shape=(), sensitivity=1.0, noise_multiplier=9.0)
    for _ in range(2):
        tree.add(0.0)
    state = tree.state()
    # no generator is kept, so that there is nothing to rewind
    assert str(state["generator"]) == ""
    lives = [BinaryTree.restore(state, unattended=True) for _ in range(2)]
    assert len({float(life.add(0.0)) for life in (*lives, tree)}) == 3


def test_buffer_of_a_forked_worker_is_caught():
    program = partial(broken.buffer_of_a_forked_worker, rng=np.random.default_rng(4))
    found = lower_bound(
        program, (1.0, 0.0), (0.0, 0.0), trials=4_000, delta=1e-5, score=lambda y: np.round(y[:, 0] - y[:, 1])
    )  # fmt: skip
    is_caught(found, Gaussian(1.0))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_buffer_of_a_forked_worker_is_not_ours(monkeypatch):
    # in tests bits come from a stream, which forks would share
    monkeypatch.setattr(generator, "random_bytes", os.urandom)
    source = generator.SecureGenerator()
    source.standard_normal(3)  # the parent draws, and has more in store
    read, write = os.pipe()
    for _ in range(2):
        if (child := os.fork()) == 0:
            os.write(write, source.standard_normal(2).tobytes())
            os._exit(0)
        os.waitpid(child, 0)
    drawn = [*np.frombuffer(os.read(read, 1_000)), *source.standard_normal(2)]
    os.close(read)
    os.close(write)
    assert len(set(drawn)) == 6
