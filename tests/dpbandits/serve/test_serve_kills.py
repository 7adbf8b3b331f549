"""Real processes, killed at random while a crowd is served: nothing acknowledged is lost, and nothing happens twice."""

import os
import random
import signal
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from postgres import on_server, running
from serving import TOKENS, begun, clients_table, drain, written

from accounting import Ledger
from dpbandits.serve.client import Client
from dpbandits.serve.config import Config
from dpbandits.serve.learner import Learner
from dpbandits.serve.many.group import Group
from dpbandits.serve.store import LeaseLost, Store
from dpbandits.serve.supervise import Service

# with the database among what is killed
KILLS = int(os.environ.get("KILLS", "60"))
COUNTING = 'class = "counting:Counting"\ndim = 3\nhorizon = {horizon}'


def played(url, rounds, seed, served, told, stop, run=None):
    """A client that sends again until it is answered, and notes what was acknowledged."""
    rng = np.random.default_rng(seed)
    decider, teller = (Client(url, TOKENS[role], run=run, patience=60.0) for role in ("decider", "learner"))
    waiting = []
    while len(served) < rounds and not stop.is_set():
        found = decider.decide(*[{"arms": np.eye(3).tolist()}] * 4, activate=rng.random() < 0.8)
        # while the database was away, or because that was asked for
        tickets = [one["ticket"] for one in found if one["id"] is None]
        if tickets:
            assert [one["status"] for one in decider.activate(*tickets)] != ["unknown"] * len(tickets)
            found += decider.activate(*tickets)  # and once more
        found = [one for one in found if one["id"] is not None]
        served.extend(one["id"] for one in found)
        waiting += [one["id"] for one in found if one["learned"]]
        rng.shuffle(waiting)
        rewards = [(waiting.pop(), float(rng.random())) for _ in range(len(waiting) // 2)]
        if rewards:
            # after an answer that was lost, the reward is there already
            for (id, reward), status in zip(rewards, teller.reward(*rewards), strict=True):
                if status in ("accepted", "duplicate", "closed"):
                    told[id] = reward
    return waiting


def check_kills(folder, monkeypatch, *, kills, horizon, learners, every, server):
    support = Path(__file__).resolve().parents[2] / "support" / "bandits"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(support), os.environ.get("PYTHONPATH", "")]))
    storage = "" if server is None else on_server(server)
    path = written(folder, policy=COUNTING.format(horizon=horizon), more="[service]\nport = 0", storage=storage)
    begun(Config.read(path))
    service = Service(path, learners=learners)
    running = threading.Thread(target=service.run)
    running.start()
    stop = threading.Event()
    crowds = []
    try:
        for seed in (1, 2):
            served, told = [], {}
            arguments = (service.url, 10**9, seed, served, told, stop)
            crowd = threading.Thread(target=played, args=arguments)
            crowd.start()
            crowds.append((crowd, served, told))
        luck = random.Random(0)
        done = 0
        # for as long as it takes until something has happened that could have gone wrong
        enough = Config.read(path).probe().schedule.ends[4]
        while done < kills or sum(len(served) for _, served, _ in crowds) < enough:
            time.sleep(luck.uniform(0.1, every))
            role = luck.choice(["worker", "learner"] if server is None else ["worker", "learner", "database"])
            if role == "database":
                server.kill()
                time.sleep(luck.uniform(0.0, 1.0))
                server.start()
                done += 1
            elif alive := service.processes(role):
                os.kill(luck.choice(alive), signal.SIGKILL)
                done += 1
        time.sleep(2.0)
    finally:
        stop.set()
        for crowd, _, _ in crowds:
            crowd.join(120.0)
        service.stop()
        running.join()
    config = Config.read(path)
    told = {int(id.split("-")[0]): reward for _, _, told in crowds for id, reward in told.items()}
    releases = check_whole(config, told)
    print(f"{kills} kills, {len(told)} rewards, {releases} releases")
    return len(told), releases


def check_whole(config, told):
    """Each reward that was told, by the numbers of decisions, is learned once, and no other; how many releases."""
    # what was on its way is taken in by one more learner, once the lease of a killed one has run out
    for _ in range(300):
        try:
            learner = Learner(config)
            break
        except LeaseLost:
            time.sleep(0.1)
    drain(learner)
    policy = learner.policy
    counts = policy.learned
    assert counts.max() <= 1
    assert [number for number in told if counts[number - 1] != 1] == []
    # each by the value that was sent, and no other one: whoever got no answer has asked again
    assert counts.sum() == len(told) == policy.decisions - len(policy.open_decisions)
    assert policy.total == pytest.approx(sum(number * reward for number, reward in told.items()), rel=1e-12)
    history = Store(config.database).history()
    assert [one["number"] for one in history] == list(range(len(history)))
    assert [one["decisions"] for one in history] == [0, *policy.schedule.ends[: policy.releases]]
    assert Ledger.open(config.ledger).epsilon(1e-6) <= config.whole.epsilon
    Ledger.open(config.ledger).verify()
    learner.close()
    return policy.releases


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "learners", "database"), [(60, 1, False), (KILLS, 1, True), (20, 2, False)])
def test_kills_of_workers_and_learners_and_the_database(tmp_path, monkeypatch, kills, learners, database):
    every = 3.0 if database else 5.0
    with running() if database else nullcontext() as server:
        told, releases = check_kills(
            tmp_path, monkeypatch, kills=kills, horizon=100_000, learners=learners, every=every, server=server
        )
    assert told > 50
    assert releases > 3


@pytest.mark.slow
def test_kills_of_the_processes_of_many_runs(tmp_path, monkeypatch):
    """Two processes share the learners of four runs, and all processes are killed at random."""
    support = Path(__file__).resolve().parents[2] / "support"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(support), os.environ.get("PYTHONPATH", "")]))
    path = tmp_path / "group.toml"
    path.write_text(
        "[runs]\n[budget]\nepsilon = 8.0\ndelta = 1e-6\nunit = 'round'\n[service]\nport = 0\nlearners = 2\n"
        + clients_table({"decider": ["decide"], "learner": ["reward"]})
    )
    group = Group.read(path)
    group.init()
    names = ["a", "b", "c", "d"]
    policy = {"class": "counting:Counting", "dim": 3, "horizon": 100_000}
    for name in names:
        group.begin(name, {"policy": policy, "budget": {"epsilon": 1.0, "delta": 1e-7, "scope": name}})
    service, stop = Service(path), threading.Event()
    running = threading.Thread(target=service.run)
    running.start()
    told = {name: {} for name in names}
    served = {name: [] for name in names}
    arguments = [(service.url, 10**9, seed, served[name], told[name], stop, name) for seed, name in enumerate(names)]
    crowds = [threading.Thread(target=played, args=one) for one in arguments]
    for crowd in crowds:
        crowd.start()
    luck, done = random.Random(0), 0
    try:
        while done < KILLS // 2 or min(map(len, served.values())) < 100:
            time.sleep(luck.uniform(0.1, 4.0))
            if alive := service.processes(luck.choice(["worker", "learner"])):
                os.kill(luck.choice(alive), signal.SIGKILL)
                done += 1
        time.sleep(2.0)
    finally:
        stop.set()
        for crowd in crowds:
            crowd.join(120.0)
        service.stop()
        running.join()
    counts = []
    for name in names:
        numbered = {int(id.split("-")[0]): reward for id, reward in told[name].items()}
        counts.append((name, len(numbered), check_whole(group.config(name), numbered)))
    print(f"{done} kills; runs with their rewards and releases: {counts}")
    assert all(rewards > 50 for _, rewards, _ in counts)
