# %% [markdown]
# # Counts that go on
#
# A counter is published every hour for a year. A tree, a buffered factorization and a sum that forgets cost the same; their noise does not grow alike.

# %%
import matplotlib.pyplot as plt
import numpy as np

from accounting import Budget
from dpkit.continual import BinaryTree, BufferedToeplitz, Discounted

hours = 24 * 365
budget = Budget(1.0, 1e-6)  # for one visit, at any time
sums = BufferedToeplitz.calibrated(budget=budget, horizon=hours, shape=(), sensitivity=1.0)
tree = BinaryTree.calibrated(budget=budget, horizon=hours, shape=(), sensitivity=1.0)
recent = Discounted.calibrated(budget=budget, horizon=hours, shape=(), sensitivity=1.0, discount=0.999)
steps = np.unique(np.geomspace(1, hours, 60).astype(int))
figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
for name, mechanism in (("buffered Toeplitz", sums), ("binary tree", tree), ("discounted, γ = 0.999", recent)):
    axes.semilogx(steps, [mechanism.noise_std(int(t)) for t in steps], label=name)
axes.set(xlabel="hours", ylabel="standard deviation of the noise")
legend = axes.legend()

# %%
visits = np.random.default_rng(0).poisson(3.0, hours)
published = np.array([sums.add(float(x)) for x in visits[:500]])
print("largest error of the first 500 hours:", np.abs(published - visits[:500].cumsum()).max().round(1))
