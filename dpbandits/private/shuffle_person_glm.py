"""ShufflePersonGLM: :class:`PersonPrivateGLM` for people who trust a shuffler, but not the server.

For whoever runs a bandit on people who come back, and leaves their data with them: everybody's rounds stay on the
person's own device. Choices, schedule, statistics and what is made of them are those of
:class:`~dpbandits.policies.PersonPrivateGLM`. At release j the server publishes θ, and every device that has had a
round forms its person's contribution

    ω_p·(a·svec M_p, b_p),    ω_p = α_p/Δ_p,    α_p² = κ·(what p has left),

from all rounds of the person so far, rounds it at random to counts, adds b fair bits to each coordinate, and sends it
through the shuffler, which lets out the sum alone. A device none of whose rewards has come sends the null vector.

Guarantee
---------
* Unit: one person, that is everything in all rounds of that person: arm sets, rewards, their times, and whether they
  come at all. Which rounds a person has is public, and so is who takes part in a release. Neighbours: two runs in which
  one person differs ("replace"), or counts for nothing ("zero_out").
* The Δ_p of :class:`~dpbandits.policies.PersonPrivateGLM` bounds how far (a·M_p, b_p) moves, also with the number
  beside it by which the level of rewards is learned, so that release j moves by
  at most α_p, a function of public numbers, and Σ_j α²_{p,j} ≤ 1 for everybody.
* Given earlier releases, hence θ, what other devices send is the same in both worlds but for their coins. So release j
  is one sum of binomial noise in which one input moves by α_p, which is Gaussian differential privacy in proportion to
  α_p (``_shuffled_people``, with the proof), and μ² adds up to that of ``Gaussian(z)`` whoever pays when; that, with a
  probability of 1e-20 for all that may fail, meets the budget and is recorded when the policy is made.
* Shuffle privacy: people are protected against the server as well, which sees what the shuffler lets out. All devices
  follow the protocol, and messages of one release must not get into another. What others see of a person is
  post-processing (the billboard lemma of Hsu, Huang, Roth, Roughgarden & Wu 2014).
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``). This object plays server,
  shuffler and devices: its state holds what the devices would keep, everybody's rounds.

Cost per round: O(Kd) to select and O(d) to update. A release takes O(Td²) for the T rounds so far, on the devices.
Each sends, for each of d(d + 3)/2 coordinates, the count of g + b bits, b being 100 or, where that is more, about
3600·z·d·√releases over the number of devices. Memory O(Td).

This policy belongs to this package. Its ingredients: :class:`~dpbandits.policies.PersonPrivateGLM`; Cheu, Joseph, Mao &
Peng (2022) for the shuffled sum.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from dpbandits.private.person_private_glm import PersonPrivateGLM
from dpkit.moments.people import PersonSums
from dpkit.moments.shuffled_people import ShuffledPersonSums

__all__ = ["ShufflePersonGLM"]


class ShufflePersonGLM(PersonPrivateGLM):
    """A private bandit on features of arms, through a shuffler, for persons who come back many times.

    Parameters, defaults and errors are those of :class:`~dpbandits.policies.PersonPrivateGLM`.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = ShufflePersonGLM(dim=2, budget=Budget(1.0, 1e-6, unit="person"), horizon=2000, rng=rng)
    >>> reward = 0.0
    >>> for t in range(2000):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]], person=t % 200)
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     reward += (0.2, 0.8)[decision.index]
    >>> reward / 2000 > 0.7
    True
    """

    trust: ClassVar[Literal["joint", "shuffle"]] = "shuffle"
    # the range of rewards is learned by whoever sees them, and nobody does here
    learns_range = False
    sums_of: ClassVar[type[PersonSums | ShuffledPersonSums]] = ShuffledPersonSums
