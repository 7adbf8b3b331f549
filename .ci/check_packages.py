"""Build wheel and sdist, and try both in clean environments on every Python from 3.11.

    python .ci/check_packages.py [3.11 3.12 …] [--sbom sbom.json]

Needs the packages ``build``, ``uv`` and ``cyclonedx-bom``; uv finds or fetches interpreters. Prints a row per Python
and artefact, and ends with 1 if one failed. A Python that is missing is named and does not fail. The first Python gets
everything a second time, with the oldest versions that pyproject.toml allows. A second build must give the same bytes,
and what an installation holds is written to ``sbom.json`` (CycloneDX).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")

# each on its own in a new process: what a user of one part imports
SMOKE = (
    "import accounting; print(accounting.epsilon(accounting.Gaussian(5.0), 1e-6))",
    "import dpkit; print(dpkit.__version__)",
    "from accounting import Budget; from dpkit.continual import BufferedToeplitz as B;"
    "s = B.calibrated(budget=Budget(1.0, 1e-6), horizon=8, shape=2, sensitivity=2.0); print(s.add([0.5, 0.5]))",
    "import numpy as np; from accounting import Budget; from dpbandits.policies import OnePassPrivateGLM as P;"
    "p = P(dim=2, budget=Budget(1.0, 1e-6), horizon=100);"
    "[p.update(p.select(np.eye(2)), 1.0) for _ in range(100)]; print(p.privacy())",
)
COMMANDS = (["dpkit", "--version"], ["dpkit", "epsilon", "100 * Gaussian(20)", "--delta", "1e-6"])


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=cwd, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))[:200]}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def tried(python: str, artefact: Path, folder: Path, resolution: str) -> str:
    """What became of one artefact on one Python, with these versions of what it needs."""
    home = folder / f"{python}-{artefact.suffix[1:]}-{resolution}"
    try:
        run(sys.executable, "-m", "uv", "venv", "--quiet", "--python", python, home)
    except RuntimeError as error:
        return f"missing ({str(error).strip().splitlines()[-1][:100]})"
    bin = home / ("Scripts" if sys.platform == "win32" else "bin")
    install = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", bin / "python")
    run(*install, "--resolution", resolution, f"{artefact}[commands]")
    # not from the source tree, whose folders would be found first
    for code in SMOKE:
        run(bin / "python", "-W", "error", "-c", code, cwd=folder)
    for command, *arguments in COMMANDS:
        run(bin / command, *arguments, cwd=folder)
    return "works"


def bill_of_materials(home: Path, out: Path) -> str:
    """Write what is installed in an environment as an SBOM, and compare it with what the installer lists."""
    python = home / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    bill = ("cyclonedx_py", "environment", "--output-reproducible", "--pyproject", ROOT / "pyproject.toml")
    run(sys.executable, "-m", *bill, "--output-file", out, python)
    listed = json.loads(run(sys.executable, "-m", "uv", "pip", "list", "--format", "json", "--python", python))
    parts = json.loads(out.read_text(encoding="utf-8"))["components"]
    named, there = ({re.sub(r"[-_.]+", "-", one["name"].lower()) for one in some} for some in (parts, listed))
    missing = there - named - {"dpkit"}
    if missing:
        raise RuntimeError(f"the SBOM lacks {', '.join(sorted(missing))}")
    return f"{len(named)} parts"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("pythons", nargs="*", default=PYTHONS)
    options.add_argument("--sbom", type=Path, default=Path("sbom.json"))
    given = options.parse_args()
    pythons = given.pythons
    failed = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run(sys.executable, "-m", "build", "--installer", "uv", "--outdir", folder / "dist", ROOT)
        for artefact in sorted((folder / "dist").iterdir()):
            for python, resolution in [(pythons[0], "lowest-direct"), *((python, "highest") for python in pythons)]:
                try:
                    said = tried(python, artefact, folder, resolution)
                except RuntimeError as error:
                    said, failed = f"FAILED: {error}", True
                print(f"{python:6} {resolution:14} {artefact.name:36} {said}", flush=True)
        run(sys.executable, "-m", "build", "--installer", "uv", "--outdir", folder / "again", ROOT)
        for artefact in sorted((folder / "dist").iterdir()):
            same = artefact.read_bytes() == (folder / "again" / artefact.name).read_bytes()
            failed |= not same
            print(f"second build   {artefact.name:36} {'the same bytes' if same else 'FAILED: other bytes'}")
        said = bill_of_materials(next(folder.glob(f"{pythons[0]}-whl-highest")), given.sbom.absolute())
        print(f"SBOM           {given.sbom!s:36} {said}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
