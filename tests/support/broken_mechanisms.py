"""Mechanisms that are known to be less private than they say, each next to its sound twin.

They exist to be caught: an audit that cannot fail shows nothing. All are batched, ``mechanism(data, trials)``, except
for the parameters that come first.
"""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def generalized_gaussian(
    center: ArrayLike, trials: int, *, sigma: float, order: float, literal: bool, rng: np.random.Generator
) -> Array:
    """Noise of density ∝ exp(−‖z‖²/(2σ²)) in the norm of ``order``, or what Algorithm 4 of Han et al. prints.

    Han, Liang, Liang, Wang, Yao & Zhang, "On Private Online Convex Optimization": the squared radius is drawn from
    Gamma(d/2, 2σ) there; the density asks for Gamma(d/2, 2σ²).
    """
    center = np.asarray(center, dtype=np.float64)
    d = len(center)
    squared_radius = rng.gamma(d / 2, 2 * sigma if literal else 2 * sigma**2, (trials, 1))
    x = rng.gamma(1 / order, 1.0, (trials, d)) ** (1 / order) * rng.choice([-1.0, 1.0], (trials, d))
    return np.asarray(center + np.sqrt(squared_radius) * x / np.linalg.norm(x, ord=order, axis=1, keepdims=True))


class SparseVector:
    """The sparse vector technique in the forms that Lyu, Su & Li (2017, Figure 1) compare; sensitivity 1, threshold 0.

    Outputs have one column per query: 1 above, 0 below, −1 not asked any more (after ``cutoff`` answers above).
    """

    def __init__(
        self,
        threshold_scale: float,
        query_scale: float,
        *,
        cutoff: int | None,
        rng: np.random.Generator,
        answer_scale: float | None = None,
        reuse: bool = False,
    ) -> None:
        self.threshold_scale, self.query_scale, self.cutoff = threshold_scale, query_scale, cutoff
        self.answer_scale, self.reuse, self.rng = answer_scale, reuse, rng

    def __call__(self, queries: ArrayLike, trials: int) -> Array:
        queries = np.asarray(queries, dtype=np.float64)
        rng = self.rng
        noisy = queries + (
            rng.laplace(scale=self.query_scale, size=(trials, len(queries))) if self.query_scale else 0.0
        )
        noisy = np.broadcast_to(noisy, (trials, len(queries)))
        above = noisy >= rng.laplace(scale=self.threshold_scale, size=(trials, 1))
        flags = above.astype(np.float64)
        if self.cutoff is not None:
            flags[np.cumsum(above, axis=1) - above >= self.cutoff] = -1.0
        if self.reuse:
            answers = noisy
        elif self.answer_scale is not None:
            answers = queries + rng.laplace(scale=self.answer_scale, size=flags.shape)
        else:
            return flags
        # one more block of columns: the numbers that are published for the queries above
        return np.concatenate([flags, np.where(flags == 1.0, answers, np.inf)], axis=1)


def sound_sparse_vector(epsilon: float, cutoff: int, rng: np.random.Generator) -> SparseVector:
    """Their Algorithm 1: ε-DP."""
    return SparseVector(2 / epsilon, 4 * cutoff / epsilon, cutoff=cutoff, rng=rng)


def sound_sparse_vector_with_answers(epsilon: float, cutoff: int, rng: np.random.Generator) -> SparseVector:
    """Their Algorithm 7: fresh noise for the published numbers, ε = ε/4 + ε/4 + ε/2."""
    return SparseVector(4 / epsilon, 8 * cutoff / epsilon, cutoff=cutoff, rng=rng, answer_scale=2 * cutoff / epsilon)


def noise_published_twice(epsilon: float, cutoff: int, rng: np.random.Generator) -> SparseVector:
    """Their Algorithm 3 (lecture notes of 2011): publishes the very number that was compared."""
    return SparseVector(2 / epsilon, 2 * cutoff / epsilon, cutoff=cutoff, rng=rng, reuse=True)


