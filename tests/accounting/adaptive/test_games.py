"""All adaptive games, by brute force: one round of every family against laws written out, and games of a few rounds."""

import itertools
import math

import numpy as np
import pytest

from accounting.adaptive.choices import rare_choices, scores_below
from accounting.adaptive.choices.coins import CoinKind
from accounting.adaptive.choices.every_coin import EveryCoin, PlayedPair
from accounting.adaptive.choices.scores_below import GamePair, Play
from accounting.adaptive.engine import Board, Circle, Sparse, play, start
from accounting.adaptive.fixed_batches import pure_batches
from accounting.adaptive.fixed_batches.gaussian_batches import ReplacedSteps
from accounting.adaptive.fixed_batches.integer_batches import ReplacedIntegers
from accounting.adaptive.fixed_batches.maxima_batches import ReplacedMaxima, ThreeCoins
from accounting.adaptive.fixed_batches.pure_batches import ReplacedCoins
from accounting.loss.integers import IntegerPair
from accounting.loss.replaced_noise import triangle_masses

TAIL = 1e-15


def law(p, q):
    """Losses, and what P has of them."""
    return np.log(p / q), p


# ---------------------------------------------------------------------------------------------- laws written out


def coins(kind, count):
    """Two losses are ``span`` apart; on a sample e^L − 1 is ``rate`` times that, or the neighbours change places."""
    t = np.linspace(*kind.ends, count)
    chance = np.expm1(t - kind.span) / math.expm1(-kind.span)
    with_unit, without = np.array([chance, 1 - chance]), np.array([np.exp(-t) * chance, 1 - np.exp(-t) * chance])
    with_unit = kind.rate * with_unit + (1 - kind.rate) * without
    some = (with_unit > 0).all(axis=0) & (without > 0).all(axis=0)
    p, q = (with_unit, without) if kind.present else (without, with_unit)
    return [law(a, b) for a, b in zip(p.T[some], q.T[some], strict=True)]


def steps(triples, rate):
    """P = (1 − q)R + qS and Q = (1 − q)R + qS′, and where S and S′ have changed places."""
    return [
        law((1 - rate) * absent + rate * a, (1 - rate) * absent + rate * b)
        for absent, one, other in triples
        for a, b in ((one, other), (other, one))
    ]


def responses(eps, response):
    """R, S and S′ of pure releases: any laws within a factor, responses to k values, or messages of three bits."""
    a = math.exp(eps)
    if response is None:
        rows = [(a, 1), (1, a), (a, 1)], [(a, 1, 1), (1, a, 1), (1, 1, a)], [(1, a, a), (a, 1, a), (a, a, 1)]
    elif isinstance(response, int):
        one, other, third = (np.where(np.arange(response) == i, a, 1.0) for i in range(3))
        rows = [(one, other, one)] + ([(one, other, third)] if response > 2 else [])
    else:
        own, others = (1.0, 1 / a) if response == "optimized" else (math.sqrt(a), 1 / math.sqrt(a))
        bits = np.array(list(itertools.product((0, 1), repeat=3)))
        one, other, third = (np.prod(np.where(odds, own, others) ** bits, axis=1) for odds in np.eye(3, dtype=bool))
        rows = [(one, other, one), (one, other, third)]
    return [[np.array(laws) / np.sum(laws) for laws in row] for row in rows]


def two_scores(eps):
    """R, S and S′ of the largest of two noisy scores, one of which leads by less after: R is S′, or S."""
    leads = np.concatenate([eps * np.linspace(-0.2, 1.2, 15), np.linspace(-9.0, 9.0, 37)])
    pairs = [[np.array([x, 1 - x]) for x in 1 / (1 + np.exp([-lead, eps - lead]))] for lead in leads]
    return [(q, p, q) for p, q in pairs]


# ------------------------------------------------------------------------------------------------------ one round


def value_of(board, x, values):
    """V̂, linear in e^x between the points and continued as the engine says."""

    def value(z):
        if board.symmetric:
            at, below = np.abs(z), z < 0
            inside = np.interp(np.expm1(at), np.expm1(x), values)
            inside = np.where(at > x[-1], 0.0 if board.lower else values[-1], inside)
            return np.where(below, -np.expm1(-at) + np.exp(-at) * inside, inside)
        y, known = np.exp(np.concatenate([[-700.0], x])), np.concatenate([[1.0], values])
        if board.lower:
            y, known = np.exp(x), values
        return np.where(z > x[-1], 0.0 if board.lower else values[-1], np.interp(np.exp(z), y, known))

    return value


def everything(kind):
    step = kind.width / 11.3
    x = step * np.arange(-60, 90, dtype=np.float64)
    return EveryCoin(kind, step, x.size), Board(step), x, 0.0, coins(kind, 4001)


