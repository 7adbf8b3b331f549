# %% [markdown]
# # A private recommender
#
# Film ratings, replayed: a bandit without privacy, one that protects rounds, and one that protects persons.

# %%
from accounting import Budget
from dpbandits import simulate
from dpbandits.lab.environments import Films
from dpbandits.policies import GLBOMD, OnePassPrivateGLM, PersonPrivateGLM, Uniform

films = Films()
T = 4000
policies = {
    "uniform": lambda rng: Uniform(films.dim, rng=rng),
    "GLB-OMD": lambda rng: GLBOMD(films.dim, films.link, theta_bound=films.theta_bound, rng=rng),
    "per round, ε = 2": lambda rng: OnePassPrivateGLM(
        films.dim, films.link, theta_bound=films.theta_bound, budget=Budget(2.0, 1e-5), horizon=T, rng=rng
    ),
    "per person, ε = 2": lambda rng: PersonPrivateGLM(
        films.dim,
        films.link,
        theta_bound=films.theta_bound,
        budget=Budget(2.0, 1e-5, unit="person"),
        horizon=T,
        rng=rng,
    ),
}
results = simulate(policies, films, rounds=T, seeds=5)
print(results)

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

path = results.plot(Path(tempfile.mkdtemp()) / "recommender.png")
figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
axes.imshow(plt.imread(path))
_ = axes.axis("off")
