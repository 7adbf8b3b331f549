# %% [markdown]
# # One experiment, from plan to decision
#
# Three headlines. Each person sees one of them, clicks or does not, and no click may be told from what is published.
#
# ## Plan
#
# The old headline is clicked by some 10 %. An improvement by four points should be found with probability 0.8.

# %%
import numpy as np

from accounting import Budget, Ledger
from dpbandits import Experiment

Experiment.plan(0.10, 0.04, epsilon=[0.5, 1.0, 4.0], arms=3)

# %% [markdown]
# ## Assign and record
#
# The budget is fixed before the first person comes: ε = 1 for all that is ever released of one person. The ledger records it.
# Persons are simulated here, and the generator is seeded, so that this page says so; leave `rng` out to protect real people.

# %%
people = np.random.default_rng(0)
clicks = {"plain": 0.10, "witty": 0.15, "loud": 0.11}

budget = Budget(1.0, 0.0, unit="person")
ledger = Ledger(budget)
test = Experiment(
    ["plain", "witty", "loud"],
    budget=budget,
    horizon=Experiment.plan(0.10, 0.04, epsilon=1.0, arms=3).horizon,
    assignment="fixed",
    stop_when="best",
    ledger=ledger,
    label="headlines",
    rng=np.random.default_rng(1),
)


def come(persons):
    for person in persons:
        if test.stopped:
            break
        decision = test.assign(person=person)
        test.record(decision, float(people.random() < clicks[decision.name]))


come(range(1500))
print(test)

# %% [markdown]
# ## Peek
#
# Results may be looked at whenever one likes. The intervals hold at all times together, and looking costs nothing more.

# %%
test.results()

# %% [markdown]
# ## Until it stops
#
# The experiment ends by itself when the best arm is known.

# %%
come(range(1500, test.policy.horizon))
print(test.stopped or "still running", "after", test.policy.decisions, "persons")
results = test.stop()
results

# %% [markdown]
# Each arm's interval, as it became shorter from release to release:

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
_ = results.plot(axes)

# %% [markdown]
# ## What was paid
#
# One row, however often anybody looked:

# %%
for row in ledger.rows():
    print(row.label, row.release)
print(test.privacy())

# %% [markdown]
# ## The page
#
# A page that needs nothing else, for whoever has to decide, and the same as JSON.

# %%
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp())
page = results.to_html(folder / "headlines.html")
results.to_json(folder / "headlines.json")
print(page.name, f"{page.stat().st_size / 1000:.0f} kB")
print(results.verdict)
