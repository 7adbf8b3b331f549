"""An experiment in service and from a file: looked at, killed and resumed, stopped, with its page and its price."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from serving import TOKENS, Clock, begun, configured, drain, refresh, served, wait_until, worker, written

from accounting import Budget, Laplace, Ledger
from dpbandits import Experiment
from dpbandits.experiment import ExperimentResults
from dpbandits.serve.client import Client
from dpbandits.serve.config import Config
from dpbandits.serve.learner import Learner
from dpbandits.serve.supervise import Service

RATES = np.array([0.1, 0.14, 0.1])
OPEN = """class = "Experiment"
arms = ["plain", "witty", "loud"]
horizon = {horizon}
wait = {wait}
assignment = "fixed"
"""


def experiment(folder, horizon, wait, more="", **others):
    return configured(folder, policy=OPEN.format(horizon=horizon, wait=wait) + more, unit="person", delta=0.0, **others)


def results(browser):
    found = browser.send("GET", "/v1/results", "owner")
    assert found.status_code == 200, found.text
    return ExperimentResults.from_dict(found.json())


def shown_to(browser, persons, rates, draws):
    """Persons are assigned, and what comes of it is told."""
    found = browser.decide(*({"person": person} for person in persons), probabilities=False)
    told = [(one["id"], float(draws.random() < rates[one["index"]])) for one in found]
    assert set(browser.reward(*told)) <= {"accepted"}
    return found


def killed(learner):
    """As by a signal: nothing is said or written any more, and the system lets go of the files."""
    learner.policy.run._hold.close()
    learner.store.close()


def whole_life(folder, persons, rates, least, storage=""):
    """An experiment from its first person to the page; returns its results."""
    config, clock = experiment(folder, 2 * persons, 200, storage=storage), Clock()
    draws = np.random.default_rng(770_900)
    learner, peeks, first = Learner(config, clock=clock), [], {}
    with worker(config, clock=clock) as browser:
        refresh(browser, 0)
        for start in range(0, persons, 100):
            names = [f"person {i}" for i in range(start, start + 100)]
            for name, one in zip(names, shown_to(browser, names, rates, draws), strict=True):
                first[name] = one["id"], one["index"]
            drain(learner)
            if start % 200 == 0:
                peeks.append(results(browser))
            if start == persons // 200 * 100:
                # with decisions and values in the database that it has not seen
                shown = shown_to(browser, names := ["late a", "late b"], rates, draws)
                first |= {name: (one["id"], one["index"]) for name, one in zip(names, shown, strict=True)}
                killed(learner)
                clock.now += 60.0
                learner = Learner(config, clock=clock)
        assert not results(browser).stopped
        told = browser.send("POST", "/v1/stop", "owner").json()["ended"]
        assert told == {"after": persons + 2, "reason": "its owner stopped it"}
        drain(learner)
        found = results(browser)
        assert found.stopped == "its owner stopped it"
        assert sum(found.assigned.values()) == persons + 2
        assert found.to_dict() == Experiment.results_in(config.checkpoint).to_dict()
        # it is over for whoever comes now, and everybody else keeps what they have
        known, new = browser.decide({"person": "person 7"}, {"person": "somebody new"})
        assert ((known["id"], known["index"]), new["learned"]) == (first["person 7"], False)
        page = browser.send("GET", "/v1/results.html", "owner")
        assert page.text == found.to_html(folder / "page.html").read_text(encoding="utf-8")
        assert "script" not in page.text
    learner.close()
    sizes = [sum(peek.counted.values()) for peek in [*peeks, found]]
    assert sizes == sorted(sizes)
    assert sizes[-1] > least
    (row,) = Ledger.open(config.ledger).rows()
    assert row.release == Laplace(1.0, adjacency="replace")
    assert Ledger.open(config.ledger).epsilon(0.0) == pytest.approx(1.0)
    Ledger.open(config.ledger).verify()
    return found


@pytest.mark.thorough
def test_an_experiment_in_service_from_its_first_person_to_the_page(tmp_path, storage):
    found = whole_life(tmp_path, 600, np.array([0.1, 0.8, 0.1]), 300, storage())
    assert found.best == "witty"


def test_an_experiment_that_has_found_the_best_arm_ends_by_itself(tmp_path):
    """What was decided meanwhile does not count, and what comes of it is passed over; nobody is assigned any more."""
    config, clock = experiment(tmp_path, 2000, 100, more='stop_when = "best"\n', epsilon=8.0), Clock()
    draws = np.random.default_rng(770_901)
    with served(config, clock=clock) as (learner, browser):
        for start in range(0, 400, 100):  # the learner has seen nothing yet
            shown_to(browser, [str(i) for i in range(start, start + 100)], [0.0, 1.0, 0.0], draws)
        drain(learner)
        found = results(browser)
        assert (found.best, found.stopped) == ("witty", "the best arm is known")
        assert learner.policy.decisions == sum(found.assigned.values()) < 400
        assert learner.store.waiting() == 0
        assert (
            learner.store.database.execute("SELECT count(*) FROM decisions WHERE person IS NOT NULL").fetchone()[0] == 0
        )
        (late,) = browser.decide({"person": "new"})
        assert not late["learned"]
        assert browser.send("POST", "/v1/stop", "owner").json()["ended"]["reason"] == "the best arm is known"


def test_a_date_ends_an_experiment_in_service(tmp_path):
    clock = Clock(1.7e9)
    config = experiment(tmp_path, 4000, 0, more="stop_when = 2023-11-20T00:00:00Z\n")
    with served(config, clock=clock) as (learner, browser):
        shown_to(browser, list("abcdef"), RATES, np.random.default_rng(0))
        drain(learner)
        assert not results(browser).stopped
        clock.now += 1e6
        drain(learner)
        assert "2023-11-20" in results(browser).stopped


def test_results_are_the_owners_and_of_experiments_only(tmp_path):
    with served(experiment(tmp_path, 1000, 0)) as (_, browser):
        for method, path in (("GET", "/v1/results"), ("GET", "/v1/results.html"), ("POST", "/v1/stop")):
            assert browser.send(method, path, "decider").status_code == 403
            assert browser.send(method, path).status_code == 401
        body = {"decisions": [{"person": "ann"}], "activate": False}
        assert browser.send("POST", "/v1/decisions", "decider", json=body).status_code == 422
        assert browser.send("POST", "/v1/decisions", "decider", json={"decisions": [{}]}).status_code == 422
        one, two = browser.decide({"person": "ann"}, {"person": "ann"})
        assert (one["id"], one["index"]) == (two["id"], two["index"])
    (tmp_path / "other").mkdir()
    with served(configured(tmp_path / "other")) as (_, browser):
        assert browser.send("GET", "/v1/results", "owner").status_code == 404


def test_experiments_that_cannot_be_served_are_refused(tmp_path):
    for more, message in (
        ("metrics = {a = [0, 1], b = [0, 1]}\n", "policy.metrics must be one in a service"),
        ("dim = 3\n", "policy.dim is no key of the file"),
        ("alpha = 2.0\n", "alpha must"),
    ):
        with pytest.raises(ValueError, match=message):
            experiment(tmp_path, 1000, 0, more=more)
    with pytest.raises(ValueError, match="service\\.mode must be 'bandit'"):
        experiment(tmp_path, 1000, 0, more='[service]\nmode = "apprentice"\n')


def test_nobody_is_registered_twice_or_after_the_end(tmp_path):
    """A second decision of one person could carry a value into another batch, which the price has not paid for."""
    policy = Experiment(["a", "b"], budget=Budget(1.0, 0.0, unit="person"), horizon=100).policy
    policy.register([0.0], 1, "ann")
    with pytest.raises(ValueError, match="person must have no decision yet"):
        policy.register([0.0], 0, "ann")
    policy.end("enough")
    with pytest.raises(ValueError, match="the experiment must still run"):
        policy.register([0.0], 0, "bob")
    assert policy.decisions == 1


# ------------------------------------------------------------------------------------------------- fifty thousand


@pytest.mark.slow
def test_fifty_thousand_persons_through_processes_that_are_killed(tmp_path):
    """Real processes; learner and workers are killed in the middle, and what was acknowledged counts once."""
    persons, draws = 50_000, np.random.default_rng(770_902)
    more = "[service]\nport = 0\n"
    path = written(tmp_path, OPEN.format(horizon=persons, wait=500), unit="person", delta=0.0, more=more)
    begun(Config.read(path))
    service = Service(path)
    running = threading.Thread(target=service.run)
    running.start()
    values = {}
    try:
        decider, teller, owner = (Client(service.url, TOKENS[role], patience=120.0) for role in TOKENS)
        sizes, killed_at = [], {10_000: "learner", 20_000: "worker", 30_000: "learner"}
        for start in range(0, persons, 100):
            if role := killed_at.get(start):
                os.kill(service.processes(role)[0], signal.SIGKILL)
            asked = [{"person": f"person {i}"} for i in range(start, start + 100)]
            found = decider.decide(*asked)
            told = [(one["id"], float(draws.random() < RATES[one["index"]])) for one in found]
            assert set(teller.reward(*told)) <= {"accepted", "duplicate"}
            values |= {one["id"]: (one["index"], value) for one, (_, value) in zip(found, told, strict=True)}
            if start % 5000 == 0:
                sizes.append(sum(owner.send("GET", "/v1/results")["counted"].values()))
        owner.send("POST", "/v1/stop")
        wait_until(lambda: owner.send("GET", "/v1/results")["stopped"])
        tree = owner.send("GET", "/v1/results")
    finally:
        service.stop()
        running.join()
    found = ExperimentResults.from_dict(tree)
    assert len(values) == persons == sum(found.assigned.values())
    assert sizes == sorted(sizes)
    assert sum(found.counted.values()) > 0.9 * persons
    for k, arm in enumerate(found.arms):
        assert found.assigned[arm] == sum(index == k for index, _ in values.values())
        low, high = found.intervals[arm]
        # more than seven standard deviations from the interval's middle: noise of processes is not seeded
        assert low - 0.01 < RATES[k] < high + 0.01
    assert found.best == "witty"
    (row,) = Ledger.open(tmp_path / "service.ledger").rows()
    assert row.release == Laplace(1.0, adjacency="replace")
    print(found)


# a run from a file that holds on after a part of it, to be killed there
_RUN = """
import csv, sys, time
from accounting import Budget, Ledger
from dpbandits import Experiment
folder, hold = sys.argv[1], int(sys.argv[2])
ledger = Ledger.open(folder + "/ledger")
state = folder + "/test.state"
try:
    test = Experiment.load(state, ledger=ledger)