def rare(kind, below, above):
    """On a grid shorter than its losses, so that much is decided beyond both ends."""
    plan = rare_choices._plan(kind, 1000, math.log(1e-6))
    reach = sum(float(np.max(losses)) for losses in kind.losses(np.linspace(*kind.ends, 9))) / plan.step
    z = plan.step * np.arange(-math.ceil(below * reach), math.ceil(above * reach) + 1)
    return rare_choices.RareCoins(kind, plan), Board(plan.step), z, plan.drift, coins(kind, 401)


def scores(play):
    step = scores_below._step((play,), 1.0)
    low, high = scores_below._rounded(scores_below._coins_of(play), step)
    kind, board = CoinKind(play.epsilon, 0.0, play.rate, play.present), Board(step, lower=True)
    x = step * np.arange(-300, 300, dtype=np.float64)
    return Sparse(board, scores_below._laws(low, high, 1, step), 1e-13), board, x, 0.0, coins(kind, 2001)


def pure(eps, response, rate):
    large, small = pure_batches._losses(eps, rate)
    step = large / 20
    options = pure_batches._on_grid(pure_batches._options(eps, response, rate), small, step, 20)
    board = Board(step, symmetric=True)
    return Sparse(board, options, 1e-14), board, step * np.arange(60.0), 0.0, steps(responses(eps, response), rate)


def maxima(eps, rate):
    highest = math.log1p(rate * math.expm1(eps))
    step, board = highest / 60, Board(highest / 60, symmetric=True)
    family = ThreeCoins(CoinKind(eps), rate, step, 61, 100)
    return family, board, step * np.arange(200.0), 0.0, steps(two_scores(eps), rate)


def circle(lower):
    board, nodes = Board(0.05, symmetric=True, lower=lower), 0.05 * np.arange(-3, 4)
    p = np.array([0.1, 0.2, 0.15, 0.1, 0.15, 0.1, 0.2])
    q = p * np.exp(-nodes) / np.sum(p * np.exp(-nodes))
    masses = np.array([p, q[::-1]])  # of finite measures, as cells may be
    laws = [(nodes, mass) for mass in masses]
    return Circle(board, masses * np.exp(2.0 * nodes), 2.0, 80), board, 0.05 * np.arange(81.0), 0.0, laws


