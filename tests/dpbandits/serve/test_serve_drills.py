"""Failover, snapshots, lost volumes, rotation and upgrades at random moments; a failure names its seed.

``DRILLS=200 python -m pytest -m slow tests/dpbandits/serve/test_serve_drills.py`` makes 200 of each.
"""

import os
from collections import Counter

import pytest
from drills import DRILLS, Violated, drilled

from dpbandits.serve.lineage import Ids, Named
from dpbandits.serve.store import Store

MANY = int(os.environ.get("DRILLS", "40"))


def made(name, folder, seeds):
    ends = Counter()
    for seed in seeds:
        (folder / str(seed)).mkdir()
        service = drilled(name, folder / str(seed), seed)
        ends[service.outcomes[-1][:40] if service.outcomes else "goes on"] += 1
    return ends


@pytest.mark.parametrize("name", DRILLS)
def test_a_drill(tmp_path, name):
    made(name, tmp_path, range(2))


@pytest.mark.slow
@pytest.mark.parametrize("name", DRILLS)
def test_many_drills(tmp_path, name):
    print(name, made(name, tmp_path, range(100, 100 + MANY)))


@pytest.mark.thorough
def test_drills_see_a_restore_that_trusts_another_history(tmp_path, monkeypatch):
    """A planted fault: rows up to the learner's count are taken for those that it knows, and ids for their numbers."""
    renew = Store.renew
    monkeypatch.setattr(Store, "renew", lambda self, decisions, kept: renew(self, decisions, decisions))
    monkeypatch.setattr(Ids, "read", lambda self, id: Named(int(id.partition("-")[0]), "", proven=True))
    monkeypatch.setattr("dpbandits.serve.store.secrets.compare_digest", lambda *_: True)
    with pytest.raises(Violated, match=r"failover, seed \d+: .*somebody else's round"):
        made("failover", tmp_path, range(12))
