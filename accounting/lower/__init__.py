"""What a release costs at least: which file answers which question.

* The largest ε that a release certainly needs: ``lower_bound``, which :func:`accounting.bound` asks.
* Two neighbours that show it: ``witnesses``. Choices that come last, played as an adversary would: ``played_last``.
* Batches of a fixed size of noisy maxima: ``maxima_in_batches``.
"""
