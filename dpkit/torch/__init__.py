"""Private training of torch modules; torch and Opacus are imported when something here is called.

========================  =========================================================================================
:mod:`.dp_sgd`            the optimizer: Poisson samples, clipped gradients, noise, a torch optimizer's step
:mod:`.problem`           what is trained: a checked copy of a module, its rows, and the copy that leaves the run
:mod:`.private_optimizer` gradients of single rows, and Opacus's optimizer with exact sums and our own noise
:mod:`.linear_layers`     the same sums for lists of linear layers without a gradient for every row
========================  =========================================================================================
"""
