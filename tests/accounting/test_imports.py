"""What imports load, and what is priced without loading more: nothing heavier than numpy."""

import json
import subprocess
import sys

import pytest

HEAVY = ("scipy", "torch", "matplotlib", "sklearn", "pandas", "dp_accounting", "opacus")
# One after another in one process: whatever a step loads is there in all that follow.
STEPS = {
    "nothing": "import dpkit",
    "mechanisms": "import dpkit.continual, dpkit.optimize, dpkit.queries, dpkit.shuffle",
    "pure": (
        "from accounting import *\n"
        "compare(100 * Gaussian(10.0), 1e-5)\n"
        "calibrate(lambda z: 100 * Gaussian(z), Budget(1.0, 1e-6))\n"
        "calibrate(lambda z: 100 * Laplace(z) + NoisyMax(0.1 / z), Budget(1.0, 0.0))\n"
        "delta(100 * Laplace(100.0), 2.0)"
    ),
    "ledger": "import accounting, accounting.ledger",
    "sums": "epsilon(100 * Gaussian(10.0) + Laplace(3.0), 1e-5)",
    "audit": "from accounting import audit",
    "scipy": "import scipy",
}


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    """The modules that are there after each step."""
    steps = (f"{step}\nfound[{name!r}] = sorted(sys.modules)" for name, step in STEPS.items())
    code = "\n".join(["import json, sys\nfound = {}", *steps, "print(json.dumps(found))"])
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules: dict[str, list[str]] = json.loads(run.stdout)
    return modules


def heavy(modules):
    return [m for m in modules if m.partition(".")[0] in HEAVY]


@pytest.mark.parametrize("step", ["nothing", "mechanisms", "pure", "ledger"])
def test_no_heavy_module_is_loaded(loaded, step):
    assert heavy(loaded[step]) == []
    assert "numpy" in loaded[step] or step == "nothing"


def test_mechanisms_and_optimizers_load_no_ledger(loaded):
    assert [m for m in loaded["mechanisms"] if m.startswith("accounting.ledger")] == []


@pytest.mark.parametrize("step", ["sums", "audit"])
def test_nothing_that_totals_and_audits_need_loads_scipy_stats(loaded, step):
    assert not {"scipy.stats", "scipy.linalg", "sklearn"} & set(loaded[step])


def test_the_detector_sees_scipy(loaded):
    assert any(m.startswith("scipy") for m in heavy(loaded["scipy"]))


def test_every_public_name_is_there():
    import accounting

    assert all(hasattr(accounting, name) for name in accounting.__all__)
    assert len(set(accounting.__all__)) == len(accounting.__all__)


def test_a_star_import_takes_what_is_there_without_the_extras():
    """The checker of certificates needs python-flint, which the core does not."""
    code = (
        "import importlib.util as util; found = util.find_spec\n"
        "util.find_spec = lambda name, *given: None if name == 'flint' else found(name, *given)\n"
        "from accounting import *; certify; print('verify' in globals())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
