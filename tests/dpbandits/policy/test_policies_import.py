"""`import dpbandits.policies` reads no policy before one is asked for."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dpbandits
from dpbandits import policies
from dpbandits.policies import GLBOMD


def test_every_name_is_there_and_no_other():
    # a type checker is told of the same names, at the same places
    told = re.findall(r"^    from (\S+) import (\w+) as \2$", Path(policies.__file__).read_text(), re.MULTILINE)
    assert {name: home for home, name in told} == policies._HOMES
    assert set(policies.__all__) <= set(dir(policies))
    for name in policies.__all__:
        assert getattr(policies, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'LinUCB'"):
        policies.LinUCB  # noqa: B018


def test_a_function_that_is_called_like_its_module_is_what_its_name_gives():
    assert callable(dpbandits.simulate)
    assert dpbandits.environments.__name__ == "dpbandits.lab.environments"


@pytest.mark.thorough
def test_one_policy_is_read_alone_and_a_state_brings_its_own(tmp_path):
    policy = GLBOMD(2, "logistic", horizon=50, rng=np.random.default_rng(0))
    policy.save(tmp_path / "state")
    code = (
        "import sys, json\nfrom dpbandits import Policy\nimport dpbandits.policies\n"
        "homes = set(dpbandits.policies._HOMES.values())\nfiles = lambda: [m for m in sys.modules if m in homes]\n"
        f"before = files(); loaded = Policy.load({str(tmp_path / 'state')!r})\n"
        "print(json.dumps([before, files(), type(loaded).__module__]))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == [
        [],
        ["dpbandits.reference.light_tails.glb_omd"],
        "dpbandits.reference.light_tails.glb_omd",
    ]
