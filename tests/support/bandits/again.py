"""Many runs of one policy, for audits: calibrating a fresh one for every run would take most of the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpbandits.policy.private import PrivatePolicy
from dpkit.states.entries import kept, resume


def rewinder(policy: PrivatePolicy[Any]) -> Callable[[], None]:
    """What takes ``policy`` back to where it is now. The generator goes on, so that every run has fresh noise."""
    public, secret = policy.public, kept(policy, policy.secret)
    decisions, releases = policy.decisions, policy.releases

    def rewind() -> None:
        policy.public = public  # nobody writes to it: a release puts another one in its place
        resume(policy, policy.secret, secret)
        policy.decisions, policy.releases = decisions, releases
        policy.waiting.clear()

    return rewind
