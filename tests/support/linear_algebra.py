"""One thread for linear algebra, whose matrices are small here: threads that wait for each other took twice the time.
And one set of its kernels where the processor has it, whose last digits are those of the recorded runs.

Also for the processes of pytest-xdist and those that tests start. Imported before numpy, which reads it when loaded.
"""

import os
from pathlib import Path

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

# OpenBLAS takes kernels by the processor: those for AVX-512 and those for AVX2 round otherwise, and where two arms are
# as good as each other a policy then chooses another one. The latter run on all processors for x86 since 2013
RECORDED = "Haswell"
_processor = Path("/proc/cpuinfo")
if _processor.exists() and " avx2" in _processor.read_text(errors="replace"):
    os.environ["OPENBLAS_CORETYPE"] = RECORDED


def as_recorded() -> bool:
    """Whether linear algebra rounds as it did when runs were recorded."""
    return os.environ.get("OPENBLAS_CORETYPE") == RECORDED
