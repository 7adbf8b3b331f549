"""What a package owes those who install it: one version, commands that say it, and a word where a name is taken."""

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import accounting
import dpbandits
import dpkit

ROOT = Path(__file__).resolve().parent.parent


def python(*arguments, cwd):
    paths = os.pathsep.join([str(cwd), str(ROOT)])
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths}
    )


def test_there_is_one_version():
    assert accounting.__version__ == dpkit.__version__ == dpbandits.__version__
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert cited[1] == accounting.__version__
    with pytest.raises(AttributeError, match="no attribute 'version'"):
        dpkit.version  # noqa: B018


@pytest.mark.parametrize("package", ["dpkit", "dpbandits"])
def test_commands_say_the_version(package, tmp_path):
    shown = python("-m", package, "--version", cwd=tmp_path)
    assert shown.stdout.strip() == accounting.__version__, shown.stderr


def test_what_runs_elsewhere_is_named_by_its_commit():
    workflows = ROOT / ".github/workflows"
    if not workflows.is_dir():
        pytest.skip("a source distribution has no workflows")
    used = [line for path in workflows.iterdir() for line in path.read_text(encoding="utf-8").split("uses:")[1:]]
    assert used
    assert all(re.match(r" [\w-]+/[\w-]+@[0-9a-f]{40} # v\d", line) for line in used)


@pytest.mark.thorough
def test_two_builds_give_the_same_bytes(tmp_path):
    """Whoever builds a wheel from the same sources gets the same file, whenever and wherever they do."""
    pytest.importorskip("hatchling")
    built = []
    for place in ("one", "another/deeper"):
        tree = tmp_path / place
        for name in ("accounting", "dpkit", "dpbandits"):
            ignored = shutil.ignore_patterns("__pycache__", "*_cache")
            shutil.copytree(ROOT / name, tree / name, copy_function=shutil.copy, ignore=ignored)  # other times of files
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, tree / name)
        shown = python("-m", "hatchling", "build", "-t", "wheel", "-d", tree / "dist", cwd=tree)
        assert shown.returncode == 0, shown.stderr
        (wheel,) = (tree / "dist").iterdir()
        built.append(wheel.read_bytes())
    assert built[0] == built[1]


@pytest.mark.parametrize("kind", ["file", "folder", "folder without __init__"])
def test_another_package_called_accounting_is_named(kind, tmp_path):
    if kind == "file":
        (tmp_path / "accounting.py").write_text("BOOKS = 1\n")
    else:
        (tmp_path / "accounting").mkdir()
        if kind == "folder":
            (tmp_path / "accounting" / "__init__.py").write_text("BOOKS = 1\n")
    for package in ("dpkit", "dpbandits"):
        shown = python("-c", f"import {package}", cwd=tmp_path)
        if kind == "folder without __init__":  # never found before a package with one
            assert shown.returncode == 0, shown.stderr
        else:
            assert "ImportError: dpkit needs the package 'accounting' that is installed with it" in shown.stderr
            assert str(tmp_path / "accounting") in shown.stderr


def test_estimators_name_their_extra(tmp_path):
    (tmp_path / "sklearn.py").write_text("raise ModuleNotFoundError(\"No module named 'sklearn'\", name='sklearn')\n")
    shown = python("-c", "import dpkit.sklearn", cwd=tmp_path)
    assert 'python -m pip install "dpkit[learn]"' in shown.stderr


@pytest.mark.parametrize(
    "package", ["accounting", "dpkit.continual", "dpkit.mechanisms", "dpkit.optimize", "dpkit.queries"]
)
def test_what_is_not_said_is_replace(package):
    """The one default of an adjacency, as docs/concepts.md promises; None stands for a description that states none."""
    module = importlib.import_module(package)
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isfunction(thing) or (isinstance(thing, type) and not issubclass(thing, BaseException)):
            known = inspect.signature(thing).parameters
            assert "adjacency" not in known or known["adjacency"].default in ("replace", None), name
    assert accounting.Budget(1.0, 0.0).adjacency == "replace"
