"""Optimizers that see all rows at once, one algorithm and its privacy proof per file.

====================================  =============================================================================
:mod:`.noisy_gradient_descent`        full-batch steps: the one to start with
:mod:`.preconditioned_descent`        the same in the metric of a noisy second moment, for rows of unequal scale
:mod:`.objective_perturbation`        one random linear term, then any solver
:mod:`.sufficient_statistics`         least squares from one release
:mod:`.noisy_sgd`                     many cheap steps on Poisson samples
:mod:`.dp_ftrl`                       epochs in a fixed order, correlated noise; :mod:`.ftrl_run` is a run that can wait
:mod:`.phased_sgd`                    one pass, noise on what each phase ends with only
:mod:`.localized_mirror_descent`      one pass in ℓ_p, phases of fresh rows
:mod:`.noisy_stochastic_frank_wolfe`  one pass over sets without a cheap projection
:mod:`.half_sample_frank_wolfe`       ℓ₁: private choices of vertices, one pass
:mod:`.variance_reduced_frank_wolfe`  ℓ₁: the same, with gradients that are corrected along binary trees
:mod:`.shuffle_gradient_descent`      no trusted server: every gradient sum is shuffled
====================================  =============================================================================

What they share is in :mod:`dpkit.training` (rows, clipped sums, results) and :mod:`dpkit.optimize.parts`.
"""
