"""The secure source: its law, and that nothing of it can be repeated, saved or drawn from elsewhere."""

import copy
import os
import pickle
import threading

import numpy as np
import pytest
from scipy import stats

from dpkit import randomness
from dpkit.randomness import generator, variates
from dpkit.randomness.pool import POOL

SECURE = randomness.secure()


# ------------------------------------------------------------------------------------------------ its laws

# The laws are tested on the secure transformations driven by seeded words, so that a passing test always passes. A
# Kolmogorov–Smirnov p-value below 1e-10 fails: that is the false-alarm rate under reseeding.
ALARM = 1e-10
COUNT = 80_000


def seeded_words(seed):
    generator = np.random.default_rng(seed)
    return lambda count: generator.integers(0, 2**64, size=count, dtype=np.uint64)


def filled(fill, seed=1, count=COUNT):
    out = np.empty(count)
    fill(out, seeded_words(seed))
    return out


@pytest.mark.parametrize(
    ("fill", "law"),
    [
        (variates.normals, stats.norm()),
        (variates.exponentials, stats.expon()),
        (variates.uniforms, stats.uniform()),
    ],
    ids=["normal", "exponential", "uniform"],
)
def test_variates_have_their_law_and_no_other_scale(fill, law):
    x = filled(fill)
    assert stats.kstest(x, law.cdf, method="asymp").pvalue > ALARM
    for wrong in (0.9, 1.1):
        assert stats.kstest(wrong * x, law.cdf, method="asymp").pvalue < ALARM


def test_normal_tails_beyond_the_base_layer_have_their_law():
    x = filled(variates.normals, count=4_000_000)
    edge = 3.6541528853610088
    beyond = np.abs(x[np.abs(x) > edge])
    # P(|Z| > edge) = 2.58e-4: 1,032 expected, Poisson deviations of 6.5 standard deviations are rarer than 1e-10
    expected = 4e6 * 2 * stats.norm.sf(edge)
    assert abs(len(beyond) - expected) < 6.5 * np.sqrt(expected)
    assert stats.kstest(beyond, lambda z: 1 - stats.norm.sf(z) / stats.norm.sf(edge)).pvalue > ALARM
    assert abs(np.count_nonzero(x > 0) / len(x) - 0.5) < 6.5 * 0.5 / np.sqrt(len(x))


