"""Shuffled batches whose records are seen, and whose noise is taken away."""

from __future__ import annotations

import numpy as np
import pytest

from dpkit.moments.shuffled import ShuffledBatches


def recorded(monkeypatch: pytest.MonkeyPatch, noise: np.ndarray | None = None) -> list[np.ndarray]:
    """Every record that a user sends, in order; where ``noise`` is given, a batch's sum is exact but for this."""
    sent: list[np.ndarray] = []
    add, start = ShuffledBatches.add, [0]

    def adding(self, row, batch):
        sent.append(self.form(row[None])[0])
        add(self, row, batch)

    def release(self):
        total = np.sum(sent[start[0] :], axis=0) + noise
        start[0] = len(sent)
        self.released += 1
        return total

    monkeypatch.setattr(ShuffledBatches, "add", adding)
    if noise is not None:
        monkeypatch.setattr(ShuffledBatches, "release", release)
    return sent
