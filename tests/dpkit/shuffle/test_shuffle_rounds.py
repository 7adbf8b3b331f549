"""Rounds are released once, whatever threads, signals, forks and copies do."""

import copy
import os
import pickle
import threading
from functools import partial

import pytest
from interrupts import Interrupter, at_once, interrupted, refused_in_a_fork
from shuffled_counts import begin_anew, response_of, rounds_of
from tabled import tabled

from accounting import Budget, Ledger, PureDP
from dpkit.shuffle import (
    MessageError,
    Randomizer,
    ScalarMean,
    ShuffledRandomizedResponse,
    Shuffler,
    SumProtocol,
    VectorSum,
    wire,
)
from dpkit.states import RunStopped

CONSTANTS = SumProtocol(1, 3, 1.0, resolution=3, noise_bits=4, cost=PureDP(0.5), rounds=2, session="s")
BUDGET = Budget(1.0, 1e-3)


def messages(round):
    device = Randomizer(CONSTANTS)
    return [device.encode([0.1], round=round) for _ in range(3)]


SENT = [messages(0), messages(1)]
WORKERS = [Randomizer(CONSTANTS).tally([[0.1]] * 3).to_bytes(round=t) for t in range(2)]
CALLS = {
    "devices": lambda shuffler, t: shuffler.shuffle(SENT[t]),
    "workers": lambda shuffler, t: shuffler.shuffle_tallies(WORKERS[t]),
}


def outcome(job, got):
    try:
        got.append(job())
    except (ValueError, RunStopped) as error:
        got.append(error)


def race(jobs):
    """What all jobs get, at once."""
    got, start = [], threading.Barrier(len(jobs))

    def run(job):
        start.wait()
        outcome(job, got)

    at_once(partial(run, job) for job in jobs)
    return got


def test_threads_never_make_more_releases_than_rounds():
    for trial in range(60):
        ledger = Ledger(Budget(1.0, 0.0))
        shuffler = Shuffler(CONSTANTS, ledger=ledger)
        call = CALLS["devices" if trial % 2 else "workers"]
        # every thread has the messages of both rounds: 6 calls for 2 releases
        got = race([partial(call, shuffler, t) for t in (0, 1) for _ in range(3)])
        released = [wire.read(data, CONSTANTS.fingerprint).round for data in got if isinstance(data, bytes)]
        # no round twice, and the second not before the first
        assert released in ([0], [0, 1], [1, 0])
        assert (shuffler.round, len(ledger.rows())) == (len(released), 1)
        # nobody takes a release that another thread is in the middle of for one that was interrupted
        assert len(got) == 6
        assert all(isinstance(one, bytes | ValueError) for one in got), got


@pytest.mark.parametrize("make", [partial(ShuffledRandomizedResponse, 2), ScalarMean])
def test_threads_never_make_more_than_the_one_release(make):
    kind = make(3, budget=BUDGET)
    for _ in range(30):
        response = response_of(kind)
        begin_anew(response)
        sent, tally = [kind.encode(1) for _ in range(3)], kind.tally([1, 1, 1])
        got = race([partial(kind.shuffle, sent), partial(kind.shuffle_tallies, tally)] * 3)
        assert sum(isinstance(data, bytes) for data in got) == 1
        assert sum(isinstance(data, ValueError) for data in got) == 5


FILES = ("dpkit/shuffle/shuffler.py", "dpkit/shuffle/rounds.py", "dpkit/shuffle/randomized_response.py", "dpkit/states")


def in_another_thread(job):
    """What another thread gets; it must not have to wait for a lock that nobody will open."""
    got = []
    thread = threading.Thread(target=outcome, args=(job, got), daemon=True)
    thread.start()
    thread.join(120)
    assert got, "deadlock"
    return got[0]


