"""DP-SGD costs nothing until it is called, and says what it needs where that is missing."""

import subprocess
import sys

import numpy as np
import pytest

from accounting import Budget
from dpkit.optimize import dp_sgd, glm

NOT_LOADED = """
import sys
from dpkit.optimize import dp_sgd
assert not {"torch", "opacus"} & set(sys.modules)
"""


def test_importing_it_loads_no_torch():
    assert subprocess.run([sys.executable, "-c", NOT_LOADED], check=False).returncode == 0


def test_without_opacus_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(ImportError, match=r"dp_sgd needs Opacus and torch: pip install dpkit\[opacus\]"):
        dp_sgd(glm("squared", clip=1.0), np.zeros((2, 1)), np.zeros(2), budget=Budget(1.0, 1e-5))
