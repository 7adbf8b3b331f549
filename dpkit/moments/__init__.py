"""Private running sums of records of a stream: what a model learns from people, and all it needs to keep of them.

A record is added when it comes; at the end of a public batch the sums of all records so far are released with noise,
and one budget, charged once, covers all releases.

======================  ============================================  ===========================  =====================
sums                    of records                                    who is protected             who adds the noise
======================  ============================================  ===========================  =====================
``PairSums``            (w·x xᵀ, g·x): linear models; or sums of      a record; a person with n    a trusted server
                        several, clipped as one (``SumBounds``)
``BlockSums``           the same in blocks, a model for each          a record                     a trusted server
``ArmSums``             g of one of K public vectors                  a record; a person with one  a trusted server
``ArmBatches``          r of one of K arms, sums of each batch        a record; a person with n    a trusted server
``TrialBatches``        m metrics of a decision, sums of each batch   a record; a person with one  a trusted server
``RecordSums``          vectors of any kind, of a known sensitivity   a record; a person with one  a trusted server
``PersonSums``          means over everything a person has told       a person with any number     a trusted server
``PairMessages``        (w·x xᵀ, g·x), all so far                     a user; a person with n      users, for themselves
``ArmMessages``         r of one of K arms                            a user; a person with n      users, for themselves
``ShuffledArms``        r of one of K arms, sums of each batch        a user; a person with n      users, and a shuffler
``PairBatches``         (w·x xᵀ, g·x), sums of each batch             a user of one batch          users, and a shuffler
``ShuffledBatches``     vectors, sums of each batch                   a user; a person with n      users, and a shuffler
``ShuffledPersonSums``  means over everything a person has told       a person with any number     users, and a shuffler
======================  ============================================  ===========================  =====================

How large records are, where nobody can say, the first of them tell (``RecordWindow``).

All of them state ``cost``, add whole numbers, which have no rounding error to tell anything by, draw noise on a
lattice, and keep their state by ``kept()`` and ``resume(saved)``, in place, for the object that owns them. Models that
are fitted to such sums are in :mod:`dpkit.models`; ``docs/private-sums.md`` says when to take which.

>>> import numpy as np
>>> from accounting import Budget
>>> from dpkit.moments import PairSums
>>> sums = PairSums(3, 1.0, 1.0, 0.5, budget=Budget(1.0, 1e-6), releases=8, horizon=1000)
>>> sums.add(np.array([1.0, 0.0, 0.0]), w=1.0, g=0.5)
>>> found = sums.release()
>>> found.H.shape, found.b.shape, sums.cost
((3, 3), (3,), Gaussian(noise_multiplier=4.2246788...))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpkit.lazy import attributes_of

if TYPE_CHECKING:
    from dpkit.moments.arm_batches import ArmBatches
    from dpkit.moments.arm_messages import ArmMessages
    from dpkit.moments.arms import ArmSums, reward_scales, reward_sensitivity
    from dpkit.moments.blocks import BlockSums, Released, block_record, features, record_sensitivity
    from dpkit.moments.local import PairMessages
    from dpkit.moments.pairs import NoisyPair, PairSums, pair_scales, whole_digits
    from dpkit.moments.people import People, PersonSums, PersonTotals, Rounds, Weigh
    from dpkit.moments.records import NoisyRecords, RecordSums
    from dpkit.moments.shuffled import ShuffledBatches, batch_protocol, max_cost
    from dpkit.moments.shuffled_arms import ShuffledArms
    from dpkit.moments.shuffled_pairs import NoisyBatch, PairBatches
    from dpkit.moments.shuffled_people import ShuffledPersonSums
    from dpkit.moments.summed import SumBounds
    from dpkit.moments.trial_batches import TrialBatches
    from dpkit.moments.windows import RecordWindow

__all__ = [
    "ArmBatches",
    "ArmMessages",
    "ArmSums",
    "BlockSums",
    "NoisyBatch",
    "NoisyPair",
    "NoisyRecords",
    "PairBatches",
    "PairMessages",
    "PairSums",
    "People",
    "PersonSums",
    "PersonTotals",
    "RecordSums",
    "RecordWindow",
    "Released",
    "Rounds",
    "ShuffledArms",
    "ShuffledBatches",
    "ShuffledPersonSums",
    "SumBounds",
    "TrialBatches",
    "Weigh",
    "batch_protocol",
    "block_record",
    "features",
    "max_cost",
    "pair_scales",
    "record_sensitivity",
    "reward_scales",
    "reward_sensitivity",
    "whole_digits",
]

# loaded when they are first asked for
_HOMES = {
    "dpkit.moments.arm_batches": "ArmBatches",
    "dpkit.moments.arm_messages": "ArmMessages",
    "dpkit.moments.arms": "ArmSums reward_scales reward_sensitivity",
    "dpkit.moments.blocks": "BlockSums Released block_record features record_sensitivity",
    "dpkit.moments.local": "PairMessages",
    "dpkit.moments.pairs": "NoisyPair PairSums pair_scales whole_digits",
    "dpkit.moments.people": "People PersonSums PersonTotals Rounds Weigh",
    "dpkit.moments.records": "NoisyRecords RecordSums",
    "dpkit.moments.shuffled": "ShuffledBatches batch_protocol max_cost",
    "dpkit.moments.shuffled_arms": "ShuffledArms",
    "dpkit.moments.shuffled_pairs": "NoisyBatch PairBatches",
    "dpkit.moments.shuffled_people": "ShuffledPersonSums",
    "dpkit.moments.summed": "SumBounds",
    "dpkit.moments.trial_batches": "TrialBatches",
    "dpkit.moments.windows": "RecordWindow",
}

__getattr__, __dir__ = attributes_of(
    __name__, {name: module for module, names in _HOMES.items() for name in names.split()}
)
