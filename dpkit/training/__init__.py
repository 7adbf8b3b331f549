"""What every private trainer does with its rows, whichever model it fits: below the optimizers and the torch room.

===================  ==============================================================================================
:mod:`.rows`         checks of rows, labels, budgets and starts; sums of clipped gradients over rows
:mod:`.groups`       the same where a person has several rows: each one's mean gradient is clipped and summed
:mod:`.batches`      how an epoch's batches are made, and what that costs
:mod:`.whole_rows`   rows as whole numbers, of which sums have no rounding error
:mod:`.result`       what a trainer returns, and how it prints (:mod:`.printed_result`)
===================  ==============================================================================================
"""
