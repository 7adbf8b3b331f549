"""The total of a description: ε for a δ, δ for an ε, under one accountant or under the best that applies.

Which accountants are tried when none is named: GDP alone where it is exact (Gaussians only), the sum of the ε's alone
where that is (no δ is asked for, or none is left), else all that know the whole description; the privacy loss
distribution only while it takes a fraction of a second, that is for at most some hundred different parts (``compare``,
or naming it, always runs it). For ε of a sum whose parts' pairs are their own that one alone is asked, as no other can
say less.

A description from outside is replaced by what it says of itself first (:func:`accounting.releases.base.known`).

An accountant that knows a description and finds no finite answer, where another one does, says so by a
:class:`UserWarning`: the other answer may be far above the truth.
"""

from __future__ import annotations

import math
import warnings
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Literal, get_args

import numpy as np

import accounting.adaptive.registry  # noqa: F401  (the PLD accountant asks those that are entered)
from accounting.checks import fraction, nonnegative
from accounting.errors import UnsupportedRelease
from accounting.printed import as_html
from accounting.releases.base import Composed, Release, check_release, known, may_fail
from accounting.releases.noise import is_gaussian

__all__ = ["Accountant", "Bound", "Comparison", "compare", "delta", "epsilon", "meets"]

Accountant = Literal["gdp", "pure", "zcdp", "rdp", "pld"]
ACCOUNTANTS: dict[Accountant, ModuleType] = {
    name: import_module(f"accounting.{'compose' if name == 'pld' else 'notions'}.{name}")
    for name in get_args(Accountant)
}


_NOTHING = Composed()


class Bound(float):
    """A float that remembers which accountant proved it (``.accountant``)."""

    accountant: str

    def __new__(cls, value: float, accountant: str) -> Bound:
        bound = super().__new__(cls, value)
        bound.accountant = accountant
        return bound

    def __reduce__(self) -> tuple[type[Bound], tuple[float, str]]:
        return type(self), (float(self), self.accountant)


def _candidates(
    rest: Release,
    whole: Release,
    accountant: Accountant | None,
    *,
    delta: float | None,
    epsilon: float | None,
    every: bool,
) -> list[Accountant]:
    if accountant is not None:
        if accountant not in ACCOUNTANTS:
            raise ValueError(f"accountant must be one of {get_args(Accountant)}, got accountant={accountant!r}")
        return [accountant]
    if every:
        return list(ACCOUNTANTS)
    if rest == _NOTHING:  # nothing was released: that costs nothing at δ = 0, too
        return ["gdp", "pure"]
    if is_gaussian(rest):  # nothing beats an exact answer
        return ["gdp"]
    if _is_pure(whole, delta, epsilon):  # nor this one
        return ["pure"]
    return [name for name in ACCOUNTANTS if name != "pld" or ACCOUNTANTS["pld"].is_quick(whole)]


def _bounds(
    release: Release,
    accountant: Accountant | None,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    every: bool = False,
) -> dict[str, float]:
    """The candidates that know the whole description, each with its ε at ``delta`` or its δ at ``epsilon``."""
    check_release(release)
    split = whole = 0.0, known(release)
    if may_fail(split[1]):
        from accounting.compose.failures import rest_delta, split_failures

        split, whole = split_failures(release), split_failures(release, whole_counts=True)
    found: dict[str, float] = {}
    errors: list[str] = []
    failures: list[str] = []
    candidates = _candidates(split[1], whole[1], accountant, delta=delta, epsilon=epsilon, every=every)
    for name in sorted(candidates, key=lambda name: name != "pld"):
        # the one that is exact for a single release has come first: if that costs nothing, no other can say less
        if not every and delta is not None and "pld" in found and _is_enough(found["pld"], whole[1]):
            break
        module = ACCOUNTANTS[name]
        log_survival, rest = whole if name == "pld" else split
        try:
            if delta is not None:
                left = delta if log_survival == 0 else rest_delta(log_survival, delta)
                usable = left > 0 or (left == 0 and name == "pure")
                found[name] = module.epsilon(rest, left) if usable else _unreachable(module, rest)
            else:
                found[name] = min(1.0, -math.expm1(log_survival) + math.exp(log_survival) * module.delta(rest, epsilon))
        except UnsupportedRelease as error:
            errors.append(str(error))
        except ArithmeticError as error:
            failures.append(f"{name} ({error})")
    found = {name: found[name] for name in candidates if name in found}
    if not found:
        raise UnsupportedRelease("; ".join(errors + failures))
    if math.isfinite(found.get("rdp", math.inf)) and not math.isfinite(found.get("pld", 0.0)):
        failures.append("pld (no finite bound)")
    if failures:
        best = min(found, key=lambda name: found[name])
        warnings.warn(f"no answer from {', '.join(failures)}: {best} answers, perhaps far too high", stacklevel=3)
    return found


