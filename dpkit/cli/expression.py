"""Descriptions of releases as text, such as ``1000 * Gaussian(2.0) + PureDP(0.1)``.

The text is read as Python syntax and then interpreted here, node by node: numbers, ``+ - * /``, the descriptions
of ``accounting`` and ``parallel`` by name, and for calibration the unknown ``z``. Nothing else has a meaning, and
nothing is ever evaluated by Python.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable
from inspect import signature
from typing import Any

import accounting
from accounting import Release
from dpkit.cli.claims import in_words

__all__ = ["Expression", "names"]


def names() -> dict[str, Callable[..., Release]]:
    """What a text may call: every description of ``accounting``, and ``parallel``."""
    # what is loaded only when it is asked for, ledgers and brackets, is no description
    found: dict[str, Callable[..., Release]] = {
        name: value
        for name, value in vars(accounting).items()
        if name in accounting.__all__
        and isinstance(value, type)
        and issubclass(value, Release)
        and value is not Release
    }
    found["parallel"] = accounting.parallel
    return found


class Expression:
    """A description as text; calling it gives the description.

    Parameters
    ----------
    text : str
        What is released. ``z`` stands for the noise multiplier that the call gives.

    Raises
    ------
    ValueError
        If the text means nothing here; the message points to the part that does not.

    Examples
    --------
    >>> from accounting import Gaussian, PureDP
    >>> Expression("1000 * Gaussian(2.0) + PureDP(0.1)")() == 1000 * Gaussian(2.0) + PureDP(0.1)
    True
    >>> Expression("10 * Gaussian(2 * z)")(3.0)
    (10 * Gaussian(noise_multiplier=6.0))
    >>> Expression("__import__('os')")
    Traceback (most recent call last):
        ...
    ValueError: unknown name '__import__': the names are ...
    """

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        try:
            self._tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError) as error:  # ValueError: some Pythons, of a null byte
            hint = getattr(error, "msg", error)
            if "(" not in self.text:
                hint = "a description has releases, such as 1000 * PoissonSubsampled(Gaussian(1.1), 0.01)"
                if in_words(self.text):
                    hint += "; only `dpkit check` reads words"
            raise ValueError(f"cannot read {_shown(self.text)}: {hint}") from None
        except (MemoryError, RecursionError):
            raise ValueError(f"cannot read {_shown(self.text)}: it is nested too deeply") from None
        self._names = names()
        self.has_unknown = any(isinstance(node, ast.Name) and node.id == "z" for node in ast.walk(self._tree))
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Name) and node.id != "z" and node.id not in self._names:
                close = difflib.get_close_matches(node.id, self._names, 1)
                hint = f"did you mean {close[0]!r}?" if close else f"the names are {', '.join(sorted(self._names))}"
                raise ValueError(f"unknown name {node.id!r}: {hint}")

    def __call__(self, z: float | None = None) -> Release:
        """The description, with the unknown ``z`` set."""
        try:
            value = self._value(self._tree, z)
        except RecursionError:
            raise ValueError(f"cannot read {_shown(self.text)}: it is nested too deeply") from None
        if not isinstance(value, Release):
            raise ValueError(f"{_shown(self.text)} is not a release: write one such as Gaussian(2.0)")
        return value

    def _value(self, node: ast.expr, z: float | None) -> Any:
        match node:
            case ast.Constant(value=int() | float() | str() as value) if not isinstance(value, bool):
                return value
            case ast.Name(id="z") if z is not None:
                return z
            case ast.Name(id="z"):
                raise ValueError("z is the unknown of a calibration: give a number here")
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._number(operand, z)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._combined(node, left, right, z, lambda a, b: a + b)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return self._combined(node, left, right, z, lambda a, b: a * b)
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return self._number(left, z) - self._number(right, z)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                divisor = self._number(right, z)
                if divisor == 0:
                    raise ValueError(f"{_shown(ast.unparse(node))} divides by zero")
                return self._number(left, z) / divisor
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in self._names:
                if any(keyword.arg is None for keyword in keywords) or any(isinstance(a, ast.Starred) for a in args):
                    raise ValueError(f"{_shown(ast.unparse(node))} has no meaning in a description")
                values = [self._value(argument, z) for argument in args]
                if name == "parallel" and not all(isinstance(value, Release) for value in values):
                    raise ValueError(f"{_shown(ast.unparse(node))} must hold releases only")
                named = {str(keyword.arg): self._value(keyword.value, z) for keyword in keywords}
                try:
                    return self._names[name](*values, **named)
                except (TypeError, AttributeError, OverflowError) as error:
                    raise ValueError(
                        f"{_shown(ast.unparse(node))}: {_strange(self._names[name], named) or error}"
                    ) from None
        raise ValueError(f"{_shown(ast.unparse(node))} has no meaning in a description")

    def _number(self, node: ast.expr, z: float | None) -> Any:
        value = self._value(node, z)
        if not isinstance(value, (int, float)):
            raise ValueError(f"{_shown(ast.unparse(node))} is not a number")
        return value

    def _combined(
        self, node: ast.expr, left: ast.expr, right: ast.expr, z: float | None, operation: Callable[[Any, Any], Any]
    ) -> Any:
        """Two numbers, two releases (added), or a count and a release (multiplied)."""
        a, b = self._value(left, z), self._value(right, z)
        if isinstance(a, str) or isinstance(b, str):
            raise ValueError(f"{_shown(ast.unparse(node))} has no meaning in a description")
        try:
            return operation(a, b)
        except (TypeError, OverflowError) as error:
            raise ValueError(f"{_shown(ast.unparse(node))}: {error}") from None


def _strange(release: Callable[..., Release], named: dict[str, Any]) -> str:
    """Which parameter a release does not have, and which it has."""
    known = [p.name for p in signature(release).parameters.values() if p.kind is not p.VAR_POSITIONAL]
    unknown = [name for name in named if name not in known]
    if not (known and unknown):
        return ""
    noise = " (noise over the sensitivity; Laplace noise of a pure ε has 1/ε)" if "noise_multiplier" in known else ""
    return f"{release.__name__} has no parameter {unknown[0]!r}, only {', '.join(known)}{noise}"


def _shown(text: str) -> str:
    """A part of a description, short enough for a message."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
