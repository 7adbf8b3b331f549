"""The private policies, one file each, named after the algorithm.

A file has, in this order: what the policy does and for whom, why it is private and what it costs, its parameters, and
the parts that it is made of: a record of each round, noisy sums of records (:mod:`dpkit.moments`), a rule that chooses
from what was released, and a refit after each release. How a run of such parts goes on, survives crashes and is charged
is in :mod:`dpbandits.policy.private`. A part that is long, or that several policies have, is in
:mod:`dpbandits.private.parts`.
"""
