"""No test of the service depends on how long anything takes."""

import pytest

from dpbandits.serve import writer


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A machine that stands still for seconds is no database that is away."""
    monkeypatch.setattr(writer, "PATIENCE", 1e6)
    monkeypatch.setattr(writer, "LOOK", 0.01)
