"""What tests of the zoo share."""

from __future__ import annotations

import numpy as np
import pytest

from dpkit.mechanisms import GaussianMechanism


class Declared(list[tuple[np.ndarray, float]]):
    """What Gaussian mechanisms were given, and the sensitivity that they made noise for, of runs on two neighbours."""

    def distances(self) -> list[float]:
        """How far apart the two runs were each time, in units of what was declared."""
        half, left = divmod(len(self), 2)
        assert half
        assert not left
        found = []
        for (one, size), (other, same) in zip(self[:half], self[half:], strict=True):
            assert size == same
            found.append(float(np.linalg.norm(one - other)) / size)
        return found


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Declared:
    seen = Declared()
    original = GaussianMechanism.release

    def release(self, value):
        seen.append((np.array(value, dtype=np.float64), self.sensitivity))
        return original(self, value)

    monkeypatch.setattr(GaussianMechanism, "release", release)
    return seen
