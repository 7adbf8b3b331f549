"""Messages that nobody would write: no exception but ValueError (MessageError is one), and no memory beyond reason.

The slow test lets atheris look for them, guided by what the code does with them. It needs the package ``atheris``;
``DPKIT_FUZZ_SECONDS`` (3600 for an hour; 20 if it is not set) says how long, and ``DPKIT_FUZZ_CORPUS`` names the folder
where the corpus is kept for the next time.
"""

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from shuffled_counts import begin_anew, resealed

from accounting import Budget, PureDP
from dpkit.shuffle import Analyzer, Randomizer, ShuffledRandomizedResponse, Shuffler, SumProtocol, Tally, wire

SMALL = SumProtocol(6, 1, 1.0, resolution=5, noise_bits=4, cost=PureDP(1.0), rounds=10**6, session="fuzz")
RESPONSE = ShuffledRandomizedResponse(5, 1, budget=Budget(8.0, 1e-2), session="fuzz")


def seeds(constants=SMALL):
    """A valid message of every kind and protocol."""
    device = Randomizer(constants, rng=np.random.default_rng(0))
    many = device.tally(np.zeros((5, constants.dimension)))
    counts = np.array([3, 0, 1, 0, 2])
    return [
        device.encode(np.zeros(constants.dimension)),
        many.to_bytes(),
        many.to_bytes(kind=wire.Kind.SHUFFLED),
        RESPONSE.encode(3),
        RESPONSE.tally([1, 2, 3, 4]),
        wire.write(wire.Kind.SHUFFLED, RESPONSE.fingerprint, counts, 3, users=6),
    ]


class Receivers:
    """Everything that reads bytes, as new before every message."""

    def __init__(self, constants=SMALL):
        self.constants = constants
        self.shuffler, self.analyzer = Shuffler(constants), Analyzer(constants)
        self.accepted = 0

    def take(self, data):
        begin_anew(RESPONSE)
        begin_anew(self.shuffler)
        for reader in (
            self.shuffler.shuffle,
            self.shuffler.shuffle_tallies,
            self.analyzer.decode,
            lambda data: Tally.from_worker(self.constants, data),
            RESPONSE.shuffle,
            RESPONSE.shuffle_tallies,
            RESPONSE.decode,
        ):
            try:
                reader(data)
                self.accepted += 1
            except ValueError:
                pass


def mutated(data, rng):
    data = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        place = int(rng.integers(len(data))) if data else 0
        match rng.integers(6):
            case 0 if data:
                data[place] ^= 1 << int(rng.integers(8))
            case 1 if data:
                data[place] = int(rng.choice([0, 1, 127, 128, 255]))
            case 2:
                del data[place : place + int(rng.integers(1, 9))]
            case 3:
                data[place:place] = rng.bytes(int(rng.integers(1, 9)))
            case 4:  # a header's number: kind, round, users
                start, size = [(5, 1), (14, 8), (22, 16), (30, 8)][rng.integers(4)]
                value = int(rng.choice([0, 1, 2, 3, 5, 2**31, 2**62, 2**63 - 1]))
                data[start : start + size] = (value % 256**size).to_bytes(size, "big")
            case _:
                data[place:] = bytes(rng.bytes(len(data) - place))
    return resealed(bytes(data)) if len(data) >= 4 and rng.random() < 0.8 else bytes(data)


@pytest.mark.thorough
def test_mutated_messages_raise_nothing_else_and_take_no_memory():
    rng, receivers = np.random.default_rng(1), Receivers()
    good = seeds()
    for data in good:
        receivers.take(data)
    assert receivers.accepted >= len(good)
    tracemalloc.start()
    try:
        for i in range(700):
            data = mutated(good[i % len(good)], rng)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            receivers.take(data)
            peak = tracemalloc.get_traced_memory()[1] - before
            # Python's own objects and exceptions take some kilobytes; a number of users that is believed takes more
            assert peak <= 4 * len(data) + 2**15, (peak, data.hex())
    finally:
        tracemalloc.stop()
    assert receivers.accepted > 3 * len(good), "nothing gets past the checks: the test looks at nothing"


@pytest.mark.parametrize("place", ["device", "worker", "shuffled"])
def test_large_messages_take_four_times_their_length(place):
    """Besides the sums themselves, which are 8 bytes for each of the protocol's coordinates, whatever is sent."""
    constants = SumProtocol(10**6, 1, 1.0, resolution=300, noise_bits=100, cost=PureDP(1.0), rounds=10**6)
    receivers = Receivers(constants)
    zero = Tally(constants, 1, np.zeros(10**6, dtype=np.int64))
    kind = wire.Kind[place.upper()]
    good = zero.to_bytes(kind=kind)
    forged = [good[:22] + users.to_bytes(16, "big") + good[38:] for users in (2, 2**30, 2**60, 2**127)]
    longer = [good[:38] + good[38:-4] * 2 + good[-4:], good[:-100], good[:38] + b"\xff" * (len(good) - 42) + good[-4:]]
    rng = np.random.default_rng(0)
    reader = {
        "device": receivers.shuffler.shuffle,
        "worker": lambda data: Tally.from_worker(constants, data),
        "shuffled": receivers.analyzer.decode,
    }[place]
    tracemalloc.start()
    try:
        for data in [good, *map(resealed, [*forged, *longer]), *(mutated(good, rng) for _ in range(10))]:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                result = reader(data)
            except ValueError:
                result = None
            peak = tracemalloc.get_traced_memory()[1] - before
            del result
            # a sum and, for its estimate or its bytes, one more; or the sum and its block of messages
            assert peak <= 4 * len(data) + 3 * 8 * 10**6 + 2**19
    finally:
        tracemalloc.stop()


HARNESS = """
import sys
import atheris

with atheris.instrument_imports(include=["dpkit.shuffle"]):
    import dpkit.shuffle
sys.path.insert(0, {folder!r})
import test_shuffle_fuzz as fuzz

receivers = fuzz.Receivers()


def one(data):
    receivers.take(data)
    if len(data) >= 4:
        receivers.take(fuzz.resealed(data))


atheris.Setup(sys.argv, one)
atheris.Fuzz()
"""


@pytest.mark.slow
def test_a_guided_search_finds_nothing_else(tmp_path):
    pytest.importorskip("atheris", reason="the search for messages is guided by the package atheris")
    seconds = int(os.environ.get("DPKIT_FUZZ_SECONDS", "20"))
    corpus = Path(os.environ.get("DPKIT_FUZZ_CORPUS", tmp_path / "corpus"))
    corpus.mkdir(parents=True, exist_ok=True)
    for i, data in enumerate(seeds()):
        (corpus / f"seed{i}").write_bytes(data)
    script = tmp_path / "harness.py"
    script.write_text(HARNESS.format(folder=str(Path(__file__).parent)), encoding="utf-8")
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, script, f"-max_total_time={seconds}", "-rss_limit_mb=1000", "-max_len=4096", corpus],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "tests" / "support")])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=seconds + 300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(list(corpus.iterdir())) > len(seeds()), "the corpus did not grow: nothing was found to be new"
