"""Seeded schedules of crashes, copies put back, clocks that jump and two learners; a failure names its seed.

``SCHEDULES=100000 python -m pytest -m slow tests/dpbandits/serve/test_serve_simulation.py`` plays more of them, and
``outcome(seed, patch)`` of ``simulated_service`` plays one again.
"""

import os
from contextlib import contextmanager

import pytest
from simulated_service import Policy, Shelf, Violated, outcome

from accounting.ledger.storage.witness import Watch
from dpbandits.serve.learner import Learner
from dpbandits.serve.lineage import Ids, Named, Trail
from dpbandits.serve.store import Store

FEW, MANY = 150, int(os.environ.get("SCHEDULES", "20000"))


def played(seeds):
    total = dict.fromkeys(("releases", "restores", "kills", "backwards", "accepted", "closed"), 0)
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patch:
            world = outcome(seed, patch)
        total = {name: count + getattr(world, name) for name, count in total.items()}
    return total


@pytest.mark.thorough
def test_schedules_keep_every_invariant():
    total = played(range(FEW))
    assert min(total.values()) > FEW // 12, total  # what could go wrong has happened


# A database is put back that is newer than the learner, and rounds of it were learned from and erased. A restore kept
# the count of those: the next start took the new rounds for missing ones and refused them, and they were not erased.
FOUND = (1_036_247, 1_039_081, 1_042_042, 1_069_355)


def test_schedules_that_once_failed():
    played(FOUND)


@pytest.mark.slow
def test_many_schedules_keep_every_invariant():
    print(played(range(FEW, FEW + MANY)))


# ------------------------------------------------------------------------------------------------------- planted faults


def heals_by_a_count(patch):
    """The learner goes on once the database has as many decisions as it knows, as it once did."""

    def follow(self, decisions):
        here = self.policy.decisions
        count, _, _, knocked = self.store.chain()
        if count < here:
            raise OSError("not yet")
        self._trail.first, self._trail.digests = here, [""] * (len(decisions) + 1)
        self._trail.keep()
        return knocked

    patch.setattr(Learner, "_follow", follow)
    patch.setattr(Learner, "_opened_trail", lambda self: Trail.read(None))


def confirms_unseen(patch):
    """Workers write to whatever database they are connected to."""

    writing = Store.writing

    @contextmanager
    def sure(self, connection=None):
        with writing(self, connection):
            self.confirmed = True
            yield

    patch.setattr(Store, "writing", sure)


def takes_any_id(patch):
    """A reward goes to the round of its number."""
    patch.setattr(Ids, "read", lambda self, id: Named(int(id.partition("-")[0]), "", proven=True))
    patch.setattr("dpbandits.serve.store.secrets.compare_digest", lambda *_: True)


def asks_no_witness_before_a_release(patch):
    patch.setattr(Watch, "follow", lambda self: None)


def has_a_witness_that_takes_both(patch):
    """Whoever comes with another history is believed."""

    def add(self, rows):
        for row in rows:
            del self.entries[row[0] :]
            self.entries.append(row)

    patch.setattr(Shelf, "add", add)
    patch.setattr(Watch, "check", lambda self: None)


def deletes_rewards_too_early(patch):
    """Before the journal has them."""

    @contextmanager
    def together(self):
        yield

    patch.setattr(Policy, "together", together)


def keeps_rows_of_another_history(patch):
    """A restore that trusts the database's rows up to the learner's count."""
    renew = Store.renew
    patch.setattr(Store, "renew", lambda self, decisions, kept: renew(self, decisions, decisions))


def closes_no_round(patch):
    take = Store._take

    def taken(self, rows, rewarded):
        take(self, rows, 0)

    patch.setattr(Store, "_take", taken)


def gives_every_round_the_same_token(patch):
    """So that ids are those of numbers alone, whatever history they are of."""
    patch.setattr("dpbandits.serve.store.secrets.token_hex", lambda count: "00" * count)


def keeps_rewards_that_were_learned(patch):
    """The learner takes them in again and again, and comes to nothing else."""
    patch.setattr(Store, "taken", lambda self, events, part: None)


def erases_the_same_part_again(patch):
    """What is erased in parts has always more to come."""
    forget = Store.forget
    patch.setattr(Store, "forget", lambda self, *parts: forget(self, *parts) or True)


def erases_what_no_release_covers(patch):
    """All rounds that there are."""
    forget = Store.forget
    patch.setattr(Store, "forget", lambda self, upto, *more: forget(self, self.decided(), *more))


def takes_erased_rounds_for_new_ones(patch):
    """A learner that went back behind rounds which it had learned from, and erased."""
    patch.setattr(Store, "erased_after", lambda self, number: False)


# each with the schedule from which on it is found soon
FAULTS = {
    heals_by_a_count: 180,
    confirms_unseen: 40,
    takes_any_id: 0,
    asks_no_witness_before_a_release: 0,
    has_a_witness_that_takes_both: 15,
    deletes_rewards_too_early: 0,
    keeps_rows_of_another_history: 180,
    closes_no_round: 0,
    gives_every_round_the_same_token: 120,
    keeps_rewards_that_were_learned: 0,
    erases_the_same_part_again: 0,
    erases_what_no_release_covers: 0,
    takes_erased_rounds_for_new_ones: 1_039_081,
}


# after which nothing goes wrong but that nothing goes on
ENDLESS = {keeps_rewards_that_were_learned, erases_the_same_part_again}


def caught(fault, first):
    """What the first schedule that finds a fault says of it."""
    for seed in range(first, first + 10 * FEW):
        with pytest.MonkeyPatch.context() as patch:
            fault(patch)
            try:
                outcome(seed, patch)
            except Violated as error:
                return str(error)
    return ""


@pytest.mark.parametrize(("fault", "first"), FAULTS.items(), ids=lambda one: getattr(one, "__name__", ""))
def test_a_planted_fault_is_found(fault, first):
    found = caught(fault, first)
    assert found.startswith("seed "), fault.__name__
    assert ("did not finish" in found) is (fault in ENDLESS), found
    print(found)
