"""Releases of two losses, and who chooses among them so that the loss passes a budget."""

import math

import numpy as np


class TwoLosses:
    """Losses −unit and ``up`` units, or the pair with both exchanged."""

    def __init__(self, unit, up, exchanged=False):
        rare = -math.expm1(unit) / (math.exp(-up * unit) - math.exp(unit))
        self.losses = np.array([-unit, up * unit])
        self.p = np.array([1 - rare, rare])
        self.q = self.p * np.exp(-self.losses)
        if exchanged:
            self.losses, self.p, self.q = -self.losses[::-1], self.q[::-1], self.p[::-1]

    def masses(self, edges):
        from accounting.loss.pair import histogram

        return histogram(edges, self.losses, self.p, self.q)

    def highest(self, log_tail):
        return float(self.losses[-1]) * (1 + 1e-12)

    def lowest(self, log_tail):
        return -float(self.losses[0]) * (1 + 1e-12)


def best_strategy(kinds, costs, levels, unit, most, cells):
    """P(the loss passes ε), discounted as in δ, by dynamic programming over what was charged and the loss."""
    steps = [[math.ceil(cost / most * cells) if cost < math.inf else cells + 1 for cost in row] for row in costs]
    kept = [math.ceil(level / most * cells - 1e-9) for level in levels]
    width = math.ceil((1.2 + 6 * math.sqrt(most)) / unit)
    loss = np.arange(-width, width + 1) * unit
    stop = np.maximum(0.0, -np.expm1(np.minimum(1.0 - loss, 0.0)))
    value = np.empty((cells + 1, loss.size))

    def moved(row, by):
        return np.concatenate([row[by:], np.ones(by)]) if by > 0 else np.concatenate([np.full(-by, row[0]), row[:by]])

    for charged in range(cells, -1, -1):
        best = stop
        for kind, row in zip(kinds, steps, strict=True):
            for step, level in zip(row[::-1], kept[::-1], strict=True):
                if charged + step + level <= cells:
                    after = value[charged + step]
                    ends = (np.rint(kind.losses / unit)).astype(int)
                    best = np.maximum(best, sum(p * moved(after, int(by)) for p, by in zip(kind.p, ends, strict=True)))
                    break
        value[charged] = best
    return float(value[0, width])


def both_ways(unit, up):
    """The pair, and the one with both exchanged."""
    return [TwoLosses(unit, up, way) for way in (False, True)]
