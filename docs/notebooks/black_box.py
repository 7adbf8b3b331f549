# %% [markdown]
# # Auditing a black box
#
# Somebody says that a function is (1, 0)-differentially private. It is run many times on two neighbouring inputs; if outputs differ too much, it is not.

# %%
import numpy as np

from accounting import audit

rng = np.random.default_rng(0)


def claimed(data, scale=1.0):
    return data.sum() + rng.laplace(scale=scale)


def half_the_noise(data):
    return claimed(data, scale=0.5)


here, gone = np.ones(10), np.ones(9)
for mechanism in (claimed, half_the_noise):
    bound = audit.lower_bound(mechanism, here, gone, trials=20_000, delta=0.0, confidence=0.99)
    verdict = "refuted" if bound.epsilon > 1 else "not refuted"
    print(f"{mechanism.__name__}: ε is at least {bound.epsilon:.2f} with 99 % confidence; the claim ε ≤ 1 is {verdict}")
