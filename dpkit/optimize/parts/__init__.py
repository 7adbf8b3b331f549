"""What several optimizers share, and no other room needs; nothing here is an optimizer.

============================  ===================================================================================
:mod:`.stream_learner`        online learners: rows, iterates, states, whole passes
:mod:`.recursive_gradients`   the averaged gradients of the online Frank–Wolfe methods
:mod:`.vertex_choices`        private choices among few vertices, for the batch Frank–Wolfe methods in ℓ₁
:mod:`.softmax`               the objective of several classes, and its clipped sums
:mod:`.exact_products`        exact sums of products as what a Gaussian mechanism takes
:mod:`.cyclic_batches`        batches of DP-FTRL that amplify banded noise: theorem, price, choice
:mod:`.ftrl_noise`            which continual sum hides the gradients of DP-FTRL
:mod:`.training_rows`         what DP-FTRL trains on: rows of a GLM, or of a torch module
============================  ===================================================================================
"""
