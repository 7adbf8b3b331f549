"""Named clients: what each may ask, until when, how they change while a service runs, and who is in the ledger."""

import os
import re
import time
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from serving import TOKENS, configured, served, worker, written
from tabled import tabled
from typer.testing import CliRunner

from accounting import Ledger
from dpbandits.cli import app
from dpbandits.serve import clients, operate
from dpbandits.serve.clients import SCOPES, Callers, Client, digest, expiry
from dpbandits.serve.config import Config
from dpbandits.serve.database import Mismatch
from dpbandits.serve.learner import Learner

ARMS = np.eye(3).tolist()
DIGEST = digest("x")


def headed(token="", **more):
    return {b"authorization": f"Bearer {token}".encode()} | {
        name.replace("_", "-").encode(): value.encode() for name, value in more.items()
    }


def named(name, *scopes, **more):
    return Client(name, frozenset([digest(name)]), frozenset(scopes), **more)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_client_may_what_its_scopes_say(scope):
    one = named("one", scope)
    assert [one.may([other]) for other in SCOPES] == [
        other == scope or (scope, other) == ("own", "read") for other in SCOPES
    ]


def test_a_client_is_refused_from_its_expiry_on():
    at = expiry("expires", "2027-06-30")
    assert expiry("expires", "2027-06-30T02:00:00+02:00") == at
    callers = Callers({"one": named("one", "read", expires=at)})
    assert callers.who(headed("one"), now=at - 0.001).name == "one"
    assert callers.who(headed("one"), now=at) is None
    assert callers.who({b"authorization": b"Basic one"}, now=0.0) is None
    assert callers.who({}, now=0.0) is None


def test_the_clock_that_counts_is_the_database_s(tmp_path, monkeypatch):
    """A worker whose own clock is ten years ahead refuses nobody by it."""
    path, real = written(tmp_path), time.time
    later = datetime.fromtimestamp(real() + 3600.0, UTC).isoformat()
    path.write_text(path.read_text().replace("[clients.owner]", f"[clients.owner]\nexpires = {later}"))
    config = configured_from(path)
    monkeypatch.setattr(time, "time", lambda: real() + 10 * 366 * 86400.0)
    with worker(config) as browser:
        assert browser.send("GET", "/v1/releases", "owner").status_code == 200
    early = replace(config, clients={"owner": replace(config.clients["owner"], expires=real() - 1.0)}, path=None)
    monkeypatch.setattr(time, "time", lambda: real() - 3600.0)
    with worker(early) as browser:
        assert browser.send("GET", "/v1/releases", "owner").status_code == 401


def configured_from(path):
    config = Config.read(path)
    operate.init(config)
    return config


