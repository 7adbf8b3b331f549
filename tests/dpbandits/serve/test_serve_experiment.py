"""An experiment in service and from a file: assigned, looked at, killed and resumed, stopped, with its page and price."""

import numpy as np
import pytest
from serving import Clock, configured, drain, refresh, served, worker

from accounting import Laplace, Ledger
from dpbandits import Experiment
from dpbandits.experiment import ExperimentResults
from dpbandits.serve.learner import Learner

RATES = np.array([0.1, 0.14, 0.1])
OPEN = 'class = "Experiment"\narms = ["plain", "witty", "loud"]\nhorizon = {horizon}\nwait = {wait}\nassignment = "fixed"\n'


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
            if start % 1000 == 0:
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


def test_an_experiment_in_service_from_its_first_person_to_the_page(tmp_path):
    found = whole_life(tmp_path, 1000, np.array([0.1, 0.6, 0.1]), 600)
    assert found.best == "witty"
