"""Online learners: one row after the other, every iterate released, states that can be saved.

=====================================  ============================================================================
:mod:`.online_frank_wolfe`             ℓ_p balls and other smooth sets, noise on a running mean of gradients
:mod:`.polyhedral_online_frank_wolfe`  hulls of few vertices, noise on the choice of one
:mod:`.follow_the_regularized_leader`  linear losses: regret that pays for privacy once
:mod:`.follow_the_approximate_leader`  convex losses, from one noisy sum of gradients
:mod:`.implicit_gradient_descent`      proximal steps, noise on what is published
=====================================  ============================================================================

:mod:`.published_frank_wolfe` has the first two as their paper prints them, which is not private as claimed: for
comparisons.

Each other file has a class with ``step(x, y)`` and a function for a whole pass. How they take rows and keep states is
:mod:`dpkit.optimize.parts.stream_learner`.
"""
