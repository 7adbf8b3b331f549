"""A policy that counts in its state how often it has learned the reward of each round, and their sum."""

import numpy as np

from dpbandits.policies import OnePassPrivateGLM


class Counting(OnePassPrivateGLM):
    """Not private in what it adds, which is never released."""

    secret = ("sums", "learned", "total")

    def __init__(self, dim, link="logistic", *, horizon, **options):
        self.learned = np.zeros(horizon, dtype=np.int64)
        self.total = 0.0
        super().__init__(dim, link, horizon=horizon, **options)

    def learn(self, pending, reward):
        self.learned[pending.round] += 1
        self.total += reward * (pending.round + 1)
        super().learn(pending, reward)
