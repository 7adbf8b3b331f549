"""Rounds are released once, whatever threads, signals, forks and copies do."""

import copy
import linecache
import os
import pickle
import sys
import threading
from functools import partial

import pytest
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
    """All jobs at once, with switches as often as the interpreter makes them."""
    got, start = [], threading.Barrier(len(jobs))

    def run(job):
        start.wait()
        outcome(job, got)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
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


class Interrupt(BaseException):
    pass


def at_line(number, action):
    """A tracer that calls ``action`` at the ``number``-th line that is run in the files of rounds; and the count."""
    count = [0]

    def local(frame, event, argument):
        # leaving a "with" block is a line for tracers, but the interpreter lets no signal in before __exit__ is called
        source = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not source.strip().startswith("with "):
            count[0] += 1
            if count[0] == number:
                action()
        return local

    def tracer(frame, event, argument):
        name = frame.f_code.co_filename
        watched = name.endswith(("shuffler.py", "rounds.py", "randomized_response.py")) or "states" in name
        return local if watched else None

    return tracer, count


def traced(tracer, job):
    sys.settrace(tracer)
    try:
        return job()
    finally:
        sys.settrace(None)


def interrupt():
    raise Interrupt


def in_another_thread(job):
    """What another thread gets; it must not have to wait for a lock that nobody will open."""
    got = []

    def run():
        try:
            got.append(job())
        except (ValueError, RunStopped) as error:
            got.append(error)

    thread = threading.Thread(target=run, daemon=True)
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
        tracer, count = at_line(number, interrupt)
        try:
            traced(tracer, lambda: call(shuffler, 0))  # noqa: B023
        except Interrupt:
            pass
        else:
            assert count[0] < number
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
        tracer, count = at_line(number, interrupt)
        try:
            traced(tracer, lambda: getattr(kind, call)(sent))
        except Interrupt:
            pass
        else:
            assert count[0] < number
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
            try:
                outcome(lambda: shuffler.shuffle(SENT[shuffler.round] if shuffler.round < 2 else []), got)
            except RunStopped as error:
                got.append(error)

        tracer, count = at_line(number, handler)
        try:
            traced(tracer, lambda: outcome(lambda: shuffler.shuffle(SENT[0]), got))  # noqa: B023
        except RunStopped as error:
            got.append(error)
        rounds = [wire.read(data, CONSTANTS.fingerprint).round for data in got if isinstance(data, bytes)]
        assert len(set(rounds)) == len(rounds) <= 2
        if count[0] < number:
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
        child = os.fork()
        if child == 0:
            refused = 0
            for call in CALLS.values():
                try:
                    call(shuffler, 0)
                except RunStopped:
                    refused += 1
            os._exit(0 if refused == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
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
