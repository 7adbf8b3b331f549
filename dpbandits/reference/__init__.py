"""The reference policies, which protect nobody: what private ones are compared with.

One file each, by what they assume: ``light_tails`` (generalized linear models, and linear ones with light tails),
``heavy_tails`` (rewards of which only a low moment is bounded), ``simple`` (chance, greed, and a parameter for each
arm), ``slates`` (several arms in a round). Private algorithms as their papers print them, which are not private as
claimed: ``published``. Confidence sets, as values that several policies use: ``confidence``.
"""
