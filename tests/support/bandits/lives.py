"""What a person may do in a run, and the two streams of sums that come of it; for audits of a person's whole part."""

import numpy as np

from dpkit.continual import ContinualSum, Weighted

EAST, WEST, NORTH = [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]
ROUNDS = 12
# in which of the rounds the person comes; another one comes in each of the rest
THEIRS = [0, 1, 2, 3, 4, 5, 8, 9]
NEVER = ROUNDS + 1

# what a person may do: the arm and the reward in its rounds, and after how many further rounds it is told
WORLDS = {
    "east": [(EAST, 1.0, 0)] * 8,
    "west": [(WEST, 1.0, 0)] * 8,
    "east, told together": [(EAST, 1.0, 5 - t) if t < 5 else (EAST, 1.0, 0) for t in range(8)],
    "west, late": [(WEST, 1.0, 3)] * 8,
    "east, first rewards missing": [(EAST, 1.0, NEVER if t < 4 else 0) for t in range(8)],
    "to and fro": [(EAST if t % 2 else WEST, 1.0, 0) for t in range(8)],
    "north": [(NORTH, -1.0, 0)] * 8,
    "silent": [(EAST, 1.0, NEVER)] * 8,
}


class Lives:
    """Runs of ``policy`` in which a person lives in one of the worlds: ``play(world)`` is one of them."""

    def listen(self, monkeypatch):
        """From here on what goes into the policy's stream is kept in ``batches``, and what comes out in ``outputs``."""
        self.batches, self.outputs = [], []
        original = ContinualSum.add

        def add(sums, x):
            self.batches.append(np.array(x))
            self.outputs.append(original(sums, x))
            return self.outputs[-1]

        monkeypatch.setattr(ContinualSum, "add", add)

    def stream(self, world):
        """The batches' sums, which the noise does not touch."""
        self.batches.clear()
        self.play(world)
        return np.array(self.batches)

    def factor(self):
        sums, n = self.policy.sums.sums, len(self.policy.schedule.ends)
        if isinstance(sums, Weighted):
            return sums.factor
        c, t = sums.coefficients, np.arange(n)
        return np.where(t[:, None] >= t, c[np.abs(t[:, None] - t)], 0.0) / sums._factorization._scales.bounds(0, n)
