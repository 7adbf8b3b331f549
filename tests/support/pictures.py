"""Pictures in tests of what they come with."""

import pytest


def coarse_pictures(monkeypatch):
    """What a picture shows is looked at in the tests of pictures: elsewhere it is drawn coarsely, and not laid out."""
    monkeypatch.setattr("matplotlib.axis.Axis.get_minor_ticks", lambda self, numticks=None: [])
    monkeypatch.setattr("matplotlib.axis.Axis.get_minorticklocs", lambda self: [])
    monkeypatch.setattr("matplotlib.figure.Figure.get_layout_engine", lambda self: None)  # with one it is drawn twice
    monkeypatch.setitem(pytest.importorskip("matplotlib").rcParams, "savefig.dpi", 40)
