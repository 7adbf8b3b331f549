"""Exact sums of clipped gradients: what a row can move, as a real number, whichever pieces its gradient comes in."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

torch = pytest.importorskip("torch")

from dpkit.torch.exact_sums import Picked, Products, Whole, clipped_totals, lattice  # noqa: E402
from dpkit.training.whole_rows import BITS, grid  # noqa: E402

numbers = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(-10, 10),
    st.sampled_from([5e-324, 1e-160, 1e160, 1.7976931348623157e308]),
)
SHAPES = [
    (5,),
    (1, 3),
    (1, 2),
    (3, 3),
    (3, 2),
    (3, 2),
]  # of each row's: whole, products of one and three places, picked


def batch(of=numbers):
    return st.integers(1, 4).flatmap(
        lambda n: st.tuples(*(arrays(np.float64, (n, *shape), elements=of) for shape in SHAPES))
    )


def pieces(whole, a, b, A, B, lines):
    n = len(whole)
    whole, a, b, A, B, lines = (torch.from_numpy(np.array(v)) for v in (whole, a, b, A, B, lines))
    picked = torch.tensor([[0, 2, 0]]).repeat(n, 1)
    return [
        Whole([whole[:, :2], whole[:, 2:]]),
        Products(n, 1, lambda some: a[some], lambda some: b[some], offset=True, widths=(3, 2), shape=(2, 3)),
        Products(n, 3, lambda some: A[some], lambda some: B[some], offset=False, widths=(3, 2), shape=(2, 3)),
        Picked(picked, lines, 4),
    ]


def sums_of(pieces, on):
    totals, count = clipped_totals(pieces, on)
    return [each() for each in totals], count


def flat(totals):
    return np.concatenate([t.numpy().ravel() for piece in totals for t in piece])


@pytest.mark.thorough
@settings(max_examples=40, deadline=None)
@given(batch(), st.floats(1e-100, 1e100))
@example([np.full((2, *shape), 1e308) for shape in SHAPES], 1.0)
@example([np.ones((1, *shape)) for shape in SHAPES], 1.0)
@example([np.zeros((1, *shape)) for shape in SHAPES], 1.0)
def test_a_row_moves_a_sum_by_the_clip_norm_at_most_and_no_other_row(values, clip):
    on = lattice(clip, 20)
    unit = Fraction(on.unit) / 2**BITS
    totals, count = sums_of(pieces(*values), on)
    single = [sums_of(pieces(*(v[[i]] for v in values)), on) for i in range(len(values[0]))]
    for row, _ in single:
        assert sum(int(v) ** 2 for v in flat(row)) * unit**2 <= Fraction(on.clip) ** 2
    assert np.array_equal(flat(totals), sum(flat(row) for row, _ in single))
    assert int(count) == sum(int(cut) for _, cut in single)


@settings(max_examples=30, deadline=None)
@given(batch(st.floats(-3, 3)))
def test_pieces_are_the_gradients_that_they_stand_for(values):
    whole, a, b, A, B, lines = values
    on = lattice(1.0, 20)
    totals, _ = sums_of(pieces(*values), on)
    expected = 0.0
    for i in range(len(whole)):
        ones = np.append(a[i, 0], 1.0)
        outer = np.outer(b[i, 0], ones)
        table = np.zeros((4, 2))
        np.add.at(table, [0, 2, 0], lines[i])
        parts = [whole[i], outer[:, :3].ravel(), outer[:, 3], (B[i].T @ A[i]).ravel(), table.ravel()]
        row = np.concatenate(parts)
        expected = expected + row * min(1.0, 1.0 / max(np.linalg.norm(row), 1e-300))
    assert np.allclose(on.values(flat(totals)), expected, atol=len(whole) * 1e-3)


def test_gradients_that_cancel_over_their_places_are_short_and_stay_within_the_clip():
    """A and B are a million times as long as BᵀA: how long the gradient is must not be told from their lengths."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(1, 2, 4))
    A[:, 1] = A[:, 0] * (1 + 1e-7)
    B = rng.normal(size=(1, 2, 3)) * 1e3
    B[:, 1] = -B[:, 0]
    on = lattice(1.0, 12)
    for scale in (1.0, 1e6, 1e12):
        a, b = torch.from_numpy(A), torch.from_numpy(B * scale)
        piece = Products(1, 2, lambda _, a=a: a, lambda _, b=b: b, offset=False, widths=(4, 3), shape=(3, 4))
        ((total,),), _ = sums_of([piece], on)
        length = math.sqrt(sum(int(v) ** 2 for v in total.ravel())) * on.unit / 2**BITS
        assert length <= 1.0


@pytest.mark.parametrize("clip", [1.0, 0.3, 1e-3])
@pytest.mark.parametrize("places", [1, 4])
def test_what_is_rounded_moves_by_the_clip_norm_at_most(clip, places):
    """Products as wide as these lose √P last digits to rounding; a row that is cut uses nearly all the length."""
    rng = np.random.default_rng(places)
    on = lattice(clip, 40 * 30)
    a, b = (torch.from_numpy(rng.normal(size=(6, places, k))) for k in (40, 30))

    def total(first):
        piece = Products(
            6 - first, places, lambda some: a[first:][some], lambda some: b[first:][some], offset=False,
            widths=(40, 30), shape=(30, 40),
        )  # fmt: skip
        return on.values(flat(sums_of([piece], on)[0]))

    difference = [Fraction(float(v)) for v in total(0) - total(1)]
    length = math.sqrt(sum(v * v for v in difference) / Fraction(clip) ** 2)
    assert 1 - 1e-3 < length <= 1.0


def test_many_rows_are_summed_in_parts_that_stay_exact():
    rng = np.random.default_rng(0)
    a, b = (torch.from_numpy(rng.normal(size=(2500, 2, k))) for k in (3, 2))

    def total(rows):
        piece = Products(
            len(a[rows]), 2, lambda some: a[rows][some], lambda some: b[rows][some], offset=False, widths=(3, 2),
            shape=(2, 3),
        )  # fmt: skip
        return flat(sums_of([piece], lattice(0.1, 6))[0])

    parts = [slice(0, 700), slice(700, 1900), slice(1900, None)]
    assert np.array_equal(total(slice(None)), sum(map(total, parts)))


def test_a_model_too_large_for_exact_sums_is_refused():
    with pytest.raises(ValueError, match="fewer parameters"):
        lattice(1.0, 2**52)
    assert lattice(1.0, 10**9).clip > 0.999
    assert lattice(1.0).unit == grid(1.0, BITS)[0]
