"""Draw descriptions of releases to be priced: ``python tests/record/draw.py COUNT SEED`` prints them as lines of JSON.

``descriptions.json`` came of such lines, and of a few that people write. It is the record that counts: whoever changes
what is drawn here changes nothing in it. In a template ``<low,high>`` is a number, evenly on a logarithmic scale and
whole where both ends are; ``{a|b}`` one of several texts; ``@`` any single release, ``~`` one that may be swapped in a
sample.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator

import numpy as np
from recorded_prices import epsilons, made, notions, outcome

SWAPPED = (
    "Gaussian(<.5,20.>)",
    "Laplace(<.5,30.>)",
    "PureDP(<.01,2.>)",
    "DiscreteGaussian(<.8,20.>{|, shift=1|, shift=3})",
    "DiscreteLaplace(<.8,30.>{|, shift=1|, shift=4})",
)
SINGLE = (
    *SWAPPED,
    "GeneralizedGaussian(<.7,20.>)",
    "NoisyMax(<.05,2.>{|, 'exponential'|, 'laplace'})",
    "RandomizedResponse(<.05,2.>, <2,60>)",
    "UnaryEncoding(<.05,2.>, <3,60>{|, optimized=False})",
    "ZCDP(<1e-4,1.>)",
    "ApproxDP(<.05,2.>, <1e-14,1e-7>)",
    "TreeAggregation(<1.,30.>, <2,5000>)",
    "ObjectivePerturbation(<2.,30.>, <.01,.5>{|, one_row=True})",
    "ShuffledBinomial(<500,50000>, <1.,20.>, <1,8>{|, rounded=True})",
    "LocalShuffled({<.1,2.>|RandomizedResponse(<.1,2.>, <2,30>)|UnaryEncoding(1.0, 9)|Laplace(<.5,9.>)},<200,50000>)",
)
RELATION = "{||, adjacency='add_remove'|, adjacency='zero_out'|, adjacency='replace'})"
SAMPLED = (
    "PoissonSubsampled({@|Gaussian(<.5,20.>)}, <.001,.5>)",
    "PoissonSubsampled(~, <.002,.5>, adjacency='replace')",
    "FixedSizeSubsampled(@, <1,300>, <300,50000>)",
    "{BestOfRuns(@, stop=<.02,.6>{|, shape=0.5|, shape=2.0})|BestOfPoissonRuns(@, mean=<1.,20.>)}",
)
KINDS = (
    *(single[:-1] + RELATION for single in SINGLE),
    *(f"<2,400> * {single[:-1] + RELATION}" for single in SINGLE),
    *SAMPLED,
    *(f"<2,1000> * {sampled}" for sampled in SAMPLED[:3]),
    "<50,20000> * PoissonSubsampled(Gaussian(<.6,4.>), <5e-4,.1>)",
    "<1,50> * PoissonSubsampled(@ + ~, <.01,.3>)",
    f"<1,5> * {SAMPLED[3]} + <1,9> * @",
    "BestOfRuns(<50,2000> * PoissonSubsampled(Gaussian(<.8,4.>), 0.01), stop=<.05,.5>)",
    "<1,60> * @ + <1,60> * @",
    "<1,20> * @ + <1,20> * @ + <1,20> * @",
    f"<2,400> * {SAMPLED[0]} + <1,5> * @",
    "<1,9> * parallel(@, <1,9> * @)",
    f"parallel(@, @, {SAMPLED[0]}) + <2,30> * @",
    "compose([(@, <1,9>), (@, <1,9>)])",
)


def text_of(template: str, rng: np.random.Generator) -> str:
    def one(texts: tuple[str, ...] | list[str]) -> str:
        return texts[rng.integers(len(texts))]

    def number(found: re.Match[str]) -> str:
        drawn = float(f"{np.exp(rng.uniform(*np.log([float(found[1]), float(found[2])]))):.3g}")
        return repr(int(drawn) if found[1].isdigit() else drawn)

    while "{" in template or "@" in template or "~" in template:
        template = re.sub("[@~]", lambda kind: one(SINGLE if kind[0] == "@" else SWAPPED), template)
        template = re.sub(r"\{([^{}]*)\}", lambda texts: one(texts[1].split("|")), template)
    return re.sub("<([^<>]+),([^<>]+)>", number, template)


def draw(count: int, seed: int, slowest: float = 1.0, quick: float = 0.1) -> Iterator[tuple[str, list[str]]]:
    """Texts, each with what is asked besides ε; one ε takes at most ``slowest`` seconds, in the gate five ``quick``."""
    rng, texts = np.random.default_rng(seed), set[str]()
    while len(texts) < count:
        for template in KINDS:
            text = text_of(template, rng)
            try:
                release = made(text)
            except (ValueError, TypeError):  # these parts do not go together
                continue
            start = time.process_time()
            first = epsilons(release, [1e-6])
            spent = time.process_time() - start
            if text in texts or isinstance(first[0], str) or spent > slowest:
                continue
            marks = [kind for kind, compute in notions(release).items() if not isinstance(outcome(compute)[0], str)]
            marks = [kind for kind in marks if kind not in ("delta", "bound")]
            marks += [("delta", "bound")[len(texts) % 2]] * (len(texts) % 8 < 2) + ["gate"] * (5 * spent < quick)
            texts.add(text)
            yield text, marks


if __name__ == "__main__":
    for text, marks in draw(int(sys.argv[1]), int(sys.argv[2])):
        print(f"{json.dumps(text)}: {json.dumps(marks)},", flush=True)
