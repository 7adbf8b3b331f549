"""What noise costs: descriptions of noisy releases, accountants, calibration and ledgers.

Knows no data and draws no noise. The whole public interface is here:

>>> from accounting import Budget, Gaussian, Ledger, calibrate, epsilon
>>> round(epsilon(100 * Gaussian(10.0), delta=1e-5), 3)
4.377
>>> round(calibrate(lambda z: 100 * Gaussian(z), Budget(1.0, 1e-6)), 3)
42.247
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from accounting.budget import Budget
from accounting.calibration import calibrate
from accounting.errors import AdjacencyMismatch, BudgetExceeded, LedgerBehind, LedgerCorrupted, UnsupportedRelease
from accounting.notions.gdp import gdp
from accounting.notions.rdp import rdp
from accounting.notions.zcdp import zcdp
from accounting.releases import (
    ZCDP,
    Adjacency,
    ApproxDP,
    BestOfPoissonRuns,
    BestOfRuns,
    DiscreteGaussian,
    DiscreteLaplace,
    FixedSizeSubsampled,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    LocalShuffled,
    NoisyMax,
    ObjectivePerturbation,
    PoissonSubsampled,
    PureDP,
    RandomAllocated,
    RandomizedResponse,
    Release,
    ShuffledBinomial,
    TreeAggregation,
    UnaryEncoding,
    compose,
    parallel,
)
from accounting.totals import compare, delta, epsilon

# the one version of the three packages that are installed together
__version__ = "0.1.0"

if TYPE_CHECKING:
    from accounting.attacks import Attacker, attacker
    from accounting.bounds import Bracket, bound
    from accounting.certificates import Certificate, certify
    from accounting.checker import Verdict, verify
    from accounting.compose.distribution import PLD
    from accounting.ledger import Ledger
    from accounting.loss.pair import LossPair

__all__ = [
    "__version__",
    "Adjacency",
    "AdjacencyMismatch",
    "ApproxDP",
    "Attacker",
    "BestOfPoissonRuns",
    "BestOfRuns",
    "Bracket",
    "Budget",
    "BudgetExceeded",
    "Certificate",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "FixedSizeSubsampled",
    "Gaussian",
    "GeneralizedGaussian",
    "Laplace",
    "Ledger",
    "LedgerBehind",
    "LedgerCorrupted",
    "LocalShuffled",
    "LossPair",
    "NoisyMax",
    "ObjectivePerturbation",
    "PLD",
    "PoissonSubsampled",
    "PureDP",
    "RandomAllocated",
    "RandomizedResponse",
    "Release",
    "ShuffledBinomial",
    "TreeAggregation",
    "UnaryEncoding",
    "UnsupportedRelease",
    "Verdict",
    "ZCDP",
    "attacker",
    "bound",
    "calibrate",
    "certify",
    "compare",
    "compose",
    "delta",
    "epsilon",
    "gdp",
    "parallel",
    "rdp",
    "verify",
    "zcdp",
]

# loaded when they are first asked for: who only describes and prices releases needs neither files nor hashes
_LATER = {
    "Attacker": "accounting.attacks",
    "Bracket": "accounting.bounds",
    "Certificate": "accounting.certificates",
    "Ledger": "accounting.ledger",
    "LossPair": "accounting.loss.pair",
    "PLD": "accounting.compose.distribution",
    "Verdict": "accounting.checker",
    "attacker": "accounting.attacks",
    "bound": "accounting.bounds",
    "certify": "accounting.certificates",
    "verify": "accounting.checker",
}
if find_spec("flint") is None:  # a star import takes what is there
    __all__ = [name for name in __all__ if _LATER.get(name) != "accounting.checker"]


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LATER[name]), name)
    return found
