"""Pictures in tests of what they come with."""

import pytest


def coarse_pictures(monkeypatch):
    """What a picture shows is looked at in the tests of pictures: elsewhere it is drawn coarsely."""
    monkeypatch.setattr("matplotlib.axis.Axis.get_minor_ticks", lambda self, numticks=None: [])
    monkeypatch.setattr("matplotlib.axis.Axis.get_minorticklocs", lambda self: [])
    monkeypatch.setitem(pytest.importorskip("matplotlib").rcParams, "savefig.dpi", 40)