except FileNotFoundError:
    test = Experiment(["a", "b"], budget=Budget(1.0, 0.0, unit="person"), horizon=50_000, assignment="fixed",
                      ledger=ledger, checkpoint=state)
for number, row in enumerate(csv.DictReader(open(folder + "/test.csv"))):
    if number < test.policy.decisions - 1:
        continue
    if number == hold:
        print("holds", flush=True)
        time.sleep(600)
    decision = test.assign(person=row["person"])
    try:
        test.record(decision, float(row[decision.name]))
    except ValueError:  # it was recorded before the kill
        assert number == test.policy.decisions - 1
print(test.stop().verdict)
"""


@pytest.mark.slow
def test_fifty_thousand_rows_of_a_file_killed_and_resumed(tmp_path, monkeypatch):
    """What each of two arms would bring is in the file. A kill in the middle costs no row, and no second price."""
    pytest.importorskip("pandas")
    draws = np.random.default_rng(770_903)
    a, b = draws.random(50_000) < 0.1, draws.random(50_000) < 0.15
    lines = [f"p{i},{int(x)},{int(y)}" for i, (x, y) in enumerate(zip(a, b, strict=True))]
    (tmp_path / "test.csv").write_text("\n".join(["person,a,b", *lines]) + "\n")
    Ledger.create(tmp_path / "ledger", Budget(1.0, 0.0, unit="person")).close()
    command = [sys.executable, "-c", _RUN, str(tmp_path)]
    with subprocess.Popen([*command, "25000"], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "holds\n"
        first.kill()
    again = subprocess.run([*command, "-1"], capture_output=True, text=True, check=True)
    monkeypatch.chdir(tmp_path)
    report = [sys.executable, "-m", "dpbandits", "experiment", "report", "test.state"]
    subprocess.run(report, check=True, capture_output=True)
    found = ExperimentResults.from_json((tmp_path / "experiment.json").read_text())
    assert found.verdict == again.stdout.strip()
    assert sum(found.assigned.values()) == 50_000
    assert found.best == "b"
    assert "<svg" in (tmp_path / "experiment.html").read_text()
    (row,) = Ledger.open(tmp_path / "ledger").rows()
    assert row.release == Laplace(1.0, adjacency="replace")


@pytest.mark.slow
def test_fifty_thousand_rows_that_were_split_elsewhere_and_a_command_that_is_killed(tmp_path, monkeypatch):
    """Killed before it has charged, it has cost nothing; after that, its price stays, and no results were seen."""
    pytest.importorskip("pandas")
    draws = np.random.default_rng(770_904)
    arms = draws.integers(2, size=50_000)
    values = draws.random(50_000) < np.array([0.1, 0.15])[arms]
    lines = [f"p{i},{'ab'[k]},{int(v)}" for i, (k, v) in enumerate(zip(arms, values, strict=True))]
    (tmp_path / "test.csv").write_text("\n".join(["person,arm,value", *lines]) + "\n")
    Ledger.create(tmp_path / "ledger", Budget(2.0, 0.0, unit="person")).close()
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "dpbandits", "experiment", "run", "test.csv", "--person", "person"]
    command += ["--ledger", "ledger", "--out", "test.json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as first:
        time.sleep(0.7)
        first.kill()
    before = len(list(Ledger.open(tmp_path / "ledger").rows()))
    assert before in (0, 1)
    subprocess.run(command, check=True, capture_output=True)
    assert ExperimentResults.from_json((tmp_path / "test.json").read_text()).best == "b"
    assert len(list(Ledger.open(tmp_path / "ledger").rows())) == before + 1
