# %% [markdown]
# # Training on a table
#
# Handwritten digits: a classifier without privacy, and private ones that protect every row of the table. What they are told is public: a pixel has a value
# from 0 to 16, and there are ten classes.

# %%
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from accounting import Budget, Ledger
from dpkit.sklearn import PrivateGLMClassifier, PrivateSearch

X, y = load_digits(return_X_y=True)
X = X / 16 / 4  # public: of 64 pixels between 0 and 1, a row is some 4 long
X, held_out, y, truth = train_test_split(X, y, random_state=0)
exact = LogisticRegression(C=100.0, max_iter=1000).fit(X, y)
print(f"not private: {exact.score(held_out, truth):.1%} of {len(truth)} held-out rows right, after {len(y)} rows")

# %% [markdown]
# One fit spends one budget, here for a row that is replaced by any other. Noise is that of the secure source, so that these numbers are new ones whenever the notebook runs.

# %%
epsilons = [1.0, 2.0, 4.0, 8.0]
right = []
for epsilon in epsilons:
    fits = [PrivateGLMClassifier(Budget(epsilon, 1e-5), classes=range(10)).fit(X, y) for _ in range(3)]
    right.append([fit.score(held_out, truth) for fit in fits])
    print(f"ε = {epsilon:g}: {np.mean(right[-1]):.1%}")

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
axes.semilogx(epsilons, right, "o", color="C0", base=2)
axes.axhline(exact.score(held_out, truth), linestyle="--", color="C1")
axes.set(xlabel="ε of one fit (δ = 1e-5); three fits each", ylabel="held-out rows right", ylim=(0, 1))
axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
_ = axes.text(1, 0.9, "not private", color="C1")

# %% [markdown]
# A search over settings would spend a budget for each. `PrivateSearch` has one for all of it, and holds out rows of its own to score on; the ledger is charged once, before the
# first fit.

# %%
ledger = Ledger(Budget(8.0, 1e-5))
search = PrivateSearch(
    PrivateGLMClassifier(classes=range(10)),
    {"row_norm": [0.5, 0.8, 1.2], "radius": [20.0, 50.0]},
    budget=Budget(8.0, 1e-5),
    runs=5.0,
    ledger=ledger,
).fit(X, y)
print(search.best_params_, f"{search.best_estimator_.score(held_out, truth):.1%}")
ledger
