"""One thread for linear algebra, whose matrices are small here: threads that wait for each other took twice the time.

Also for the processes of pytest-xdist and those that tests start. Imported before numpy, which reads it when loaded.
"""

import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
