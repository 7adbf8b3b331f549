"""Settings of the whole suite."""

import compiled  # noqa: F401 (before all that is compiled)
import linear_algebra  # noqa: F401 (before numpy)

# isort: split
import gc
import os
import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from postgres import new, postgres, storage  # noqa: F401 (fixtures of all tests)
from processor_time import ProcessorTime
from same_noise import SameNoise

from accounting import totals

# How long an example takes says nothing on a busy machine; the suite's total is what is held. The examples are the same
# in every run, so that a change is judged by what it changed; ``--hypothesis-profile=search`` looks for new ones, with
# noise of the system's (see same_noise).
_patient = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("suite", derandomize=True, **_patient)
settings.register_profile("search", derandomize=False, print_blob=True, **_patient)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", action="store_true", help="print the CPU time of the tests of each directory")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--cpu"):
        config.pluginmanager.register(ProcessorTime())
    if config.getoption("--hypothesis-profile") != "search":
        config.pluginmanager.register(SameNoise())


# thousands of small files: in memory where there is plenty (a run leaves some 100 MB), else where pytest has them
_MEMORY = Path("/dev/shm")
if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 2 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Ten thousand tests and their modules are made, and none of it is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.set_threshold(10_000, 20, 20)  # a test's own garbage is small, and looking for it is not


@pytest.fixture(scope="module", autouse=True)
def _earlier_objects_are_no_garbage() -> None:
    """A collection, which many tests ask for, looks through what they made, and not through all that was imported."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.freeze()  # pytest looks through all that is left five times more


def _fsync(file: int) -> None:
    os.fstat(file)  # raises where it is not open


@pytest.fixture(scope="session", autouse=True)
def _commands_are_built_once() -> Iterator[None]:
    """Signatures and types of some thirty commands, which ``CliRunner.invoke`` reads at every call."""
    try:
        from typer import testing
    except ImportError:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "_get_command", lru_cache(maxsize=None)(testing._get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_power_is_cut() -> Iterator[None]:
    """A process that is killed loses nothing that it wrote, so no test has to wait for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        for wait in {"fsync", "fdatasync"} & set(dir(os)):
            patch.setattr(os, wait, _fsync)
        yield


_computed = totals._bounds
_remembered = lru_cache(maxsize=None)(_computed)


def _bounds(release, *rest, **more):
    try:
        hash(release)
    except TypeError:
        return _computed(release, *rest, **more)
    return dict(_remembered(release, *rest, **more))


@pytest.fixture(scope="module", autouse=True)
def _costs_are_found_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """What is calibrated a thousand times asks for the same costs; ``tests/accounting`` finds each one."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.path.is_relative_to(Path(__file__).parent / "accounting"):
            patch.setattr(totals, "_bounds", _bounds)
        yield
