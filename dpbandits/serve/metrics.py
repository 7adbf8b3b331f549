"""Counts and times of requests, in Prometheus's text format."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import defaultdict

__all__ = ["BOUNDS", "Meter"]

BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class Meter:
    """Counts and times of this process's requests, by route and kind of answer.

    That a reward came, and when, is a person's data (it may be missing): that route is told to owners alone.
    """

    def __init__(self) -> None:
        self._answers: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._times: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
        self._sums: defaultdict[str, float] = defaultdict(float)

    def count(self, route: str, status: int, seconds: float) -> None:
        """One request was answered."""
        self._answers[route, f"{status // 100}xx"] += 1
        self._sums[route] += seconds
        self._times[route][bisect_left(BOUNDS, seconds)] += 1

    def to_dict(self) -> dict[str, object]:
        """All of it, for JSON."""
        answers = [(route, kind, number) for (route, kind), number in list(self._answers.items())]
        return {"answers": answers, "times": dict(self._times), "sums": dict(self._sums)}

    def text(self, *, private: frozenset[str]) -> list[str]:
        """In Prometheus's text format, without the routes that are ``private``."""
        who = f'worker="{os.getpid()}"'
        lines = ["# TYPE dpbandits_requests_total counter"]
        for (route, kind), number in sorted(self._answers.items()):
            if route not in private:
                lines.append(f'dpbandits_requests_total{{{who},route="{route}",status="{kind}"}} {number}')
        lines.append("# TYPE dpbandits_request_seconds histogram")
        for route, counts in sorted(self._times.items()):
            if route in private:
                continue
            total = 0
            for bound, number in zip((*BOUNDS, "+Inf"), counts, strict=True):
                total += number
                lines.append(f'dpbandits_request_seconds_bucket{{{who},route="{route}",le="{bound}"}} {total}')
            lines.append(f'dpbandits_request_seconds_sum{{{who},route="{route}"}} {self._sums[route]:.6f}')
            lines.append(f'dpbandits_request_seconds_count{{{who},route="{route}"}} {total}')
        return lines
