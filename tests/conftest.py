"""Settings of the whole suite."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings
from postgres import new, postgres, storage  # noqa: F401 (fixtures of all tests)

# how long an example takes says nothing on a busy machine; the suite's total is what is held
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Ten thousand tests and their modules are made, and none of it is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _earlier_objects_are_no_garbage() -> None:
    """A collection, which many tests ask for, looks through what they made, and not through all that was imported."""
    gc.collect()
    gc.freeze()
