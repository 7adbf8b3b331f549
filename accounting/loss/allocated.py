"""Dominating pairs of random allocation: a unit takes part in one of t steps, drawn uniformly and told to nobody.

"Balls in bins" (Chua et al. 2025, arXiv:2412.16802), "random allocation" (Feldman & Shenfeld 2025, arXiv:2502.08202,
and 2026, arXiv:2602.17284): every unit is thrown into one of the t batches of an epoch, independently of the others.

**What an epoch is.** Let the other units' steps be fixed (they are drawn independently of this one's, and divergences
are jointly convex). A step may depend on what was seen before. Given that, let lᵢ be the likelihood ratio of step i
with the unit over without it. Where the unit takes part in step j only, the likelihood ratio of all steps over those
without the unit is lⱼ, hence with it R = (1/t)Σlᵢ; and for every c > 0, with expectations without the unit,

    H_c(with, without) = E(R − c)₊,  H_c(without, with) = E(1 − cR)₊.

**Theorem.** Let the pair (A, B) dominate every step with the unit over without it, l = dA/dB and l₁, …, l_t independent
with the law of l under B. Then R* = (1/t)Σlᵢ gives bounds in both lines. *Proof.* H_c ≤ of the pairs for all c is to
say that E φ(lᵢ | before) ≤ E φ(l) for every convex φ that grows at most linearly (which is their order: φ is a mean of
such functions). Let φ be convex, and V_i(s) = E φ(s + l_{i+1} + … + l_t), convex in s. So E[V_i(s + lᵢ) | before] ≤ E
V_i(s + l) = V_{i−1}(s), and by induction from the last step on E φ(Σlᵢ) ≤ V_0(0). ∎ It is the domination that Feldman &
Shenfeld (2025) and Chua et al. (2025) prove for steps that follow each other, in terms of likelihood ratios; the pair
need not be symmetric, nor of Gaussian noise. What A has where B has nothing is met with that probability, by the one
step that the unit takes part in, and is told.

In the other order the pair dominates the steps without the unit over with it: l is dB/dA, under A.

**Many.** Both lines are expectations of convex functions of R, so whatever makes l larger in convex order makes both
larger at once, for all c: it makes a pair that dominates. Pairs that dominate compose, also adaptively (Zhu, Dong &
Wang 2022, Theorem 10), so an epoch is one more pair among others, and E epochs are E of them. A smaller l makes the
pair of a function of the output, which costs less. :mod:`accounting.loss.allocated_epochs` finds the law of R with
either.

**More participations.** Of k steps of t: t uniformly drawn steps are a partition, drawn uniformly, into k blocks of
⌊t/k⌋ steps and some more, and one step of each block; who is told the blocks sees k allocations to ⌊t/k⌋ steps each, at
the same time (Feldman & Shenfeld 2025). The same is a bound, and with t a multiple of k what is spent, where the blocks
are fixed.

**A swap.** With x in one step, or x′ instead, R is replaced by two sums over the same steps: H_c = E((1/t)Σ(lᵢ −
c·l′ᵢ))₊, where without either E φ(lᵢ) ≤ E φ(l), and the same of l′ᵢ. This is convex in the sums; of all joint laws of
two variables that one is largest, in the convex order of lᵢ + (−c·l′ᵢ), in which one rises as the other falls, and it
grows with both of them in convex order (the mean of the largest share of such a sum is the sum of theirs, and they
determine the order). So by the same induction l − c·l′ with l′ the ratio at the level 1 − u if l is that at u is the
worst, at every c; it is met by noise that is moved to either side. The steps of x and of x′ need not be the same one:
each of the two mixtures is as above.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accounting.arrays import Array
from accounting.loss.allocated_epochs import from_above, from_below
from accounting.loss.allocated_swaps import swap_curve
from accounting.loss.curves import pair_of_curve
from accounting.loss.pair import Atoms, LopsidedAtoms, LossPair, Symmetric, remembered

__all__ = ["AllocatedPair", "SwappedAllocatedPair"]


@dataclass(frozen=True)
class AllocatedPair(LopsidedAtoms):
    """One of ``steps`` ≥ 2 steps with the pair ``step``: with the unit against without it, or not ``present``.

    The step's pair is in the same order. From above, or with ``lower`` from below; see the module's text.
    """

    mass_rounding = 1e-11
    step: LossPair
    steps: int
    present: bool
    lower: bool = False

    @remembered(16)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        bound = from_below if self.lower else from_above
        # a symmetric pair has the same ratios in both orders
        turned = not self.present and not isinstance(self.step, Symmetric)
        found = bound(self.step, self.steps, turned=turned, grows=self.present)
        losses = np.log(found.ratios)
        if self.present:
            return losses, found.above, found.below, found.beyond
        return -losses[::-1], found.below[::-1], found.above[::-1], found.beyond


@dataclass(frozen=True)
class SwappedAllocatedPair(Atoms, Symmetric):
    """A unit in one of ``steps`` ≥ 2 steps, swapped for another; ``step`` is the pair with it against without it."""

    mass_rounding = 1e-11
    step: LossPair
    steps: int

    @remembered(8)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        return pair_of_curve(*swap_curve(self.step, self.steps))