KINDS = [
    CoinKind(3.0), CoinKind(1e-7), CoinKind(0.6, 0.1), CoinKind(0.8, 0.0, 0.1, False), CoinKind(6.0, 0.0, 0.02),
]  # fmt: skip
RARE, ENDS = [CoinKind(6.0, 0.0, 0.01), CoinKind(5.0, 0.0, 0.02, False)], [(0.33, 0.33), (0.02, 0.5), (0.5, 0.02)]
FAMILIES = {
    **{f"every {kind}": (everything, kind) for kind in KINDS},
    **{f"rare {kind} {ends}": (rare, kind, *ends) for kind in RARE for ends in ENDS},
    **{f"scores {one}": (scores, one) for one in (Play("gumbel", 0.4, 20), Play("gumbel", 2.0, 20, 0.2))},
    **{f"pure {eps} {of}": (pure, eps, of, 0.2) for eps in (0.3, 2.0) for of in (None, 2, 4, "optimized", "symmetric")},
    "maxima weak": (maxima, 0.1, 0.3),
    "maxima": (maxima, 1.0, 0.05),
    "maxima strong": (maxima, 6.0, 0.01),
    "circle": (circle, False),
    "circle below": (circle, True),
}
# How much more than the best law a round may be, or less from below, relative and absolute: by the grid, or as the
# first rounds of batches of maxima, of which three coins are looked at one by one.
WIDE = {
    "every": (2e-4, 1e-16),
    "rare": (0.05, 1e-12),
    "pure": (5e-3, 1e-12),
    "maxima": (0.03, 1e-4),
    "scores": (0.1, 1e-4),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_one_round_is_on_the_safe_side_of_every_law_and_near_the_best(name):
    make, *of = FAMILIES[name]
    family, board, x, drift, laws = make(*of)
    relative, absolute = WIDE.get(name.split()[0], (1e-9, 1e-14))
    # coins that are rounded stay on the board longer
    some = slice(100, -100, 7) if name.startswith("scores") else slice(0, None, 7)
    values = start(x)
    for played in range(7):
        after = family.best(values)
        if played in (0, 1, 6):
            value, place = value_of(board, x, values), (x[some] - drift)[:, None]
            best = np.max([value(place - loss) @ p for loss, p in laws], axis=0)
            best = best if drift else np.maximum(best, values[some])
            more = (best - after[some]) if board.lower else (after[some] - best)
            assert np.all(more >= -1e-11 * best - 1e-15)
            assert np.all(more <= relative * best + absolute) or ("maxima" in name and played)
        values = after


# -------------------------------------------------------------------------------------------------- whole games


def exact(x, laws, count):
    """V of ``count`` rounds, by its definition."""
    if count == 0:
        return start(x)
    return np.max([exact(x[..., None] - losses, laws, count - 1) @ p for losses, p in laws], axis=0)


def batches(eps, response, rate):
    above, below = (ReplacedCoins(eps, response, rate, 3, TAIL, from_below=side) for side in (False, True))
    return above, below, steps(responses(eps, response), rate), 3, math.log1p(rate * math.expm1(eps)), (2e-3, 1e-12)


def choices(kind, count, number, wide):
    eps, rate = kind.span - kind.least, kind.rate
    below = None if kind.least else GamePair((Play("gumbel", eps, count, rate, kind.present),))
    return PlayedPair(((kind, count),)), below, coins(kind, number), count, kind.highest, (wide, 1e-4 * kind.highest)


def maxima_twice(eps, rate):
    above = ReplacedMaxima(CoinKind(eps), rate, 2, 1e-12)
    return above, None, steps(two_scores(eps), rate), 2, math.log1p(rate * math.expm1(eps)), (math.inf, 0.0)


def integers(kind, z, shift, rate=0.2):
    """All triples of integers."""
    x = np.arange(-60, 61.0)
    noise = {at: np.exp(-(((x - at) / z / shift) ** 2) / 2 if kind == "gaussian" else -np.abs(x - at) / z / shift)
             for at in range(-shift, shift + 1)}  # fmt: skip
    laws = [one / one.sum() for one in noise.values()]
    near = itertools.product(laws, range(2 * shift + 1), range(2 * shift + 1))
    triples = [(laws[shift], laws[i], laws[j]) for i, j in {(i, j) for _, i, j in near if abs(i - j) <= shift}]
    both = [(1 - rate) * r + rate * np.array([a, b]) for r, a, b in triples]
    return ReplacedIntegers(IntegerPair(kind, z, shift), rate, 2, TAIL), None, kept(both), 2, 0.6, (0.0, 4e-4)


def normal(mu, rate):
    """Triangles and their mirror images."""
    losses = np.concatenate([-np.geomspace(20.0, 1e-3, 80), [0.0], np.geomspace(1e-3, 20.0, 80)])
    both = [triangle_masses(mu, share, rate, losses) for share in (0.0, 0.3, 0.8, 1.0)]
    above, below = (ReplacedSteps(mu, rate, 2, TAIL, from_below=side) for side in (False, True))
    return above, below, kept([*both, *((q[::-1], p[::-1]) for p, q in both)]), 2, 1.5 * mu * rate, (0.05, 1e-2 * rate)


def kept(both):
    return [law(p[some], q[some]) for p, q in both if (some := (p > 1e-14) & (q > 1e-14)).any()]


GAMES = [
    *(
        (batches, eps, of, rate)
        for of in (None, 2, 5, "optimized", "symmetric")
        for eps, rate in ((0.3, 0.6), (3.0, 0.02))
    ),
    *((choices, kind, 2, 60, 0.01) for kind in (CoinKind(2.0), CoinKind(0.8, 0.0, 0.2, False))),
    (choices, CoinKind(0.8, 0.0, 0.2), 2, 60, 0.01),
    (choices, CoinKind(1.6, 0.6), 2, 60, 0.01),
    (choices, CoinKind(1.0), 3, 16, 0.02),
    (maxima_twice, 2.0, 0.7),
    *((integers, *of) for of in (("gaussian", 0.8, 1), ("gaussian", 0.7, 3), ("laplace", 0.6, 3))),
    *((normal, *of) for of in ((1.0, 0.1), (0.5, 0.5))),
]


@pytest.mark.parametrize("game", GAMES, ids=lambda game: " ".join(map(str, game[1:])))
def test_a_game_of_a_few_rounds_is_known_from_both_sides(game):
    make, *of = game
    above, below, laws, count, highest, (relative, absolute) = make(*of)
    for share in (-0.5, 0.0, 0.2, 0.9, 1.6):
        value, found = float(exact(np.array(share * highest), laws, count)), above.delta(share * highest)
        assert value * (1 - 1e-12) - 1e-13 <= found <= value * (1 + relative + 2e-3) + absolute
        if below is not None:
            # a grid of coins is a player, too
            least = below.delta(share * highest)
            assert value * (1 - relative) - absolute - 1e-4 * highest <= least <= found * (1 + 1e-12)


def test_the_player_takes_what_comes_next_by_what_was_seen():
    """Three rounds of one family and two of another, against all orders in which they may be taken."""
    board, x = Board(0.1), 0.1 * np.arange(-60, 61)
    laws = [[(np.array([0.3, -0.2]), np.array([a, 1 - a]))] for a in (0.4, 0.6)]
    one, other = (Sparse(board, [[(3, p[0]), (-2, p[1])] for _, p in law], 0.0) for law in laws)
    orders = []
    for order in set(itertools.permutations([one] * 3 + [other] * 2)):
        values = start(x)
        for family in order:
            values = family.best(values)
        orders.append(values)
    found = play([(one, 3), (other, 2)], start(x))
    assert np.all(found >= np.max(orders, axis=0))
    assert play([(one, 3)], start(x)) == pytest.approx(one.best(one.best(one.best(start(x)))))
