"""Every private policy can be served, and goes on after a restart of its learner."""

import numpy as np
import pytest
from private_policies import OF_PERSONS
from serving import Clock, configured

from dpbandits import PrivatePolicy, Released, policies
from dpbandits.serve.learner import Learner
from dpbandits.serve.store import Choice

_PLAIN = "dim = 2\nhorizon = 60"
_INNER = 'dim = 2\nalgorithm = "OnePassPrivateGLM"'
ARGUMENTS = {
    "DPHDB": f"{_PLAIN}\nn_arms = 3",
    "DisjointPrivateGLM": f"{_PLAIN}\narms = 3",
    "DisjointShuffleGLM": f"{_PLAIN}\narms = 3",
    "Doubling": _INNER,
    "StandingPrivateGLM": f"{_PLAIN}\narms = [[1.0, 0.0], [0.0, 1.0]]",
    "Restarting": f"{_INNER}\nhorizon = 60\nevery = 20",
}
PRIVATE = [name for name in policies.__all__ if issubclass(getattr(policies, name), PrivatePolicy)]


@pytest.mark.parametrize("name", PRIVATE)
def test_every_private_policy_can_be_served(tmp_path, name):
    person = name in OF_PERSONS
    policy = f'class = "{name}"\n{ARGUMENTS.get(name, _PLAIN)}'
    config = configured(tmp_path, policy=policy, unit="person" if person else "round")
    learner = Learner(config, clock=Clock())
    for part in range(4):
        released = Released.from_json(learner._store.released(learner._store.newest()))
        asked = np.full(2, 0.5) if released.takes == "context" else np.eye(2)
        choices = []
        for i in range(15):
            index, probability = released.choose(asked)
            arm = asked if released.takes == "context" else asked[index]
            choices.append(Choice(index, min(1.0, probability) or None, arm, f"{part} {i}" if person else None))
        with learner._store.writing():
            ids = learner._store.decide(choices, 0.0, None)
            learner._store.reward([(id, 0.5) for id in ids], 0.0, None)
        while learner.step():
            pass
        if part == 1:
            learner.close()
            learner.policy.run._hold.close()
            learner = Learner(config, clock=Clock())
    assert learner.policy.decisions == 60
    assert learner._store.newest() > 1
    assert learner._store.rewards(9) == []
    learner.close()
