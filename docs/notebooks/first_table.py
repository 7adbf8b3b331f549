# %% [markdown]
# # A first private table
#
# Six numbers per country, released with ε = 1 for a whole country's row, and what the noise did.

# %%
from sklearn.datasets import load_diabetes

from accounting import Budget, Ledger
from dpkit import queries

table = load_diabetes(as_frame=True, scaled=False).frame
table[["age", "bmi", "bp"]].head()

# %% [markdown]
# The bounds below are what is known of human bodies, not the smallest and largest value in the file.

# %%
ledger = Ledger(Budget(1.0, 1e-6, adjacency="add_remove"))
each = Budget(0.2, 1e-7, adjacency="add_remove")
count = queries.count(table, budget=each, ledger=ledger)
age = queries.mean(table, "age", bounds=(0, 100), budget=each, ledger=ledger)
bmi = queries.quantile(table, "bmi", q=[0.25, 0.5, 0.75], bounds=(10, 60), budget=each, ledger=ledger)
histogram = queries.histogram(table, "bp", bins=8, bounds=(60, 140), budget=each, ledger=ledger)
print(count, age, bmi, histogram, sep="\n\n")

# %%
print(f"spent ε = {ledger.epsilon(1e-6):.3f} of 1, left {ledger.remaining():.3f}")
print("in truth:", len(table), round(table["age"].mean(), 2), table["bmi"].quantile([0.25, 0.5, 0.75]).tolist())
