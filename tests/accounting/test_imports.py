"""What `import accounting` loads: nothing heavier than numpy."""

import json
import subprocess
import sys

import pytest

HEAVY = ("scipy", "torch", "matplotlib", "sklearn", "pandas", "dp_accounting", "opacus")


def loaded_by(statement: str) -> list[str]:
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules: list[str] = json.loads(run.stdout)
    return modules


@pytest.mark.parametrize("statement", ["import accounting, accounting.ledger", "import dpkit"])
def test_no_heavy_module_is_loaded(statement):
    modules = loaded_by(statement)
    assert "numpy" in modules or statement == "import dpkit"
    assert [m for m in modules if any(m == heavy or m.startswith(heavy + ".") for heavy in HEAVY)] == []


def test_mechanisms_and_optimizers_load_no_ledger():
    modules = loaded_by("import dpkit.continual, dpkit.optimize, dpkit.queries, dpkit.shuffle")
    assert [m for m in modules if m.startswith("accounting.ledger")] == []
    assert not any(m.startswith("scipy") for m in modules)


def test_the_detector_sees_scipy():
    assert any(m.startswith("scipy") for m in loaded_by("import scipy"))


def test_nothing_that_epsilon_and_calibrate_need_loads_scipy_stats():
    statement = (
        "from accounting import *\n"
        "epsilon(100 * Gaussian(10.0) + Laplace(3.0), 1e-5)\n"
        "calibrate(lambda z: 100 * Gaussian(z), Budget(1.0, 1e-6))"
    )
    assert "scipy.stats" not in loaded_by(statement)


def test_gaussians_and_what_is_pure_are_priced_and_calibrated_without_scipy():
    statement = (
        "from accounting import *\n"
        "compare(100 * Gaussian(10.0), 1e-5)\n"
        "calibrate(lambda z: 100 * Gaussian(z), Budget(1.0, 1e-6))\n"
        "calibrate(lambda z: 100 * Laplace(z) + NoisyMax(0.1 / z), Budget(1.0, 0.0))\n"
        "delta(100 * Laplace(100.0), 2.0)"
    )
    assert not any(m.startswith("scipy") for m in loaded_by(statement))


def test_every_public_name_is_there():
    import accounting

    assert all(hasattr(accounting, name) for name in accounting.__all__)
    assert len(set(accounting.__all__)) == len(accounting.__all__)
