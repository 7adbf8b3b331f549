# %% [markdown]
# # A survey that nobody has to be trusted with
#
# A thousand devices answer a question with four choices. Each randomizes its answer a little, a shuffler mixes, and the counts come out.

# %%
import numpy as np

from accounting import Budget
from dpkit.shuffle import ShuffledRandomizedResponse

rng = np.random.default_rng(0)
answers = rng.choice(4, size=1000, p=[0.5, 0.3, 0.15, 0.05])
survey = ShuffledRandomizedResponse(4, 1000, budget=Budget(1.0, 1e-5))
messages = [survey.encode(int(answer)) for answer in answers]
print(f"one message: {len(messages[0])} bytes; a device alone has ε = {survey.local_epsilon:.2f}")

# %%
estimate = survey.decode(survey.shuffle(messages))
for k in range(4):
    print(
        f"choice {k}: {estimate.estimate[k]:.3f}, 95 % interval [{estimate.low[k]:.3f}, {estimate.high[k]:.3f}], in truth {np.mean(answers == k):.3f}"
    )
