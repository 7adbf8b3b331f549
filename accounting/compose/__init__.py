"""Adding privacy losses: which file answers which question.

* Which pairs is a description made of, branch by branch? ``pairs``. What may fail, apart from the rest? ``failures``.
* What do they cost together? ``pld``, the accountant, on the grid and with the error bounds of ``convolution``.
* What if releases follow each other, and cost less than the sum? ``tightenings``, where theorems are entered.
* A composed loss that people hold: ``distribution``, which has :class:`accounting.PLD`; its curve by ``many_deltas``.
"""
