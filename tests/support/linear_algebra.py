"""One thread for linear algebra, whose matrices are small here: threads that wait for each other took twice the time.
And one set of its kernels where the processor has it, whose last digits are those of the recorded runs.

Also for the processes of pytest-xdist and those that tests start. Imported before numpy, which reads it when loaded.
"""

import os
import subprocess
import sys
from pathlib import Path

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

# OpenBLAS takes kernels by the processor: those for AVX-512 and those for AVX2 round otherwise, and where two arms are
# as good as each other a policy then chooses another one. The latter run on all processors for x86 since 2013
RECORDED = "Haswell"
_PRODUCT = "import numpy; numpy.ones((500, 500)) @ numpy.ones((500, 500))"


def _runs(kernels: str) -> bool:
    """Whether a product of matrices survives.

    The kernels for AVX2 of OpenBLAS 0.3.34, which numpy 2.5.2 to 2.5.5 bring, write beyond their stack where rows are
    long (OpenMathLib/OpenBLAS#6026). That ends the process, though not on every processor.
    """
    environment = {**os.environ, "OPENBLAS_CORETYPE": kernels}
    return subprocess.run([sys.executable, "-c", _PRODUCT], env=environment, capture_output=True).returncode == 0


_processor = Path("/proc/cpuinfo")
# the first process of a run asks, and the others have it from that one
if "OPENBLAS_CORETYPE" not in os.environ and _processor.exists() and " avx2" in _processor.read_text(errors="replace"):
    os.environ["OPENBLAS_CORETYPE"] = RECORDED if _runs(RECORDED) else ""


def as_recorded() -> bool:
    """Whether linear algebra rounds as it did when runs were recorded."""
    return os.environ.get("OPENBLAS_CORETYPE") == RECORDED
