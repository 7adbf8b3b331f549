# %% [markdown]
# # A team's ledger
#
# One budget, two teams with quotas, a release that is refused, and the report.

# %%
import tempfile
from pathlib import Path

from accounting import Budget, BudgetExceeded, Gaussian, Ledger, PureDP, audit

folder = Path(tempfile.mkdtemp())
ledger = Ledger.create(folder / "team.ledger", Budget(2.0, 1e-6, adjacency="add_remove", unit="person"))
print(f"{ledger.remaining():.3f} of ε = {ledger.budget.epsilon} is left")

# %%
for week in range(4):
    ledger.spend(Gaussian(12.0, adjacency="add_remove"), label=f"report {week}", scope="reports")
ledger.spend(PureDP(0.2, adjacency="add_remove"), label="survey", scope="research")
print({scope: round(ledger.epsilon(1e-6, scope=scope), 3) for scope in ("reports", "research")})
try:
    ledger.spend(Gaussian(0.5, adjacency="add_remove"), label="one more table", scope="reports")
except BudgetExceeded as error:
    print("refused:", error)

# %%
ledger.backup(folder / "team-backup.ledger")
report = audit.recompute(ledger)
print(f"{report.rows} releases, at least ε = {report.at_least:.4f}, within the budget: {report.within_budget}")
for accountant, value in report.epsilons.items():
    print(f"  {accountant}: {value:.4f}")
ledger.close()
