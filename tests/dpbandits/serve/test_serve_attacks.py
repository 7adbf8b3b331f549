"""What a token of one role must not do to everybody else, and restored databases: each of these once worked."""

import json
import shutil
import sqlite3

import numpy as np
import pytest
from pydantic import ValidationError
from serving import configured, refresh, there, worker
from tabled import tabled

from dpbandits.serve import desk, posts
from dpbandits.serve.apprentice import Event, report, sums
from dpbandits.serve.config import Mismatch
from dpbandits.serve.learner import Learner
from dpbandits.serve.messages import Asked, Rewards, Tickets, bounded
from dpbandits.serve.store import Choice
from dpbandits.serve.tickets import punched, read

ARMS = np.eye(3).tolist()


@tabled("probability", [5e-324, 1e-200, 1e-160, 1e-12, 1.0])
@tabled("reward", [0.0, 1.0, -1e3])
def test_no_probability_makes_a_sum_that_is_no_number(probability, reward):
    """They stopped the learner for good, or the worker that was asked for the report."""
    added = sums(Event(1, 1, 1, reward, 1, probability))
    assert np.isfinite(added).all()
    json.dumps(report(added), allow_nan=False)
    assert added[3] == (probability >= 1e-12)  # else it counts as unknown


def test_no_person_turns_others_away_and_an_error_inside_is_an_answer(tmp_path, monkeypatch):
    config = configured(tmp_path, unit="person")
    learner = Learner(config)
    with worker(config) as browser:
        refresh(browser, 0)
        asked = {"decisions": [{"arms": ARMS, "person": "a\0b"}]}
        answer = browser.send("POST", "/v1/decisions", "decider", json=asked)
        assert (answer.status_code, answer.json()["error"]) == (422, "person must not hold the character NUL")

        def broken(*_, **__):
            raise ZeroDivisionError("of a person")

        monkeypatch.setattr(posts, "_chosen", broken)
        asked["decisions"][0]["person"] = "ab"
        answer = browser.send("POST", "/v1/decisions", "decider", json=asked)
        assert (answer.status_code, answer.json()["error"]) == (500, "an error inside the service")
        assert 'route="/v1/decisions",status="5xx"} 1' in browser.send("GET", "/metrics").text
    learner.close()


@tabled(
    ("model", "name", "part"),
    [
        (Asked, "decisions", 1),
        (Asked, "decisions", {"arms": [["a"] * 9] * 9}),
        (Rewards, "rewards", {}),
        (Tickets, "tickets", ""),
    ],
)
@tabled("count", [9, 100])
def test_the_first_error_of_a_list_is_enough(model, name, part, count):
    """Four megabytes of errors took twenty seconds, in which a worker answers nobody."""
    with pytest.raises(ValidationError) as caught:
        bounded(model, name, 10).model_validate_json(json.dumps({name: [part] * count}))
    assert caught.value.error_count() <= 2
    with pytest.raises(ValidationError, match="too_long"):
        bounded(Asked, "decisions", 10).model_validate_json(json.dumps({"decisions": [{}] * 11}))


@pytest.mark.parametrize("more", ["AAAA", "=", "\n", "*"])
def test_a_ticket_is_one_text(more):
    key = "5e" * 32
    ticket = punched(Choice(0, 0.5, np.ones(1)), key)
    assert read(ticket, key).probability == 0.5
    assert read(ticket + more, key) is None
    assert read(more + ticket, key) is None


def test_a_decision_that_was_answered_with_a_ticket_is_not_written_as_well(tmp_path, monkeypatch):
    """Else one visit is two rounds, one of them with a default reward, and the budget holds for one."""
    monkeypatch.setattr(desk, "_PATIENCE", 0.1)
    config = configured(tmp_path)
    learner = Learner(config)
    with worker(config) as browser:
        refresh(browser, 0)
        with learner._store.writing():  # a writer that takes long
            (found,) = browser.decide({"arms": ARMS})
        assert found["id"] is None
        monkeypatch.undo()  # what follows may take as long as it takes
        there(browser)
        assert learner._store.decided() == 0
        (made,) = browser.activate(found["ticket"])
        assert made["id"].startswith("1-")
        assert learner._store.decided() == 1
    learner.close()


def test_a_database_that_is_older_than_the_checkpoint_is_refused(tmp_path):
    """Numbers were given twice, and rewards learned for the arms of others."""
    config = configured(tmp_path)
    copy = tmp_path / "copy"

    def decide():
        learner = Learner(config)
        with worker(config) as browser:
            refresh(browser, 0)
            browser.decide(*[{"arms": ARMS}] * 3)
            while learner.step():
                pass
        learner.close()

    decide()
    with sqlite3.connect(config.database) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    source.close()
    target.close()
    decide()
    for end in ("-wal", "-shm"):
        config.database.with_name(config.database.name + end).unlink(missing_ok=True)
    shutil.copy(copy, config.database)
    with pytest.raises(Mismatch, match=r"which has 6 decisions, got .* with 3"):
        Learner(config)