def test_clients_change_without_a_restart(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(clients, "_LOOK", 0.0)
    caplog.set_level("INFO", "dpbandits.serve")
    config = configured(tmp_path)
    path = tmp_path / "run.toml"
    before = path.read_text()
    with served(config) as (_, browser):
        assert browser.decide({"arms": ARMS})
        # a token is taken away, and another scope given
        path.write_text(before.replace(digest(TOKENS["decider"]), digest("a-new-one")).replace('"own"', '"decide"'))
        body = {"decisions": [{"arms": ARMS}]}
        assert browser.send("POST", "/v1/decisions", "decider", json=body).status_code == 401
        assert browser.send("POST", "/v1/decisions", "owner", json=body).status_code == 200
        assert "clients were read again; changed: decider, owner" in caplog.text
        # a file that is wrong changes nothing
        for wrong in (before + "[[", before.replace(digest(TOKENS["owner"]), "pasted-token")):
            path.write_text(wrong)
            assert browser.send("POST", "/v1/decisions", "owner", json=body).status_code == 200
        assert "the clients stay as they were" in caplog.text
        assert "pasted-token" not in caplog.text
        # nor one that is not there for a moment, as while it is replaced
        path.unlink()
        assert browser.send("POST", "/v1/decisions", "owner", json=body).status_code == 200
        draft = tmp_path / "draft"
        draft.write_text(before)
        os.replace(draft, path)
        assert browser.decide({"arms": ARMS})
        assert browser.send("POST", "/v1/decisions", "owner", json=body).status_code == 403


def test_a_proxy_names_clients_if_it_proves_that_it_is_one(tmp_path):
    path = written(tmp_path, more=f'[proxy]\nsecret = "{digest("of-the-proxy")}"\nheader = "x-subject"')
    path.write_text(path.read_text() + "[clients.ann]\nscopes = ['read']\n")
    with served(configured_from(path)) as (_, browser):
        asked = [
            ({"X-Proxy-Secret": "of-the-proxy", "X-Subject": "ann"}, 200),
            ({"X-Proxy-Secret": "of-the-proxy", "X-Subject": "bob"}, 401),
            ({"X-Proxy-Secret": "of-the-proxy"}, 401),
            ({"X-Proxy-Secret": "a-guess", "X-Subject": "ann"}, 401),
            ({"X-Subject": "ann"}, 401),
        ]
        for headers, status in asked:
            assert browser.send("GET", "/v1/releases", headers=headers).status_code == status, headers
        ann = {"X-Proxy-Secret": "of-the-proxy", "X-Subject": "ann"}
        assert browser.send("GET", "/v1/raw/curve", headers=ann).status_code == 403
    # without the table nobody reads the headers, and everybody needs a token
    with pytest.raises(ValueError, match=r"clients\.ann\.tokens must be a list of digests .* got none"):
        Config.read(written(tmp_path, more="[clients.ann]\nscopes = ['read']"))


def test_a_service_that_nobody_may_ask_is_none(tmp_path):
    path = written(tmp_path)
    text = path.read_text()
    path.write_text(text[: text.index("[clients.decider]")])
    with pytest.raises(ValueError, match="clients must have at least one"):
        Config.read(path)


@tabled(
    ("more", "message"),
    [
        ("[tokens]\ndecider = []", r"tokens is no table .*\[clients\.NAME\] with tokens, its digests, and scopes"),
        (f'[clients.A]\ntokens = ["{DIGEST}"]\nscopes = ["read"]', "names of small letters"),
        ('[clients.a]\nscopes = ["read"]', r"clients\.a\.tokens must be a list .* got none"),
        (f'[clients.a]\ntokens = ["{DIGEST}"]', r"clients\.a\.scopes must be given"),
        (f'[clients.a]\ntokens = ["{DIGEST}"]\nscopes = []', r"clients\.a\.scopes must be a list of some of decide"),
        (f'[clients.a]\ntokens = ["{DIGEST}"]\nscopes = ["write"]', "some of decide, reward, read, own, got"),
        (f'[clients.a]\ntokens = ["{DIGEST}"]\nscopes = ["read"]\nexpires = 5', "expires must be a date such as"),
        (
            f'[clients.a]\ntokens = ["{DIGEST}"]\nscopes = ["read"]\nexpires = 2027-01-01T00:00:00',
            "or a time with its zone",
        ),
        (f'[clients.a]\ntokens = ["{DIGEST}"]\nscopes = ["read"]\ndecisions = 0', "must be at least 1 a minute"),
        (f'[clients.a]\ntokens = ["{DIGEST}"]\nscopes = ["read"]\nscope = 0', r"clients\.a\.scope is no key"),
        ("[proxy]\nsecret = 'x'", "proxy.secret must be a digest"),
        (f"[proxy]\nsecret = '{DIGEST}'\nheader = 'X Y'", "proxy.header must be a header's name"),
    ],
)
def test_mistakes_are_named(tmp_path, more, message):
    path = written(tmp_path, more=more)
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + message):
        Config.read(path)


def test_the_ledger_says_who_began_a_run(tmp_path):
    path = written(tmp_path)
    assert CliRunner().invoke(app, ["serve", "init", str(path)]).exit_code == 0
    (row,) = Ledger.open(Config.read(path).ledger).rows()
    assert row.actor.startswith("user ")
    assert row.label == "service"


def test_a_run_in_a_scope_leaves_the_others_their_budget(tmp_path):
    """Two services of disjoint people share a ledger, each with the whole budget."""
    for name in ("north", "south"):
        (tmp_path / name).mkdir()
        storage = f'ledger = "{tmp_path}/shared.ledger"'
        path = written(tmp_path / name, storage=storage, more=f'[service]\nlabel = "{name}"')
        path.write_text(path.read_text().replace("[budget]", f'[budget]\nscope = "{name}"'))
        operate.init(Config.read(path), actor=name)
    ledger = Ledger.open(tmp_path / "shared.ledger")
    assert [(row.scope, row.actor) for row in ledger.rows()] == [("north", "north"), ("south", "south")]
    assert ledger.epsilon() == pytest.approx(1.0, abs=1e-6)
    config = Config.read(path)
    well, said = operate.doctor(config)
    assert well, said
    # the guarantee rests on whose data these are
    with pytest.raises(Mismatch, match=r"budget\.scope must stay what the run was begun with, 'south', got 'west'"):
        Learner(replace(config, scope="west"))