@pytest.mark.parametrize("kind", CALLS)
def test_an_interrupt_leaves_it_right_or_stopped(kind):
    call, stopped, lost, again = CALLS[kind], 0, 0, 0
    for number in range(1, 10_000):
        ledger = Ledger(Budget(9.0, 0.0))
        shuffler = Shuffler(CONSTANTS, ledger=ledger)
        if not interrupted(lambda: call(shuffler, 0), number, *FILES):  # noqa: B023
            break
        begun = shuffler.round
        got = in_another_thread(lambda: call(shuffler, begun))  # noqa: B023
        if isinstance(got, RunStopped):
            stopped += 1
        else:
            # right: it goes on with the round that was not begun, and the one that was is not made again
            assert wire.read(got, CONSTANTS.fingerprint).round == begun
            lost += begun
            again += not begun
            with pytest.raises(ValueError, match=r"got 0|at most rounds|for round"):
                call(shuffler, 0)
        # what it may cost was charged before anything could be seen
        assert ledger.rows() or not begun
    # each of the outcomes was seen
    assert min(stopped, lost, again) > 0


@pytest.mark.thorough
@pytest.mark.parametrize("make", [partial(ShuffledRandomizedResponse, 2), ScalarMean])
@pytest.mark.parametrize("call", ["shuffle", "shuffle_tallies"])
def test_an_interrupt_leaves_the_one_release_right_or_stopped(make, call):
    kind = make(3, budget=BUDGET)
    response = response_of(kind)
    sent = [kind.encode(1) for _ in range(3)] if call == "shuffle" else kind.tally([1, 1, 1])
    seen = set()
    for number in range(1, 10_000):
        ledger = Ledger(Budget(9.0, 1e-2))
        begin_anew(response, ledger)
        if not interrupted(lambda: getattr(kind, call)(sent), number, *FILES):
            break
        begun = response.released
        got = in_another_thread(lambda: getattr(kind, call)(sent))
        # released again only if it was not, and never again after that
        assert not (begun and isinstance(got, bytes))
        assert ledger.rows() or not begun
        seen.add(type(got))
    assert seen == {bytes, ValueError, RunStopped}


def test_a_signal_handler_may_release_too():
    """A handler that shuffles at any line of a release: no round comes out twice, nor more than there are."""
    for number in range(1, 10_000):
        shuffler = Shuffler(CONSTANTS)
        got = []

        def handler(shuffler=shuffler, got=got):
            outcome(lambda: shuffler.shuffle(SENT[shuffler.round] if shuffler.round < 2 else []), got)

        with Interrupter(number, *FILES, action=handler) as lines:
            outcome(lambda: shuffler.shuffle(SENT[0]), got)  # noqa: B023
        rounds = [wire.read(data, CONSTANTS.fingerprint).round for data in got if isinstance(data, bytes)]
        assert len(set(rounds)) == len(rounds) <= 2
        if lines.left > 0:
            break
    assert number > 20


@tabled("copier", [copy.copy, copy.deepcopy, pickle.dumps])
@tabled(
    "make",
    [
        lambda: Shuffler(CONSTANTS),
        lambda: VectorSum(1, 3, 1.0, budget=BUDGET),
        lambda: ShuffledRandomizedResponse(2, 3, budget=BUDGET),
        lambda: ScalarMean(3, budget=BUDGET),
    ],
)
def test_shufflers_cannot_be_copied(make, copier):
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copier(make())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_refuses():
    shuffler = Shuffler(CONSTANTS)
    with rounds_of(shuffler).lock:  # the child inherits it closed, and must not wait
        assert all(refused_in_a_fork(partial(call, shuffler, 0), RunStopped) for call in CALLS.values())
    assert shuffler.shuffle(SENT[0])


def test_a_failing_ledger_releases_nothing():
    class Broken(Ledger):
        def spend(self, *arguments, **options):
            raise OSError("disk full")

    shuffler = Shuffler(CONSTANTS, ledger=Broken(Budget(1.0, 0.0)))
    for call in CALLS.values():
        with pytest.raises(OSError, match="disk full"):
            call(shuffler, 0)
    assert shuffler.rounds_left == 2


def test_a_bad_tally_stops_nothing():
    shuffler = Shuffler(CONSTANTS)
    with pytest.raises(MessageError):
        shuffler.shuffle_tallies([WORKERS[0], b"nonsense"])
    assert shuffler.shuffle_tallies(WORKERS[0])
