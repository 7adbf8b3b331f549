"""scikit-learn estimators for private generalized linear models, over noisy gradient descent or DP-FTRL.

For whoever has a scikit-learn pipeline and wants its last step private. Needs the extra ``learn``. Source of the method
and of its proof: :mod:`dpkit.optimize.noisy_gradient_descent`, :mod:`dpkit.optimize.dp_ftrl`.

Privacy. Unit: one row, or one person where ``fit`` is given ``groups``. A fit costs what ``cost_`` says and meets
``budget``; it releases ``coef_`` and ``intercept_``. Everything else that an estimator holds is public, so it may be
pickled and handed on: the hyperparameters, the number and the names of the features, and the classes. What the proof
asks for is public too, and held by cutting: rows are shortened to ``row_norm``, targets cut to ``target_range``, labels
must be among ``classes``.

**Every fit spends.** A cross-validation of k folds costs k fits, a grid of m points in it k·m of them, whichever is
picked; a shared ``ledger`` counts them and refuses the one that passes its budget. ``clone`` keeps the ledger, where
scikit-learn would copy it. Pickling does not take it along once a model is fitted, nor ever if it is in memory: such a
copy refuses to be fitted until it is given a ledger (or None). For parallel jobs take a ledger in a file, which all
processes share. Scores on held-out rows, and transformers that learn from data (a ``StandardScaler``), are not covered
by any of this.
"""

try:
    import sklearn as _  # noqa: F401 - whether it is there
except ModuleNotFoundError as error:
    raise ImportError('dpkit.sklearn needs scikit-learn: python -m pip install "dpkit[learn]"') from error

from dpkit.sklearn._classifier import PrivateGLMClassifier
from dpkit.sklearn._notices import EveryFitSpendsWarning, ShortenedRowsWarning
from dpkit.sklearn._regressor import PrivateGLMRegressor
from dpkit.sklearn.search import PrivateSearch
from dpkit.sklearn.split_budget import split_budget

__all__ = [
    "EveryFitSpendsWarning",
    "PrivateGLMClassifier",
    "PrivateGLMRegressor",
    "PrivateSearch",
    "ShortenedRowsWarning",
    "split_budget",
]
