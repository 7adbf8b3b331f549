"""The service's file: every mistake is named with its key, its value and the way out."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from serving import TOKENS, Clock, configured, written
from tabled import tabled

from accounting import Budget, Ledger
from dpbandits.policies import DisjointPrivateGLM
from dpbandits.serve import __main__ as process
from dpbandits.serve import supervise
from dpbandits.serve.clients import digest
from dpbandits.serve.config import Config
from dpbandits.serve.many.group import read_any


def test_what_a_file_says(tmp_path):
    config = configured(
        tmp_path,
        policy='class = "DisjointPrivateGLM"\ndim = 2\narms = ["a", "b"]\nhorizon = 90\nreward_range = [0.0, 2.0]',
        more="[rewards]\nwait = 60\ndefault = 0.5\n[service]\nmode = 'apprentice'\nport = 0\n[limits]\nbatch = 7",
    )
    assert config.kind is DisjointPrivateGLM
    probe = config.probe()
    assert probe.reward_range == (0.0, 2.0)
    assert probe.horizon == 90
    assert (config.wait, config.default, config.apprentice, config.limits.batch) == (60.0, 0.5, True, 7)
    assert config.database == tmp_path / "service.database"
    assert config.generator() is None  # the secure source


def test_a_range_may_be_learned(tmp_path):
    config = configured(tmp_path, policy='class = "PrivateArms"\narms = 2\nhorizon = 9000\nreward_range = "learned"')
    assert config.probe().stated_range == "learned"
    assert config.probe().checked_reward(1e6) == 1e6


@pytest.mark.parametrize("name", ["run.toml", "run.postgres.toml"])
def test_the_examples_are_read(name):
    config = Config.read(Path(__file__).resolve().parents[3] / "examples" / "serve" / name)
    assert config.clients["owner"].digests == {digest("owner")}
    assert config.together == ("postgres" in name)


def test_the_file_of_the_manual_is_read_with_all_its_settings(tmp_path):
    """The first one as it is, and with the values of the second in their places."""
    manual = (Path(__file__).resolve().parents[3] / "docs" / "service.md").read_text(encoding="utf-8")
    whole, optional = re.findall(r"```toml\n(.*?)```", manual, flags=re.DOTALL)
    place = tmp_path / "run.toml"
    place.write_text(whole, encoding="utf-8")
    plain = Config.read(place)
    assert plain.clients["website"].digests == {digest("website")}
    storage, others = optional.replace("/elsewhere", str(tmp_path)).replace("4f1a…", "4f1a" * 16).split("[rewards]")
    place.write_text(whole.replace("[storage]", storage) + "[rewards]" + others, encoding="utf-8")
    config = Config.read(place)
    assert (config.limits, config.workers, config.port) == (plain.limits, plain.workers, plain.port)
    assert (config.admin, plain.admin) == (9090, None)


def test_the_file_of_a_group_in_the_documentation_is_read(tmp_path):
    text = (Path(__file__).resolve().parents[3] / "docs" / "many-runs.md").read_text(encoding="utf-8")
    block = re.search(r"```toml\n(.*?)```", text, flags=re.DOTALL)[1].replace("4f1a…", "ab" * 32)
    digests = iter(range(9))
    path = tmp_path / "file.toml"
    path.write_text(re.sub("sha256:…", lambda _: digest(str(next(digests))), block), encoding="utf-8")
    assert {"own"} in [one.scopes for one in read_any(path).clients.values()]


A_POLICY = 'class = "OnePassPrivateGLM"\ndim = 3\nhorizon = 9\n'
PLACE = "postgresql://a:secret@h/d"


@tabled(
    ("part", "text", "message"),
    [
        ("storage", f'database = "{PLACE}"\nledger = "{PLACE}?schema=service"', "different places"),
        ("storage", f'checkpoint = "{PLACE}"', "checkpoint must be a file on the learner's own disk"),
        ("storage", 'ledger = "service.database"', "different places"),
        ("more", "[servise]", "servise is no key of the file"),
        (
            "more",
            "[service]\nhots = 1",
            "service.hots is no key of the file: it must be one of admin, host, label,",
        ),
        ("more", "[service]\nport = 'x'", "service.port must be of type int, got port='x'"),
        ("more", "[service]\nworkers = 0", "service.workers must lie in 1, …, 1000, got workers=0"),
        ("more", "[service]\nworkers = true", "service.workers must be of type int, got workers=True"),
        ("more", "[service]\nmode = 'x'", "service.mode must be 'bandit' or 'apprentice', got mode='x'"),
        ("more", "[rewards]\nwait = 1.0", "rewards must have both wait and default or neither"),
        (
            "more",
            "[rewards]\nwait = -1.0\ndefault = 0",
            "rewards.wait must be a positive number of seconds, got wait=-1.0",
        ),
        ("more", "[rewards]\nwait = nan\ndefault = 0", "rewards.wait must be a finite number, got wait=nan"),
        ("more", "[rewards]\nwait = 1.0\ndefault = 7.0", "rewards.default must be a reward: .* got reward=7.0"),
        ("more", "[page]\nreference = [[[9.0, 0.0, 0.0]]]", "arms must have norm at most 1"),
        ("more", "[[", "must be TOML"),
        (
            "policy",
            'class = "Uniform"',
            "policy.class must be a private policy, .*OnePassPrivateGLM.*got class='Uniform'",
        ),
        ("policy", A_POLICY + "growht = 2.0", "policy.growht is no key .*growth"),
        ("policy", A_POLICY + "growth = 0.5", "growth must be at least 1, got growth=0.5"),
        ("policy", A_POLICY + "budget = 1", "policy.budget is no key"),
        ("policy", "dim = 3", "policy.class must be given"),
        (
            "policy",
            A_POLICY.replace("dim = 3", ""),
            "policy.dim must be given: OnePassPrivateGLM has no default for it",
        ),
        ("policy", 'class = "nowhere.to.be:Found"', "policy.class must be in a module that imports.*nowhere"),
        ("policy", 'class = "json:JSONDecoder"', "policy.class must be a private policy"),
        (
            "policy",
            'class = "JointDPGLM"\ndim = 3\nhorizon = 60\nparameters = "published"',
            "policy.parameters must not be 'published'",
        ),
    ],
)
def test_mistakes_are_named(tmp_path, part, text, message):
    path = written(tmp_path, **{part: text})
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + message) as caught:
        Config.read(path)
    assert "secret" not in str(caught.value)


def test_a_token_in_place_of_its_digest_is_not_repeated(tmp_path):
    path = written(tmp_path)
    path.write_text(path.read_text().replace(digest(TOKENS["owner"]), "my-secret-token"))
    with pytest.raises(ValueError, match=r"clients\.owner\.tokens must be a list of digests") as caught:
        Config.read(path)
    assert "my-secret-token" not in str(caught.value)
    path.write_text(written(tmp_path).read_text().replace(digest(TOKENS["owner"]), digest(TOKENS["decider"])))
    with pytest.raises(ValueError, match=r"clients\.decider and clients\.owner must have no token in common"):
        Config.read(path)


def test_a_run_keeps_its_parameters(tmp_path):
    policy = configured(tmp_path).open_policy()
    del policy
    other = configured(tmp_path, policy='class = "OnePassPrivateGLM"\ndim = 3\nhorizon = 300\nexploration = 0.7')
    with pytest.raises(ValueError, match=r"policy\.exploration must stay .* 0\.\d, got 0\.7"):
        other.open_policy()
    with pytest.raises(ValueError, match="budget"):
        configured(tmp_path, epsilon=2.0).open_policy()


def test_a_run_whose_checkpoint_is_missing_is_not_begun_again(tmp_path):
    config = configured(tmp_path)
    policy = config.open_policy()
    del policy
    config.checkpoint.unlink()
    with pytest.raises(ValueError, match=r"storage\.checkpoint must be that of the run 'service'.*is missing"):
        config.open_policy()


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*absent\.toml"):
        Config.read(tmp_path / "absent.toml")


@pytest.mark.parametrize(("status", "tries"), [(supervise.MISFIT, 3), (1, 10), (-9, None)])
def test_who_ends_by_an_error_again_and_again_is_given_up(tmp_path, monkeypatch, status, tries):
    """A refusal of what is on disk soon, an error after some tries, and who is killed never."""
    clock, starts = Clock(0.0), []

    class Ended:
        def poll(self):
            return status

    monkeypatch.setattr(supervise, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(supervise.Service, "start", lambda self, role, _: starts.append(role) or Ended())
    service = supervise.Service(written(tmp_path), workers=0)
    service.look()
    clock.now = 0.9
    service.look()
    assert starts == ["learner"]
    while not service.failed and len(starts) < 30:
        clock.now += 1.0
        service.look()
    assert len(starts) == (tries or 30)
    if tries:
        assert f"the learner has ended {tries} times in a row with status {status}" in service.failed
        assert "dpbandits serve doctor" in service.failed


def test_who_lived_long_enough_is_started_again(tmp_path, monkeypatch):
    clock, starts = Clock(0.0), []
    ended = SimpleNamespace(poll=lambda: supervise.MISFIT)
    monkeypatch.setattr(supervise, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(supervise.Service, "start", lambda self, role, _: starts.append(role) or ended)
    service = supervise.Service(written(tmp_path), workers=0)
    for _ in range(9):
        service.look()
        clock.now += 60.0
    assert len(starts) == 9
    assert service.failed == ""


def test_a_learner_says_that_it_does_not_fit(tmp_path, capsys, monkeypatch):
    config = configured(tmp_path)
    config.ledger.unlink()
    Ledger.create(config.ledger, Budget(2.0, 1e-6)).close()
    monkeypatch.setattr(process.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        process.learner(config)
    assert ended.value.code == supervise.MISFIT
    assert "learner: storage.ledger must be of this budget" in capsys.readouterr().err


def test_processes_get_one_thread_of_the_blas_unless_the_owner_says_otherwise(tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(supervise.subprocess, "Popen", lambda command, **more: given.update(more["env"]))
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    supervise.Service(written(tmp_path), workers=0).start("learner")
    assert (given["OPENBLAS_NUM_THREADS"], given["OMP_NUM_THREADS"]) == ("1", "4")
    assert given["PATH"] == os.environ["PATH"]
