"""Saved and loaded policies of named arms, while arms come and go: both go on alike, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpbandits import Policy


def goes_on(policy: Any, when: int, path: Path, rounds: int = 60) -> Policy:
    """Plays "a" and "b", saves the policy at ``path`` after ``when`` rounds, and plays it on beside what is loaded.

    "c" comes in round 20 and "a" goes in round 30. Of three rounds one has no reward; that of round 9 is late.
    """
    _play(policy, 0, when)
    policy.save(path)
    again = Policy.load(path, unattended=True)
    assert repr(again.kept()) == repr(policy.kept())
    assert _play(again, when, rounds) == _play(policy, when, rounds)
    assert repr(again.kept()) == repr(policy.kept())
    return again


def _play(policy: Any, first: int, last: int) -> list[tuple[int, list[float]]]:
    out = []
    for t in range(first, last):
        if t == 20:
            policy.add_arm("c")
        if t == 30:
            policy.retire_arm("a")
        decision = policy.select()
        out.append((decision.index, decision.scores.tolist()))
        if t % 3:
            policy.update(decision, float(t % 2))
        if t == 10 and 9 in policy.open_decisions:
            policy.update(9, 1.0)
    return out
