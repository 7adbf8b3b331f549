# %% [markdown]
# # What would another policy have earned?
#
# A log of choices with their probabilities, three estimators, and a release of the answer.

# %%
import numpy as np

from accounting import Budget
from dpbandits import evaluate

rng = np.random.default_rng(0)
names = np.array(["tea", "coffee", "milk"])
p, click = np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.2, 0.4])
chosen = rng.choice(3, size=20_000, p=p)
log = evaluate.Log.of(rng.random(20_000) < click[chosen], p[chosen], names[chosen])

for arm in log.arms:
    print(arm, evaluate.snips(log.rewards, log.probabilities, log.always(arm)))

# %% [markdown]
# "Always milk" would earn most. With noise, for one row added or removed:

# %%
answer = evaluate.private_value(
    log.rewards,
    log.probabilities,
    log.always("milk"),
    largest_weight=10.0,
    budget=Budget(1.0, 0.0, adjacency="add_remove"),
)
print(answer, answer.interval(0.95, sampling=True), sep="\n")
