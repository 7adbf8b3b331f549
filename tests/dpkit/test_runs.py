"""What a run marks in its ledger, and what whoever may not go on with it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ledgers import Shelf

from accounting import Budget, Ledger
from dpkit.states import Run, RunStopped
from dpkit.states.run import newest

B = Budget(1.0, 1e-6)


def release(run: Run, state: dict[str, Any] | None = None) -> None:
    """One, of nothing."""
    run.check_process()
    with run.lock:
        run.begin()
        run.commit((lambda: state) if state is not None else None)
        run.end()


def resumed(saved: dict[str, Any], ledger: Ledger | None, **more: Any) -> Run:
    run = Run("sums", ledger=ledger)
    run.resume(saved, ledger=ledger, unattended=False, **more)
    return run


def test_a_ledger_has_a_mark_only_of_what_may_have_a_double() -> None:
    ledger = Ledger(B)
    run = Run("sums", ledger=ledger)
    for _ in range(3):
        release(run)
    assert ledger.newest_mark(run.id) is None  # no state of it is anywhere
    run.state()
    for _ in range(3):
        release(run)
    mark = ledger.newest_mark(run.id)
    assert mark is not None
    assert (mark.step, run.step) == (4, 6)  # the first after the state went out
    run.state()
    release(run)
    mark = ledger.newest_mark(run.id)
    assert mark is not None
    assert mark.step == 7


def test_a_checkpoint_is_a_state_that_is_out(tmp_path: Path) -> None:
    ledger = Ledger(B)
    run = Run("sums", ledger=ledger)
    run.keep_in(tmp_path / "sums.state")
    for step in range(1, 4):
        release(run, {"total": float(step)})
        mark = ledger.newest_mark(run.id)
        assert (0 if mark is None else mark.step) == (0 if step == 1 else step)
        tree, digest = newest(tmp_path / "sums.state", ledger)
        assert (tree["total"], tree["run"]["step"]) == (step, step)
        assert mark is None or mark.digest == digest
        assert sorted(path.name for path in tmp_path.iterdir()) == [".sums.state.lock", "sums.state"]


def test_a_draft_whose_mark_the_witness_lacks_is_not_moved(tmp_path: Path) -> None:
    shelf = Shelf()
    ledger = Ledger.create(tmp_path / "ledger", B, witness=shelf)
    run = Run("sums", ledger=ledger)
    run.keep_in(tmp_path / "sums.state")
    release(run, {"total": 1.0})
    before = (tmp_path / "sums.state").read_bytes()
    shelf.away = True
    for _ in range(2):
        with pytest.raises(OSError, match="out of reach"):
            release(run, {"total": 2.0}) if run.stopped is None else newest(tmp_path / "sums.state", ledger)
        assert (tmp_path / "sums.state").read_bytes() == before
    shelf.away = False
    assert newest(tmp_path / "sums.state", ledger)[0]["total"] == 2.0
    assert len(shelf.objects) == ledger.entries == 2
    # and by the word of a ledger that is opened without its witness none is moved
    with pytest.raises(ValueError, match="made with a witness, and was opened without"):
        newest(tmp_path / "sums.state", Ledger.open(tmp_path / "ledger"))


def test_of_two_that_go_on_with_a_state_one_is_stopped_for_good(tmp_path: Path) -> None:
    ledger = Ledger(B)
    run = Run("sums", ledger=ledger)
    release(run)
    saved = run.state()
    first, second = resumed(saved, ledger), resumed(saved, ledger)
    second.keep_in(tmp_path / "second.state")
    release(first)
    for _ in range(2):
        with pytest.raises(RunStopped, match="another process goes on with this run") as stopped:
            release(second, {"total": 1.0})
        # the checkpoint that it has kept is no way out
        assert "load the newest checkpoint" not in str(stopped.value)
        assert "at its end" not in str(stopped.value)
    assert [path.name for path in tmp_path.iterdir()] == [".second.state.lock"]  # no draft, and nothing in its place
    release(first)
    mark = ledger.newest_mark(run.id)
    assert mark is not None
    assert mark.step == 2 == saved["step"] + 1
    with pytest.raises(ValueError, match="must be the newest of its run"):
        resumed(saved, ledger)


@pytest.mark.parametrize("kept", [True, False])
def test_who_was_stopped_in_a_release_is_told_the_way_out(tmp_path: Path, kept: bool) -> None:
    run = Run("sums")
    if kept:
        run.keep_in(tmp_path / "sums.state")
    release(run, {"total": 1.0})
    with run.lock:
        run.begin()  # and an interrupt comes
    way_out = "load the newest checkpoint, .*sums.state" if kept else "must not be noised again"
    for call in (run.begin, run.state, run.check):
        with pytest.raises(RunStopped, match=f"stopped at release 2: .*{way_out}"):
            call()
    assert (run.step, repr(run)) == (2, "Run('sums'): 2 releases, stopped")


def test_a_second_continuation_is_refused_at_once_where_it_is_asked_for() -> None:
    ledger = Ledger(B)
    run = Run("sums", ledger=ledger)
    release(run)
    saved = run.state()
    first = resumed(saved, ledger, once=True)
    mark = ledger.newest_mark(run.id)
    assert mark is not None
    assert mark.step == first.step == saved["step"] + 1
    with pytest.raises(ValueError, match=r"marked release 2 of 'sums', got another state, at release 1"):
        resumed(saved, ledger, once=True)
    release(first)
    assert first.step == 3


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("id", ["", "0" * 31, "0" * 33, "A" * 32, "g" * 32, 7]),
        ("anchor", ["0", "0" * 63, "0" * 65, "A" * 64, 7]),
        ("step", [-1, 2**62, 1.0, True, "1"]),
        ("ledger", [0, 1, "True"]),
    ],
)
def test_a_run_that_cannot_be_is_refused_and_named(name: str, values: list[Any]) -> None:
    saved = {"id": "0f" * 16, "step": 3, "anchor": "", "ledger": False}
    for value in values:
        with pytest.raises(ValueError, match=f"{name} must be"):
            Run("sums").resume({**saved, name: value}, ledger=None, unattended=True)
    with pytest.raises(ValueError, match=f"must have an entry '{name}'"):
        Run("sums").resume({key: saved[key] for key in saved if key != name}, ledger=None, unattended=True)
    run = Run("sums")
    run.resume({**saved, "anchor": "0f" * 32}, ledger=None, unattended=True)
    assert (run.id, run.step, run.state()["anchor"]) == (saved["id"], 3, "0f" * 32)


def test_a_state_without_a_ledger_goes_on_by_word_only_and_one_with_a_ledger_by_that() -> None:
    saved = {"id": "0f" * 16, "step": 3, "anchor": "", "ledger": False}
    with pytest.raises(ValueError, match="unattended=True says that it is the newest"):
        Run("sums").resume(saved, ledger=None, unattended=False)
    Run("sums", simulation=True).resume(saved, ledger=None, unattended=False)  # its noise comes again as it was
    for unattended in (True, False):
        with pytest.raises(ValueError, match="ledger must be given for a state that was made with one"):
            Run("sums").resume({**saved, "ledger": True}, ledger=None, unattended=unattended)
        Run("sums").resume({**saved, "ledger": True}, ledger=Ledger(B), unattended=unattended)


@pytest.mark.parametrize("how", ["closed", "without its witness"])
def test_a_ledger_that_takes_no_mark_is_no_double(how: str, tmp_path: Path) -> None:
    """It says itself why; and the release is neither seen nor left in a draft."""
    ledger = Ledger.create(tmp_path / "ledger", B, witness=tmp_path / "witness")
    run = Run("sums", ledger=ledger)
    run.keep_in(tmp_path / "sums.state")
    release(run, {"total": 1.0})
    if how == "closed":
        ledger.close()
    else:
        run.ledger = Ledger.open(tmp_path / "ledger")
    with pytest.raises(ValueError, match=r"the ledger is closed|was made with a witness, and was opened without"):
        release(run, {"total": 2.0})
    with pytest.raises(RunStopped, match=r"stopped at release 2: load the newest checkpoint, .*sums\.state"):
        release(run, {"total": 2.0})
    assert list(tmp_path.glob("*.draft")) == []
    tree, _ = newest(tmp_path / "sums.state", None)
    assert tree["total"] == 1.0