@pytest.mark.parametrize("shape", [0.05, 0.5, 1.0, 1.1, 40.0])
def test_gamma_variates_have_their_law(shape):
    x = variates.gammas(np.full(COUNT // 2, shape), seeded_words(3))
    assert stats.kstest(x, stats.gamma(shape).cdf, method="asymp").pvalue > ALARM
    assert stats.kstest(x, stats.gamma(shape * 1.1).cdf, method="asymp").pvalue < ALARM


@pytest.mark.parametrize("size", [None, 1, 7, 231, 5000, 20_000, (3, 4), (2, 0)])
def test_methods_return_the_shapes_of_numpy(size):
    peer = np.random.default_rng(0)
    for name in ("random", "standard_normal", "standard_exponential"):
        assert np.shape(getattr(SECURE, name)(size)) == np.shape(getattr(peer, name)(size))
    for name in ("normal", "laplace", "gumbel", "uniform"):
        assert np.shape(getattr(SECURE, name)(0.0, 2.0, size)) == np.shape(getattr(peer, name)(0.0, 2.0, size))
    assert np.shape(SECURE.integers(5, size=size)) == np.shape(peer.integers(5, size=size))
    assert np.shape(SECURE.standard_gamma(2.0, size)) == np.shape(peer.standard_gamma(2.0, size))
    assert SECURE.normal([0.0, 1.0], [[1.0], [2.0]]).shape == (2, 2)


def test_draws_through_the_generator_have_their_laws():
    # unseeded by nature: a false alarm has probability 1e-10 for each of the laws
    n = 50_000
    laws = {
        "normal": stats.norm(1.0, 2.0),
        "laplace": stats.laplace(1.0, 2.0),
        "gumbel": stats.gumbel_r(1.0, 2.0),
    }
    for name, law in laws.items():
        small = np.concatenate([getattr(SECURE, name)(1.0, 2.0, 50) for _ in range(n // 50)])
        for x in (small, getattr(SECURE, name)(1.0, 2.0, n)):
            assert stats.kstest(x, law.cdf, method="asymp").pvalue > ALARM, name
    assert stats.kstest(SECURE.exponential(3.0, n), stats.expon(scale=3.0).cdf, method="asymp").pvalue > ALARM
    assert stats.kstest(SECURE.uniform(-1.0, 3.0, n), stats.uniform(-1.0, 4.0).cdf, method="asymp").pvalue > ALARM


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 8), (-3, 4), (0, 10), (-(2**63), 2**63 - 1)])
def test_integers_are_uniform_on_their_range(low, high):
    x = SECURE.integers(low, high, size=60_000)
    assert x.dtype == np.int64
    assert x.min() >= low
    assert x.max() < high
    bins = min(high - low, 10)
    counts = np.bincount(((x.astype(object) - low) * bins // (high - low)).astype(int), minlength=bins)
    if bins > 1:
        assert stats.chisquare(counts).pvalue > ALARM


def test_integers_follow_numpy_in_types_and_bounds():
    assert SECURE.integers(0, 2**64 - 1, size=3, dtype=np.uint64, endpoint=True).dtype == np.uint64
    assert SECURE.integers(0, 2, size=4, dtype=bool).dtype == bool
    assert set(SECURE.integers(-1, 1, size=200, dtype=np.int8, endpoint=True)) == {-1, 0, 1}
    assert isinstance(SECURE.integers(3), int)
    for low, high, dtype in ((5, 5, np.int64), (0, 300, np.uint8), (-1, 2, np.uint8), (0, 3, bool)):
        with pytest.raises(ValueError, match="low and high must bound a nonempty range"):
            SECURE.integers(low, high, dtype=dtype)


def test_permutations_are_uniform():
    draws = [tuple(SECURE.permutation(3)) for _ in range(6_000)]
    counts = [draws.count(order) for order in sorted(set(draws))]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > ALARM
    rows = np.arange(12).reshape(4, 3)
    assert sorted(map(tuple, SECURE.permutation(rows))) == sorted(map(tuple, rows))
    assert set(SECURE.choice(np.array([3.0, 5.0]), 100)) == {3.0, 5.0}


# ----------------------------------------------------------------------------- nothing repeats, nothing leaks


def test_no_value_is_handed_out_twice():
    for draw in (SECURE.random, SECURE.standard_normal, SECURE.standard_exponential):
        x = np.concatenate([draw(size) for size in (1, 10, 5000, 16_383, 16_384, 16_385, 3)])
        # two of 54,000 uniform multiples of 2⁻⁵³ are equal with a probability below 1e-6, three pairs below 1e-18
        assert len(np.unique(x)) >= len(x) - 2
    assert len({SECURE.bytes(16) for _ in range(1000)}) == 1000


def test_used_values_are_wiped():
    source = generator.SecureGenerator()
    handed_out = source.standard_normal(100)
    pool = source._normal
    assert np.all(pool._values[: pool._next] == 0)
    assert not np.isin(handed_out, pool._values).any()
    source._renew()
    assert not pool._values.any()
    assert source._normal is not pool


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("hooks", [True, False], ids=["with Python's hooks", "without"])
def test_a_forked_child_draws_other_values(hooks):
    source = generator.SecureGenerator()
    source.random(10)  # something is drawn ahead
    source.bytes(8)
    inherited = dict(vars(source))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if not hooks:  # as if only the process id had told
                source.__dict__.update(inherited)
            os.write(write, source.random(4).tobytes() + source.bytes(32))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(read, 64)
    os.close(read)
    os.close(write)
    ours = source.random(4).tobytes() + source.bytes(32)
    assert len(theirs) == 64
    assert theirs[:8] != ours[:8]
    assert theirs[32:] != ours[32:]


def test_a_signal_handler_may_draw_in_the_middle_of_a_draw():
    """It neither waits for ever, nor overwrites what is being handed out."""
    source = generator.SecureGenerator()
    source.random(POOL - 10)  # ten are left in the pool
    pool, within = source._uniform, []
    fill = pool._fill

    def interrupted(out):
        if not within:
            within.append(None)
            within[0] = source.random(POOL - 1)
        fill(out)

    pool._fill = interrupted
    drawn = source.random(20)
    later = source.random(100)
    everything = np.concatenate([drawn, within[0], later])
    # of 16,503 uniform multiples of 2⁻⁵³ two are equal with probability 2e-8, two pairs with probability below 1e-15
    assert len(np.unique(everything)) >= len(everything) - 1


def test_threads_never_share_a_value():
    drawn = [[] for _ in range(8)]

    def work(out):
        for _ in range(300):
            out.append(SECURE.random(97))

    threads = [threading.Thread(target=work, args=(out,)) for out in drawn]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    x = np.concatenate([value for out in drawn for value in out])
    # of 232,800 uniform multiples of 2⁻⁵³ two are equal with probability 3e-6, four pairs with probability below 1e-22
    assert len(np.unique(x)) >= len(x) - 3


@pytest.mark.parametrize("save", [pickle.dumps, copy.copy, copy.deepcopy, lambda g: g.__getstate__()])
def test_it_cannot_be_saved(save):
    with pytest.raises(TypeError, match="cannot be copied, pickled or saved"):
        save(SECURE)


def test_what_is_not_implemented_refuses():
    offered = {
        *("bytes", "random", "uniform", "integers", "permutation", "choice", "spawn"),
        *("standard_normal", "normal", "standard_exponential", "exponential"),
        *("laplace", "gumbel", "standard_gamma"),
    }
    methods = {name for name in dir(np.random.Generator) if not name.startswith("_")} - {"bit_generator"}
    for name in methods - offered:
        with pytest.raises(NotImplementedError, match=name):
            getattr(SECURE, name)(1)
    with pytest.raises(NotImplementedError, match="no bit_generator"):
        _ = SECURE.bit_generator
    assert all(not randomness.is_simulation(child) for child in SECURE.spawn(2))


def test_bad_requests_are_refused():
    with pytest.raises(TypeError, match="dtype must be float64"):
        SECURE.standard_normal(3, dtype=np.float32)
    with pytest.raises(TypeError, match="out must be"):
        SECURE.standard_normal(out=np.empty((4, 4))[:, 0])
    with pytest.raises(ValueError, match="size must match out"):
        SECURE.standard_normal(3, out=np.empty(4))
    with pytest.raises(ValueError, match="scale must be nonnegative"):
        SECURE.laplace(0.0, -1.0)
    with pytest.raises(ValueError, match="size must cover the parameters"):
        SECURE.normal([0.0, 1.0], 1.0, size=3)
    with pytest.raises(ValueError, match="shape must be positive and finite"):
        SECURE.standard_gamma([1.0, 0.0])


def test_out_is_filled_in_place():
    out = np.zeros((3, 5))
    assert SECURE.standard_normal(out=out) is out
    assert np.all(out != 0)


def test_bytes_come_from_the_kernel_where_python_has_no_openssl(monkeypatch):
    import builtins

    imports = builtins.__import__

    def without_ssl(name, *args, **kwargs):
        if name == "ssl":
            raise ImportError(name)
        return imports(name, *args, **kwargs)

    asked = []
    monkeypatch.setattr(builtins, "__import__", without_ssl)
    monkeypatch.setattr(os, "urandom", lambda count: asked.append(count) or bytes(count))
    assert generator.random_bytes(5) == bytes(5)
    assert asked == [5]


# ---------------------------------------------------------------------------------------------- rng= arguments


def test_more_bytes_than_openssl_gives_at_once_are_asked_for_in_parts(monkeypatch):
    asked = []
    monkeypatch.setattr("ssl.RAND_bytes", lambda count: asked.append(count) or b"")
    generator.random_bytes(2**32 + 5)
    assert sum(asked) == 2**32 + 5
    assert max(asked) < 2**31


def test_none_is_secure_and_a_seed_is_a_simulation():
    seeded = np.random.default_rng(0)
    assert randomness.resolve(None) is randomness.secure()
    assert not randomness.is_simulation(randomness.resolve(None))
    assert randomness.resolve(seeded) is seeded
    assert randomness.is_simulation(seeded)
    for wrong in (0, "secure", np.random.RandomState(0)):
        with pytest.raises(TypeError, match="rng must be"):
            randomness.resolve(wrong)
