"""A stream that is interrupted at any line, or forked for real, noises no sum a second time."""

import os

import numpy as np
import pytest
from factors import Noise, noise_by, noise_of
from interrupts import interrupted, refused_in_a_fork
from streams import make, run_of

from dpkit.states import RunStopped

CASES = ["buffered", "unbounded", "discounted", "toeplitz", "weighted", "tree", "honaker"]
each_case = pytest.mark.parametrize("case", CASES)


class Steps(Noise):
    """A stream's noise, and the step and the release that each draw was for."""

    def __init__(self, sums):
        self.sums, self.source, self.drawn = sums, noise_of(sums), []
        noise_by(sums, self)

    def add_to(self, encoded):
        self.drawn.append((self.sums.steps, run_of(self.sums).step))
        return self.source.add_to(encoded)


def started(case, dimension=2):
    sums = make(case, horizon=9, shape=dimension)
    sums.add_many(np.ones((3, dimension)))
    return sums, Steps(sums).drawn


@each_case
@pytest.mark.parametrize(("first", "many", "dimension"), [(1, False, 1), (2, False, 2), (3, True, 2)])
def test_an_interrupt_at_any_line_noises_no_sum_twice(case, first, many, dimension):
    outcomes = set()
    for line in range(first, 1000, 3):  # each way has a third of the lines
        sums, drawn = started(case, dimension)
        x = np.ones((2, dimension)) if many else np.ones(dimension)
        call = (lambda sums=sums, x=x: sums.add_many(x)) if many else (lambda sums=sums, x=x: sums.add(x))
        if not interrupted(call, line, "dpkit"):
            break
        before = list(drawn)
        assert run_of(sums).lock.acquire(blocking=False)  # nobody holds it any more
        run_of(sums).lock.release()
        try:
            sums.add(np.ones(dimension))
        except RunStopped:
            assert drawn == before
            outcomes.add("stopped")
        else:
            # nothing was drawn yet, or the call had done all of its work
            assert len({step for step, _ in set(drawn)}) == len(set(drawn))
            assert not before or sums.steps == 4 + len(x if many else [x])
            outcomes.add("done" if before else "not begun")
    assert 20 < line < 999
    assert {"stopped", "not begun"} <= outcomes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@each_case
def test_the_child_of_a_fork_gets_nothing_and_its_parent_goes_on(case):
    sums, _ = started(case)
    for call in (lambda: sums.add(np.ones(2)), lambda: sums.add_many(np.ones((2, 2))), sums.state):
        assert refused_in_a_fork(call, RunStopped)
    assert sums.add(np.ones(2)).shape == (2,)
