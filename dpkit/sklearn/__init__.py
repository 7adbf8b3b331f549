"""scikit-learn estimators that are private: generalized linear models, principal components, k-means, a scaler.

For whoever has a scikit-learn pipeline and wants its last steps private. Needs the extra ``learn``. Sources of the
methods and of their proofs: :mod:`dpkit.optimize.preconditioned_descent`, :mod:`dpkit.optimize.noisy_gradient_descent`
and :mod:`dpkit.optimize.dp_ftrl` for models; ``PrivatePCA``, ``PrivateKMeans`` and ``PrivateScaler`` have their own.

Privacy. Unit: one row, or one person where ``fit`` is given ``groups``. A fit costs what ``cost_`` says and meets
``budget``; it releases ``coef_`` and ``intercept_``, or components, centres, means and scales. Everything else that an
estimator holds is public, so it may be pickled and handed on: the hyperparameters, the number and the names of the
features, and the classes. What the proof asks for is public too, and held by cutting: rows are shortened to
``row_norm``, targets cut to ``target_range``, labels must be among ``classes``.

**Every fit spends.** A cross-validation of k folds costs k fits, a grid of m points in it k·m of them, whichever is
picked; a shared ``ledger`` counts them and refuses the one that passes its budget. ``clone`` keeps the ledger, where
scikit-learn would copy it. Pickling does not take it along once a model is fitted, nor ever if it is in memory: such a
copy refuses to be fitted until it is given a ledger (or None). For parallel jobs take a ledger in a file, which all
processes share. Scores on held-out rows are not covered by any of this, nor are transformers that learn from data: of
a ``StandardScaler`` before a private step in a pipeline its ``fit`` warns, as of any other step that learns without
noise. ``PrivateScaler`` is the one to take.
"""

try:
    import sklearn as _  # noqa: F401 - whether it is there
except ModuleNotFoundError as error:
    raise ImportError('dpkit.sklearn needs scikit-learn: python -m pip install "dpkit[learn]"') from error

from dpkit.sklearn._classifier import PrivateGLMClassifier
from dpkit.sklearn._kmeans import PrivateKMeans
from dpkit.sklearn._notices import EveryFitSpendsWarning, ShortenedRowsWarning
from dpkit.sklearn._pca import PrivatePCA
from dpkit.sklearn._pipelines import UnprotectedStepWarning
from dpkit.sklearn._regressor import PrivateGLMRegressor
from dpkit.sklearn._scaler import PrivateScaler
from dpkit.sklearn.search import PrivateSearch
from dpkit.sklearn.split_budget import split_budget

__all__ = [
    "EveryFitSpendsWarning",
    "PrivateGLMClassifier",
    "PrivateGLMRegressor",
    "PrivateKMeans",
    "PrivatePCA",
    "PrivateScaler",
    "PrivateSearch",
    "ShortenedRowsWarning",
    "UnprotectedStepWarning",
    "split_budget",
]
