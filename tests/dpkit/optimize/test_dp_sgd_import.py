"""DP-SGD costs nothing until it is called, and says what it needs where that is missing."""

import subprocess
import sys

NOT_LOADED = """
import sys
from dpkit.optimize import dp_sgd
assert not {"torch", "opacus"} & set(sys.modules)
"""

MISSING = """
import sys
sys.modules["opacus"] = None
import numpy as np
from accounting import Budget
from dpkit.optimize import dp_sgd, glm
dp_sgd(glm("squared", clip=1.0), np.zeros((2, 1)), np.zeros(2), budget=Budget(1.0, 1e-5))
"""


def test_importing_it_loads_no_torch():
    assert subprocess.run([sys.executable, "-c", NOT_LOADED], check=False).returncode == 0


def test_without_opacus_the_extra_is_named():
    found = subprocess.run([sys.executable, "-c", MISSING], check=False, capture_output=True, text=True)
    assert "ImportError: dp_sgd needs Opacus and torch: pip install dpkit[opacus]" in found.stderr
