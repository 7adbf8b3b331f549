"""How sampling, shuffling, selection and repeated participation change a cost: which file answers which question.

* Poisson samples, as a Rényi curve: ``subsampling``. The best of a random number of runs: ``selection``, ``runs``.
* Shuffled messages of any randomizer: ``shuffling``. Of a known one: ``blanket`` and ``binary`` for
  responses, ``unary`` for encodings, ``local_laplace`` for numbers, over the sums of ``lattice_sums``.
* Shuffled bits: ``shuffled_binomial``, ``binomial_trade_off``, ``count_shifts``, ``integer_shifts``.
* People with several rows, rounds or participations: ``participation``.
"""
