"""``python -m pytest --cpu``: the processor time of the tests of each directory."""

import os
from collections import Counter

import pytest


def _used() -> float:
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system


class ProcessorTime:
    """With fixtures, processes that a test waited for, and pytest's own work between tests; without collection."""

    def __init__(self):
        self._since: float | None = None
        self._seconds: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()

    def pytest_runtest_logstart(self) -> None:
        self._since = _used() if self._since is None else self._since

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call):
        report = yield
        if call.when == "teardown":
            now = _used()
            report.processor_time, self._since = now - self._since, now  # which goes from a worker to the master
        return report

    def pytest_runtest_logreport(self, report) -> None:
        if report.when == "teardown":
            place = os.path.dirname(report.nodeid.partition("::")[0])
            self._seconds[place] += report.processor_time
            self._tests[place] += 1

    def pytest_terminal_summary(self, terminalreporter) -> None:
        terminalreporter.section(f"processor time: {self._seconds.total():.1f} s in {self._tests.total()} tests")
        for place, seconds in self._seconds.most_common():
            terminalreporter.line(f"{seconds:8.1f} s {self._tests[place]:6} {place}")
