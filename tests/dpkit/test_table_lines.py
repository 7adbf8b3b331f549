"""Lines of a table by several processes: an interrupt ends all of them."""

import multiprocessing
import signal
import time

import pytest

from dpkit.reproduce._lines import completed


@pytest.mark.skipif(multiprocessing.get_start_method() != "fork", reason="looks at the children of a fork")
def test_an_interrupt_ends_what_the_other_processes_do():
    workers = []

    def interrupt(lines, total):
        assert total == 2
        workers.extend(multiprocessing.active_children())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        completed([0, 600], {}, time.sleep, 2, interrupt)  # a line is made by sleeping for so many seconds
    for worker in workers:
        worker.join()
    assert any(worker.exitcode == -signal.SIGTERM for worker in workers)