def _is_pure(release: Release, delta: float | None, epsilon: float | None) -> bool:
    """Whether the sum of the ε's says all there is to say: at δ = 0, and at an ε that is as large."""
    pure = ACCOUNTANTS["pure"]
    if delta or not pure.is_exact(release):
        return False
    return epsilon is None or bool(pure.pure(release) <= epsilon)


def _is_enough(epsilon: float, release: Release) -> bool:
    return epsilon == 0 or bool(ACCOUNTANTS["pld"].is_enough(release, epsilon))


def _unreachable(module: ModuleType, rest: Release) -> float:
    """No ε reaches the asked δ, but an unsupported description still raises."""
    if hasattr(module, "check"):
        module.check(rest)
    else:
        module.delta(rest, 0.0)
    return math.inf


def epsilon(release: Release, delta: float, *, accountant: Accountant | None = None) -> Bound:
    """The smallest proved ε such that ``release`` is (ε, ``delta``)-DP.

    Parameters
    ----------
    release : Release
        A description, such as ``100 * Gaussian(10.0)``.
    delta : float
        In [0, 1). At 0 only pure differential privacy gives a finite answer.
    accountant : {"gdp", "pure", "zcdp", "rdp", "pld"}, optional
        Use this accountant only. By default the smallest of all that apply (see the module's text).

    Returns
    -------
    Bound
        A float; its ``accountant`` attribute names the accountant that proved it.

    Raises
    ------
    UnsupportedRelease
        If no accountant (or not the one that was named) covers the whole description.

    Examples
    --------
    >>> from accounting import Gaussian, epsilon
    >>> total = epsilon(1000 * Gaussian(2.0), delta=1e-6)
    >>> round(total, 6), total.accountant
    (199.284569, 'gdp')
    """
    fraction("delta", delta, include_zero=True)
    with np.errstate(under="ignore"):  # what is too small for a float is nothing, also where numpy refuses it
        best = min(_bounds(release, accountant, delta=delta).items(), key=lambda item: item[1])
    return Bound(best[1], best[0])


def delta(release: Release, epsilon: float, *, accountant: Accountant | None = None) -> Bound:
    """The smallest proved δ such that ``release`` is (``epsilon``, δ)-DP; see :func:`epsilon`.

    Examples
    --------
    >>> from accounting import Gaussian, delta
    >>> round(delta(Gaussian(1.0), epsilon=0.0), 12)
    0.382924922548
    """
    nonnegative("epsilon", epsilon)
    with np.errstate(under="ignore"):
        best = min(_bounds(release, accountant, epsilon=epsilon).items(), key=lambda item: item[1])
    return Bound(best[1], best[0])


def meets(release: Release, epsilon: float, most: float) -> bool:
    """Whether :func:`delta` at ``epsilon`` is at most ``most``; no other accountant is asked where Gaussian DP says so.

    That takes no time where a privacy loss distribution may take a second.
    """
    with suppress(UnsupportedRelease):
        if delta(release, epsilon, accountant="gdp") <= most:
            return True
    return bool(delta(release, epsilon) <= most)


class Comparison(dict[str, float]):
    """ε under every accountant that applies, smallest first; ``at_least`` is a proved lower bound on any of them."""

    def __init__(self, bounds: dict[str, float], release: Release, delta: float) -> None:
        super().__init__(sorted(bounds.items(), key=lambda item: item[1]))
        self._release, self._delta = release, delta

    @cached_property
    def at_least(self) -> float:
        """What some mechanism that fits costs at least (:func:`accounting.bound`); found when first asked for."""
        from accounting.lower.lower_bound import lower_epsilon  # not what every import waits for

        with np.errstate(under="ignore"):
            return lower_epsilon(self._release, self._delta)

    def __repr__(self) -> str:
        return f"{super().__repr__()} (at least {self.at_least!r})"

    def _repr_html_(self) -> str:
        cells = [[name, f"{value:.10g}"] for name, value in [*self.items(), ("proved lower bound", self.at_least)]]
        return as_html(repr(self._release), [["accountant", f"ε at δ = {self._delta:g}"], *cells])


def compare(release: Release, delta: float) -> Comparison:
    """ε at ``delta`` under every accountant that applies, smallest first, and a lower bound (``.at_least``).

    Examples
    --------
    >>> from accounting import Gaussian, compare
    >>> bounds = compare(100 * Gaussian(10.0), 1e-5)
    >>> {name: round(value, 3) for name, value in bounds.items()}, round(bounds.at_least, 3)
    ({'gdp': 4.377, 'pld': 4.377, 'zcdp': 4.728, 'rdp': 4.728}, 4.377)
    """
    fraction("delta", delta, include_zero=True)
    with np.errstate(under="ignore"):
        return Comparison(_bounds(release, None, delta=delta, every=True), release, delta)
