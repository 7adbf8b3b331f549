"""Imports and commands, as whole processes, against one that imports numpy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from benchmarks.table import Row


def process(*arguments: str) -> Callable[[], object]:
    # as installed: compiled once, and not again in every process
    known = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=known)


def rows() -> list[Row]:
    numpy = process("-c", "import numpy")

    def statement(code: str, most: float) -> Row:
        return Row(code, process("-c", code), numpy, "import numpy", most=most)

    def command(most: float, *words: str) -> Row:
        return Row(" ".join(words), process("-m", *words), numpy, "import numpy", most=most)

    return [
        statement("import accounting", 1.6),
        statement("import dpkit.mechanisms", 1.6),
        statement("import dpkit.optimize", 2.5),
        statement("from dpbandits.policies import OnePassPrivateGLM", 2.5),
        command(3.5, "dpkit", "--help"),
        command(3.5, "dpbandits", "--help"),
        command(4.5, "dpkit", "epsilon", "--gaussian", "2.0", "--count", "100", "--delta", "1e-6"),
        command(4.5, "dpkit", "epsilon", "1000 * PoissonSubsampled(Gaussian(1.0), 0.01)", "--delta", "1e-6"),
    ]
