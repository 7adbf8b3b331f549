"""What stands before a private estimator in a pipeline: a step that learned from the rows without noise undoes it.

A ``StandardScaler`` before a private estimator releases sums of the rows in every number that comes after it, and no
budget counts them. The rows may not tell: a warning that depends on them (means of 0, variances of 1) would itself be
an answer without noise. So ``fit`` looks at the types of the steps, which are public, in the pipelines that called it.
That is found in the frames of the calls, wherever the pipeline is fitted: in a search, in a worker, inside another.
Whoever transforms rows by hand, before a fit, is not seen.
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

__all__ = ["UnprotectedStepWarning", "warn_of_unprotected_steps"]

# of what they learn, all is in the shape of the rows, or drawn without them
_OF_THE_SHAPE = {
    "PolynomialFeatures",
    "GaussianRandomProjection",
    "SparseRandomProjection",
    "RBFSampler",
    "SkewedChi2Sampler",
    "PolynomialCountSketch",
}
_METHODS = {"fit", "fit_transform", "fit_predict"}


class UnprotectedStepWarning(UserWarning):
    """A step of the pipeline before a private estimator learned from the rows, and no budget counts that.

    Examples
    --------
    >>> from dpkit.sklearn import UnprotectedStepWarning
    >>> issubclass(UnprotectedStepWarning, UserWarning)
    True
    """


def warn_of_unprotected_steps(private: type) -> None:
    """Warn of steps that learn from rows and are not ``private``, in every pipeline that fits the caller's caller."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe(2)
    before: dict[int, int] = {}
    while frame is not None:
        code = frame.f_code
        if code.co_name in _METHODS or code.co_name == "_fit":
            pipeline = frame.f_locals.get("self")
            if isinstance(pipeline, Pipeline):
                if code.co_name == "_fit":  # fits all steps but the last; this one is among them
                    before[id(pipeline)] = int(frame.f_locals.get("step_idx", 0))
                else:
                    steps = pipeline.steps[: before.pop(id(pipeline), len(pipeline.steps) - 1)]
                    found += [name for _, step in steps for name in _unprotected(step, private)]
        frame = frame.f_back
    if found:
        warnings.warn(
            f"{', '.join(dict.fromkeys(found))} before a private estimator learned from the rows without noise, and no "
            "budget counts it: the result is not private. Take PrivateScaler, dpkit.features.PublicScaler, or a "
            "transformer that learns nothing and says so by the tag requires_fit=False",
            UnprotectedStepWarning,
            stacklevel=4,
        )


def _unprotected(step: Any, private: type) -> list[str]:
    """The types of what learns from rows in a step."""
    if step is None or isinstance(step, str | private):
        return []
    parts: list[Any] | None = None
    if isinstance(step, Pipeline):
        parts = [part for _, part in step.steps]
    elif isinstance(step, FeatureUnion):
        parts = [part for _, part in step.transformer_list]
    elif isinstance(step, ColumnTransformer):
        parts = [part for _, part, _ in step.transformers] + [step.remainder]
    if parts is not None:
        return [name for part in parts for name in _unprotected(part, private)]
    name = type(step).__name__
    if name in _OF_THE_SHAPE or not get_tags(step).requires_fit:
        return []
    # categories that are named are not learned
    categories = getattr(step, "categories", "auto")
    if name in ("OneHotEncoder", "OrdinalEncoder") and not isinstance(categories, str):
        return []
    return [name]
