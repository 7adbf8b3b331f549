"""A process that spends from a shared ledger is killed again and again: what it released was always recorded."""

import errno
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from ledgers import opened

from accounting import Budget, Gaussian, Ledger
from accounting.ledger.storage import new_file

# of processes that spend from a file, or from a server, on which starting takes ten times as long
KILLS = {"file": 39, "server": 13}
KILLS_PER_LEDGER = 13


def spend_until_killed(path, released, name, stay):
    """Record, then release (append a line to a file that the ledger knows nothing of), then commit; for ever.

    Or stay before the first commit: so some kill surely falls there, whatever the machine does meanwhile.
    """
    descriptor = os.open(released, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    ledger = opened(path)
    for count in range(10**9):
        label = f"{name}.{count}"
        row = ledger.spend(Gaussian(1.0 + count), label=label)
        os.write(descriptor, f"{label}\n".encode())
        while stay:
            time.sleep(60.0)
        ledger.commit(row)


def start(*arguments):
    pid = os.fork()
    if pid == 0:
        try:
            spend_until_killed(*arguments)
        finally:
            os._exit(1)
    return pid


def wait_for(released, true):
    """Until it is true of what was released."""
    deadline = time.monotonic() + 120
    while not true(released.read_text().splitlines() if released.exists() else []):
        assert time.monotonic() < deadline
        time.sleep(0.0005)


@pytest.mark.thorough
def test_a_killed_process_never_released_more_than_it_recorded(tmp_path, new, request):
    kind = request.node.callspec.params["new"]
    generator = random.Random(0)
    recorded = reserved = killed = 0
    for kill in range(KILLS[kind]):
        number = kill // KILLS_PER_LEDGER
        killed = killed if kill % KILLS_PER_LEDGER else 0
        path, released = new(str(number)), tmp_path / f"{number}.released"
        # every third time a second process spends beside the one that is killed, and is killed after it
        stays = kill % KILLS_PER_LEDGER == KILLS_PER_LEDGER - 1
        names = [f"{kill}{side}" for side in "ab"[: 2 if kill % 3 == 0 else 1]]
        children = {name: start(path, released, name, stays) for name in names}
        for name, child in children.items():
            if stays:
                wait_for(released, lambda lines: f"{name}.0" in lines)  # noqa: B023
            elif generator.random() < 0.5:  # anywhere, the opening of the ledger included
                time.sleep(generator.uniform(0.0, 0.012 if kind == "file" else 0.1))
            else:  # in the midst of spending, however slow the machine
                last = generator.randrange(3)
                wait_for(released, lambda lines: f"{name}.{last}" in lines)  # noqa: B023
                time.sleep(generator.uniform(0.0, 0.002))
            os.kill(child, signal.SIGKILL)
        for child in children.values():
            assert os.waitpid(child, 0)[1] == signal.SIGKILL
        with Ledger.open(path) as ledger:  # which verifies the chain
            rows = ledger.rows()
        labels = {row.label for row in rows}
        assert len(labels) == len(rows)
        lines = released.read_text().splitlines() if released.exists() else []
        assert set(lines) <= labels
        killed += len(children)
        assert len(rows) - len(lines) <= killed  # each death costs at most the one release that it interrupted
        assert {row.label for row in rows if row.outcome == "released"} <= set(lines)
        recorded += len(rows)
        reserved += sum(row.outcome == "reserved" for row in rows)
    # there was something to lose, and kills did fall between the steps
    assert recorded > KILLS[kind]
    assert reserved > 0


def test_a_file_system_without_links_makes_a_ledger_once(tmp_path, monkeypatch):
    def none(*_: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", none)
    monkeypatch.setattr(new_file, "_LONGEST_CLAIM", 60.0)
    budget = Budget(1.0, 1e-6)
    for race in range(20):
        path, ready = tmp_path / f"{race}.ledger", threading.Barrier(4)

        def make(path=path, ready=ready):
            ready.wait()
            with opened(path, budget) as ledger:
                ledger.spend(Gaussian(50.0))

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(make) for _ in range(4)]:
                done.result()
        with Ledger.open(path) as ledger:
            assert len(ledger.rows()) == 4
        assert [name for name in os.listdir(tmp_path) if "claim" in name] == []
    # whoever was killed while it held the claim leaves a folder, and the message names it
    monkeypatch.setattr(new_file, "_LONGEST_CLAIM", 0.05)
    (tmp_path / ".new.ledger.claim").mkdir()
    with pytest.raises(OSError, match=r"remove the folder.*\.new\.ledger\.claim"):
        Ledger.create(tmp_path / "new.ledger", budget)
    assert not (tmp_path / "new.ledger").exists()
