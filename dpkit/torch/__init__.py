"""Private training of torch modules; torch and Opacus are imported when something here is called.

========================  =========================================================================================
:mod:`.dp_sgd`            the optimizer: random batches, clipped gradients, noise, a torch optimizer's step
:mod:`.problem`           what is trained: a checked copy of a module, its rows, and the copy that leaves the run
:mod:`.unit_sums`         exact sums of clipped gradients over chosen rows or people, some rows at a time
:mod:`.layer_rules`       such sums for any module, by a rule for each layer that has one, and row by row for the rest
:mod:`.linear_layers`     the same for lists of linear layers, which need not be run row by row
:mod:`.exact_sums`        the arithmetic of both: whole numbers, of which sums have no rounding error
:mod:`.ranks`             one run by several processes: what passes between them, and why it is the run of one
:mod:`.private_optimizer` gradients of single rows, and noisy steps of a torch optimizer
========================  =========================================================================================
"""
