"""A stream that is interrupted at any line, or forked for real, noises no sum a second time."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from factors import Noise

import dpkit
from dpkit.continual import BinaryTree, BufferedToeplitz, Discounted, Toeplitz, Unbounded, Weighted
from dpkit.states import RunStopped

OURS = str(Path(dpkit.__file__).parent)
CASES = {
    "buffered": (BufferedToeplitz, {"horizon": 9}),
    "unbounded": (Unbounded, {}),
    "discounted": (Discounted, {"discount": 0.9}),
    "toeplitz": (Toeplitz, {"horizon": 9}),
    "weighted": (Weighted, {"weights": np.arange(1.0, 10.0)}),
    "tree": (BinaryTree, {"horizon": 9}),
    "honaker": (BinaryTree, {"horizon": 9, "estimator": "honaker"}),
}
each_case = pytest.mark.parametrize("case", CASES)


class Steps(Noise):
    """A stream's noise, and the step and the release that each draw was for."""

    def __init__(self, sums):
        self.sums, self.ahead, self.drawn = sums, sums._ahead, []

    def add_to(self, encoded):
        self.drawn.append((self.sums.steps, self.sums._run.step))
        return self.ahead.add_to(encoded)


def started(case, dimension=2):
    mechanism, own = CASES[case]
    sums = mechanism(shape=dimension, sensitivity=1.0, noise_multiplier=1.0, rng=np.random.default_rng(0), **own)
    sums.add_many(np.ones((3, dimension)))
    sums._ahead = Steps(sums)
    return sums


def interrupted(call, line):
    """Whether ``call`` had so many lines of this package that it was interrupted at that one."""
    left = line

    def trace(frame, event, argument):
        nonlocal left
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@each_case
@pytest.mark.parametrize(("many", "dimension"), [(False, 1), (False, 2), (True, 2)])
def test_an_interrupt_at_any_line_noises_no_sum_twice(case, many, dimension):
    outcomes = set()
    for line in range(dimension, 1000, 2):  # odd lines in one dimension, even ones in two
        sums = started(case, dimension)
        x = np.ones((2, dimension)) if many else np.ones(dimension)
        call = (lambda sums=sums, x=x: sums.add_many(x)) if many else (lambda sums=sums, x=x: sums.add(x))
        if not interrupted(call, line):
            break
        drawn = list(sums._ahead.drawn)
        assert sums._run.lock.acquire(blocking=False)  # nobody holds it any more
        sums._run.lock.release()
        try:
            sums.add(np.ones(dimension))
        except RunStopped:
            assert sums._ahead.drawn == drawn
            outcomes.add("stopped")
        else:
            # nothing was drawn yet, or the call had done all of its work
            releases = set(sums._ahead.drawn)
            assert len({step for step, _ in releases}) == len(releases)
            assert not drawn or sums.steps == 4 + len(x if many else [x])
            outcomes.add("not begun" if not drawn else "done")
    assert 20 < line < 999
    assert {"stopped", "not begun"} <= outcomes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@each_case
def test_the_child_of_a_fork_gets_nothing_and_its_parent_goes_on(case):
    sums = started(case)
    for call in (lambda: sums.add(np.ones(2)), lambda: sums.add_many(np.ones((2, 2))), sums.state):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                call()
            except RunStopped:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sums.add(np.ones(2)).shape == (2,)
