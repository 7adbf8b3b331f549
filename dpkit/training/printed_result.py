"""The result of an optimizer, which prints what may be published of it; imported when there is one."""

from __future__ import annotations

import numpy as np
from scipy.optimize import OptimizeResult

from accounting.printed import as_html, parameter_cells

__all__ = ["PrivateResult"]


class PrivateResult(OptimizeResult):  # type: ignore[misc]
    """An ``OptimizeResult`` in one line: what was released, and its cost; without what it lists as ``not_private``."""

    def __repr__(self) -> str:
        x = np.asarray(self.x)
        size = f"{x.size:,} parameters of length {np.linalg.norm(x):.6g}"
        path = f"; gradients {self.path}" if "path" in self else ""
        return f"PrivateResult({size}; {self.message}{path}; costs {self.cost!r})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        hidden = {*self.not_private, "not_private", "release", "success"}
        shown = {name: value for name, value in self.items() if name not in hidden}
        return as_html("Private result", parameter_cells(shown))
