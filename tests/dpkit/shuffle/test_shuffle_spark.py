"""The Spark example, on Spark's local master, where pyspark and Java are installed."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("pyspark") is None, reason="pyspark is not installed: pip install 'pyspark>=4'")
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17")
def test_spark_adds_up_the_same_sums(tmp_path):
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, str(ROOT / "examples" / "shuffle_spark.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    error, noise = map(float, re.search(r"largest error ([\d.]+), noise of an entry ([\d.]+)", done.stdout).groups())
    # ten entries of standard deviation at most 1, rounded in print: beyond 7 with probability below 1e-10
    assert 0 < error < 7.1 * noise