def query_noise_without_cutoff_factor(epsilon: float, cutoff: int, rng: np.random.Generator) -> SparseVector:
    """Their Algorithm 4 (Lee & Clifton 2014): the noise on the queries does not grow with the cutoff."""
    return SparseVector(4 / epsilon, 4 / (3 * epsilon), cutoff=cutoff, rng=rng)


def no_query_noise(epsilon: float, rng: np.random.Generator) -> SparseVector:
    """Their Algorithm 5 (Stoddard, Chen & Machanavajjhala 2014): only the threshold is noisy."""
    return SparseVector(2 / epsilon, 0.0, cutoff=None, rng=rng)


def no_cutoff(epsilon: float, rng: np.random.Generator) -> SparseVector:
    """Their Algorithm 6 (Chen et al. 2015): answers any number of queries above."""
    return SparseVector(2 / epsilon, 2 / epsilon, cutoff=None, rng=rng)


class Tree:
    """Noisy prefix sums of one stream by a binary tree, ``trials`` independent runs at once."""

    def __init__(self, trials: int, scale: float, rng: np.random.Generator) -> None:
        self.trials, self.scale, self.rng = trials, scale, rng
        self.t, self.total = 0, 0.0
        self.noise = {0: np.zeros(trials)}  # of the prefix sums so far

    def add(self, x: float) -> Array:
        """The noisy sum of everything so far: one fresh node on top of an older prefix."""
        self.t += 1
        self.total += x
        lowest_bit = self.t & -self.t
        self.noise[self.t] = self.noise[self.t - lowest_bit] + self.rng.normal(scale=self.scale, size=self.trials)
        return self.total + self.noise[self.t]

    def state(self) -> dict[str, object]:
        """Everything that is needed to go on, the generator's state among it."""
        return copy.deepcopy({key: value for key, value in self.__dict__.items() if key != "rng"}) | {
            "generator": self.rng.bit_generator.state
        }

    def restore(self, state: dict[str, object], *, rewind: bool) -> None:
        """Go back to ``state``; the generator goes back with it (``rewind``), or goes on."""
        kept = copy.deepcopy(state)
        generator = kept.pop("generator")
        self.__dict__.update(kept)
        if rewind:
            self.rng.bit_generator.state = generator


def restored_tree(stream: ArrayLike, trials: int, *, scale: float, rewind: bool, rng: np.random.Generator) -> Array:
    """Two elements, a backup, a third; then a crash, the backup, and a fourth in the place of the third."""
    x = np.asarray(stream, dtype=np.float64)
    tree = Tree(trials, scale, rng)
    outputs = [tree.add(x[0]), tree.add(x[1])]
    backup = tree.state()
    outputs.append(tree.add(x[2]))
    tree.restore(backup, rewind=rewind)
    outputs.append(tree.add(x[3]))
    return np.stack(outputs, axis=1)


_UNIFORM_BITS = 2.0**53


def textbook_laplace(value: float, trials: int, rng: np.random.Generator) -> Array:
    """value ± ln U in floating point, scale 1."""
    uniform = 1.0 - rng.random(trials)  # multiples of 2^-53 in (0, 1]
    return value + rng.choice([-1.0, 1.0], trials) * -np.log(uniform)


def lattice_laplace(value: float, trials: int, rng: np.random.Generator, *, step: float = 2.0**-10) -> Array:
    """Discrete Laplace noise of scale 1 on a lattice that is the same for all inputs."""
    stop = -np.expm1(-step)
    noise = rng.geometric(stop, trials) - rng.geometric(stop, trials)
    return step * (np.rint(value / step) + noise)


def unreachable_from_zero(outputs: Array) -> Array:
    """1 where no uniform of 53 bits gives this output on the input 0 (Mironov 2012), else 0."""
    size = np.abs(outputs)
    nearest = np.rint(np.exp(-size) * _UNIFORM_BITS)[:, None]
    uniforms = np.clip(nearest + np.arange(-8, 9), 1.0, _UNIFORM_BITS) / _UNIFORM_BITS
    return 1.0 - np.any(-np.log(uniforms) == size[:, None], axis=1)
