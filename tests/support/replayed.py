"""Record and replay: what a program draws, hides and shows on two neighbouring inputs.

After Cebere, Erb, Desfontaines, Bellet & Fitzsimons, "Privacy in Theory, Bugs in Practice: Grey-Box Auditing of
Differential Privacy Libraries" (arXiv:2602.17454). The first run is recorded: every request for noise (its law, scale,
shape and type), the value to which the noise was added, and what came out. The second run is on a neighbouring input
with the same coins, and wherever noise is added it gets what came out *in the first run*, as if its noise had been the
other one that leads there. That is the comparison that a privacy proof makes, so after it

* the second run must ask for the same noise, in the same order: else a scale, a size or a branch depends on the data;
* the values under the noise may be no farther apart than the ledger's entry pays for (:func:`share`), also where later
  values depend on earlier outputs, since those are equal;
* whatever the program returns or raises, and its ledger, must be equal to the last bit: nothing else has left it.

Noise is followed by its type: samplers return a :class:`Noise`, and adding one to a value is a release. Where noise is
stored or compared and not added, the function around it is a *site*, whose arguments and result are kept in its place.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial, wraps
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
from bits import bits

import dpbandits
import dpkit
from accounting import (
    ZCDP,
    ApproxDP,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    Release,
    epsilon,
    zcdp,
)
from accounting.releases.base import Composed
from dpkit.randomness import generator

# of raw random numbers, those that are drawn within a sampler belong to it
_RAW = ("random", "standard_normal", "standard_exponential", "standard_gamma", "integers", "permutation", "bytes")
_FLOATING = ("normal", "laplace")
_SAMPLERS = (
    "discrete_laplace",
    "discrete_gaussian",
    "rounded_laplace",
    "rounded_gaussian",
    "rounded_laplace_one",
    "rounded_gaussian_one",
    "generalized_gaussian",
    "binomial_half",
    "bernoulli_exp",
)
_GAUSSIAN = ("discrete_gaussian", "rounded_gaussian", "rounded_gaussian_one", "_noise", "normal", "standard_normal")
_LAPLACE = ("discrete_laplace", "rounded_laplace", "rounded_laplace_one", "laplace")


class Diverged(BaseException):
    """The second run asked for other noise than the first; no ``except Exception`` may hide it."""


@dataclass
class Draw:
    """One request for noise: what was asked for, and each value under it with what came out."""

    law: str
    scale: Any
    shape: tuple[int, ...]
    kind: str = ""
    hidden: list[Any] = field(default_factory=list)
    shown: list[Any] = field(default_factory=list)
    number: Any = None  # itself, where it is raw
    used: bool = False  # by a site

    @property
    def asked(self) -> tuple[Any, ...]:
        return self.law, repr(self.scale), self.shape, self.kind


@dataclass
class Tape:
    """The draws of one run; with ``before`` they are held against those of an earlier one."""

    before: Tape | None = None
    absent: int = 0  # so many last rows are missing in the second run, and so are their own random numbers
    draws: list[Draw] = field(default_factory=list)
    inside: bool = False

    now: ClassVar[Tape | None] = None

    def ask(self, law: str, scale: Any, shape: tuple[int, ...], kind: str = "") -> tuple[Draw, Draw | None]:
        draw, at = Draw(law, scale, shape, kind), len(self.draws)
        self.draws.append(draw)
        if self.before is None:
            return draw, None
        known = self.before.draws[at] if at < len(self.before.draws) else None
        if known is None or (known.asked != draw.asked and not self._lacks(known, draw)):
            raise Diverged(f"draw {at}: {None if known is None else known.asked} and then {draw.asked}")
        return draw, known

    def _lacks(self, known: Draw, draw: Draw) -> bool:
        """Whether these are raw numbers for each row, of which there are fewer now."""
        alike = known.number is not None and (known.law, known.kind) == (draw.law, draw.kind)
        return alike and len(draw.shape) > 0 and known.shape == (draw.shape[0] + self.absent, *draw.shape[1:])

    def same(self, known: Draw | None, draw: Draw, value: Any) -> Any:
        """Raw numbers: those of the first run, without the absent rows'."""
        if known is not None:
            value = known.number if known.shape == draw.shape else known.number[: -self.absent]
        draw.number = value.copy() if isinstance(value, np.ndarray) else value  # callers may work in place
        return value.copy() if known is not None and isinstance(value, np.ndarray) else value

    def released(self, draw: Draw, known: Draw | None, hidden: Any, shown: Callable[[], Any]) -> Any:
        """What comes out where ``hidden`` goes in: of the first run, if there was one."""
        at = len(draw.hidden)
        draw.hidden.append(hidden)
        if known is None:
            value = shown()  # which may be a place that later noise overwrites
            draw.shown.append(value.copy() if isinstance(value, np.ndarray) else value)
        elif at >= len(known.shown):
            raise Diverged(f"the noise of {known.asked} is added once more")
        else:
            draw.shown.append(known.shown[at])
        out = draw.shown[-1]
        return out.copy() if isinstance(out, np.ndarray) else out


class Noise(np.ndarray):
    """Noise that knows its draw: once it is added to something, that is released."""

    draw: Draw
    known: Draw | None
    unit: Any = 1.0

    @staticmethod
    def of(values: Any, draw: Draw, known: Draw | None, unit: Any = 1.0) -> Noise:
        made = np.asarray(values).view(Noise)
        made.draw, made.known, made.unit = draw, known, unit
        return made

    def __array_finalize__(self, parent: Any) -> None:
        if isinstance(parent, Noise) and hasattr(parent, "draw"):
            self.draw, self.known, self.unit = parent.draw, parent.known, parent.unit

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **more: Any) -> Any:
        plain = [np.asarray(x) if isinstance(x, Noise) else x for x in inputs]
        if out is not None:
            more["out"] = tuple(np.asarray(x) if isinstance(x, Noise) else x for x in out)
        compute = partial(getattr(ufunc, method), *plain, **more)
        tape, noisy = Tape.now, [x for x in inputs if isinstance(x, Noise)]
        if tape is None or method != "__call__" or len(noisy) != 1 or not hasattr(noisy[0], "draw"):
            return compute()
        noise = noisy[0]
        if tape.inside:  # of a site, which is what hides
            noise.draw.used = True
            return compute()
        other = next((x for x in inputs if x is not noise), None)
        if ufunc is np.multiply and out is None:
            return Noise.of(compute(), noise.draw, noise.known, np.multiply(noise.unit, other))
        if ufunc is np.add:
            value = tape.released(noise.draw, noise.known, np.array(other) / noise.unit, compute)
            if out is not None:
                out[0][...] = value
                return out[0]
            return value
        return compute()

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        def plain(tree: Any) -> Any:
            if isinstance(tree, Noise):
                return np.asarray(tree)
            return type(tree)(map(plain, tree)) if isinstance(tree, (list, tuple)) else tree

        return func(*plain(args), **{name: plain(value) for name, value in kwargs.items()})


class WholeNoise(int):
    """The same for one number."""

    noise: Noise

    def __radd__(self, other: Any) -> Any:
        return int(self.noise + other)

    __add__ = __radd__


# ----------------------------------------------------------------------------------------------- where noise is drawn


def _sampler(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def drawn(*args: Any, **more: Any) -> Any:
        tape = Tape.now
        if tape is None or tape.inside:
            return original(*args, **more)
        tape.inside = True
        try:
            value = original(*args, **more)
        finally:
            tape.inside = False
        array = np.asarray(value)
        # the scale is what comes first, or all parameters of the law
        scale = args[:3] if name == "generalized_gaussian" else np.asarray(args[0]).tolist()
        draw, known = tape.ask(name, scale, array.shape, array.dtype.str)
        noise = Noise.of(array, draw, known)
        if not isinstance(value, int):
            return noise
        whole = WholeNoise(value)
        whole.noise = noise
        return whole

    return drawn


def _raw(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def drawn(self: Any, *args: Any, **more: Any) -> Any:
        tape = Tape.now
        if tape is None or tape.inside:
            return original(self, *args, **more)
        tape.inside = True
        try:
            value = original(self, *args, **more)
        finally:
            tape.inside = False
        if name == "random_words":
            draw, known = tape.ask(name, None, value.shape)
            return tape.same(known, draw, value)
        given = () if name == "permutation" else (args, tuple(more.items()))  # the rows that are permuted are private
        shape = np.shape(value)
        sized = name in ("random", "standard_normal", "standard_exponential", "permutation")
        draw, known = tape.ask(name, 1.0 if sized else given, shape, type(value).__name__)
        value = tape.same(known, draw, value)
        return Noise.of(value, draw, known) if name == "standard_normal" and shape else value

    return drawn


def _floating(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def drawn(self: Any, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        tape = Tape.now
        if tape is None or tape.inside:
            return original(self, loc, scale, size)
        tape.inside = True
        try:
            value = np.asarray(original(self, 0.0, scale, np.shape(loc) if size is None else size))
        finally:
            tape.inside = False
        draw, known = tape.ask(name, np.asarray(scale).tolist(), value.shape, value.dtype.str)
        noise = Noise.of(value, draw, known)
        return noise if not np.any(loc) and np.ndim(loc) == 0 else noise + loc

    return drawn


# -------------------------------------------------------------------- where it is stored or compared, and what is shown


def _site(name: str, original: Callable[..., Any], hidden: Callable[..., Any] | None) -> Callable[..., Any]:
    """A function whose result is shown, and whose arguments are hidden: its own draws are not looked at."""

    @wraps(original)
    def called(*args: Any, **more: Any) -> Any:
        tape = Tape.now
        if tape is None or tape.inside:
            return original(*args, **more)
        tape.inside = True
        try:
            under = None if hidden is None else hidden(*args)
            value = original(*args, **more)
        finally:
            tape.inside = False
        shape = np.shape(value) if isinstance(value, np.ndarray) else ()
        draw, known = tape.ask(name, _scale_of(name, args), shape, type(value).__name__)
        value = tape.released(draw, known, under, lambda: value)
        if name == "AboveThreshold.ask":
            args[0].done = value
        return value

    return called


def _scale_of(name: str, args: tuple[Any, ...]) -> Any:
    if name.startswith("Ahead."):
        law = args[0]._law
        bits = getattr(law, "bits", None)
        return type(law).__name__, 2.0**bits if bits is not None else getattr(law, "scale", getattr(law, "_sigma", 0.0))
    return {"draw_by_rank": args[4:5], "NoisyOrder.largest": (getattr(args[0], "_noise", None),)}.get(name)


def _weights(order: Any) -> Any:
    return np.array(order.replayed, dtype=object)


def _by_rank(points: Any, low: int, high: int, target: Any, rate: Any, rng: Any) -> Any:
    """The exponents −c·|L(o) − t| of the candidates o, at those where they change: all of them, as (places, values)."""
    places = np.unique(np.concatenate([[low], points + 1])).clip(low, high)
    return places, -float(rate) * np.abs(np.searchsorted(points, places) - float(target))


# module, class or None, function, and what it hides
_SITES: tuple[tuple[str, str | None, str, Callable[..., Any] | None], ...] = (
    ("dpkit.continual._noise", "Ahead", "add_to", lambda self, encoded: np.array(encoded)),
    ("dpkit.continual._noise", "Ahead", "one", lambda self, encoded: np.array(encoded)),
    ("dpkit.samplers.noisy_order", None, "largest_of_few", lambda weights, *rest: np.array(weights)),
    ("dpkit.samplers.noisy_order", "NoisyOrder", "largest", _weights),
    ("dpkit.samplers.ladder", None, "draw_by_rank", _by_rank),
    ("dpkit.queries.above_threshold", "AboveThreshold", "__init__", None),
    ("dpkit.queries.above_threshold", "AboveThreshold", "ask", lambda self, value: np.array(float(value))),
    ("dpkit.optimize.batch.objective_perturbation", None, "_minimizer", None),
    ("dpkit.moments.reports", "Reports", "draw", None),
    ("dpkit.moments.local", "PairMessages", "randomized", None),
    ("dpkit.shuffle.randomizer", "Randomizer", "ones", None),
    ("dpkit.shuffle.randomizer", "Randomizer", "tally", None),
    ("dpkit.shuffle.randomized_response", "ShuffledRandomizedResponse", "_randomized", None),
    ("dpkit.shuffle.scalar_mean", "ScalarMean", "_rounded", None),
)


# what a gate need not import, unless somebody has
_HEAVY = ("cli", "serve", "sklearn", "reproduce", "__main__")


@cache
def _modules() -> tuple[ModuleType, ...]:
    """All modules of the packages, imported: one that is first imported while samplers are wrapped would keep them."""
    waiting: list[ModuleType] = [dpkit, dpbandits]
    for package in waiting:
        for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            if info.name.rpartition(".")[2] not in _HEAVY or info.name in sys.modules:
                module = importlib.import_module(info.name)
                if info.ispkg:
                    waiting.append(module)
    return tuple(module for name, module in sys.modules.items() if name.partition(".")[0] in ("dpkit", "dpbandits"))


def _bindings(original: Any) -> Iterator[tuple[Any, str]]:
    for module in _modules():
        yield from ((module, name) for name, value in vars(module).items() if value is original)


@contextmanager
def wrapped() -> Iterator[None]:
    """Inside, samplers, generators and sites write on the tape that runs."""
    from dpkit import samplers
    from dpkit.mechanisms import additive
    from dpkit.queries import residual_planner
    from dpkit.samplers import _exact, noisy_order, rounded

    _modules()
    originals = {name: getattr(samplers, name, None) or getattr(rounded, name) for name in _SAMPLERS}
    originals["_noise"] = residual_planner._noise
    words = _exact.random_words
    with pytest.MonkeyPatch.context() as patch:
        made = {name: _sampler(name, original) for name, original in originals.items()}
        for name, original in originals.items():
            for module, attribute in list(_bindings(original)):
                patch.setattr(module, attribute, made[name])
        for kind in (additive.LaplaceMechanism, additive.GaussianMechanism):
            law = kind._law
            one, many = (made[sampler.__name__] for sampler in (law.rounded_one, law.rounded))
            patch.setattr(kind, "_law", law._replace(rounded_one=one, rounded=many))
        for where, owner, name, hidden in _SITES:
            module = importlib.import_module(where)
            if owner is None:
                site = _site(name, original := getattr(module, name), hidden)
                for bound, attribute in list(_bindings(original)):
                    patch.setattr(bound, attribute, site)
            else:
                kind = getattr(module, owner)
                patch.setattr(kind, name, _site(f"{owner}.{name}", vars(kind)[name], hidden))
        for module, attribute in list(_bindings(words)):
            patch.setattr(module, attribute, _raw("random_words", words))
        patch.setattr(noisy_order.NoisyOrder, "add", _added(noisy_order.NoisyOrder.add))
        for name in _RAW:
            patch.setattr(generator.SecureGenerator, name, _raw(name, vars(generator.SecureGenerator)[name]))
        for name in _FLOATING:
            patch.setattr(generator.SecureGenerator, name, _floating(name, vars(generator.SecureGenerator)[name]))
        yield


def _added(original: Callable[..., Any]) -> Callable[..., Any]:
    """Candidates of a noisy maximum, whose exponents are kept for its site."""

    @wraps(original)
    def add(self: Any, weights: Any, *rest: Any) -> None:
        tape = Tape.now
        if tape is None or tape.inside:
            return original(self, weights, *rest)
        self.replayed = [*getattr(self, "replayed", []), *np.asarray(weights).tolist()]
        tape.ask("NoisyOrder.add", self._noise, weights.shape)
        tape.inside = True
        try:
            return original(self, weights, *rest)
        finally:
            tape.inside = False

    return add


# ------------------------------------------------------------------------------------------------------------ two runs


@dataclass
class Replay:
    """Two runs of one program: their tapes, what each has shown, and what is wrong."""

    first: Tape
    second: Tape
    shown: list[Any]
    problems: list[str]

    def reached(self, besides: tuple[str, ...] = ()) -> list[Release]:
        """What the values under the noise cost at these neighbours, as descriptions: never more than what was paid.

        But for draws of the laws ``besides``, which hide nothing.
        """
        mu, rest = 0.0, []
        for one, two in zip(self.first.draws, self.second.draws, strict=False):
            for near, far in zip(one.hidden, two.hidden, strict=False) if one.law not in besides else ():
                squared, ranges = _apart(one, near, far)
                mu += squared
                rest += ranges
        return [*([Gaussian(mu**-0.5)] if mu else []), *rest]

    def releases(self) -> int:
        """How many numbers were released."""
        return sum(getattr(value, "size", 1) for draw in self.first.draws if draw.hidden for value in draw.shown)


def _apart(draw: Draw, near: Any, far: Any) -> tuple[float, list[Release]]:
    """How far apart two values are under one draw: in standard deviations, squared, or in ε."""
    law, scale = draw.law, draw.scale
    if law.startswith("Ahead."):
        kind, scale = scale
        law = {"_Laplace": "laplace", "_Generalized": "generalized_gaussian"}.get(kind, "normal")
    if law in _GAUSSIAN:
        moved = _difference_of(near, far) / scale
        return float((moved * moved).sum()), []
    eps, kind = 0.0, PureDP
    if law in _LAPLACE:
        eps, kind = float(np.abs(_difference_of(near, far) / scale).sum()), lambda eps: Laplace(1.0 / eps)
    elif law in ("largest_of_few", "NoisyOrder.largest"):
        eps = float(np.ptp(_difference_of(near, far)[np.asarray(near, np.float64) > -np.inf]))
        return 0.0, [NoisyMax(eps)] * np.size(draw.shown[0]) if eps else []
    elif law == "draw_by_rank":
        places = np.union1d(near[0], far[0])
        one, two = (v[np.searchsorted(p, places, side="right") - 1] for p, v in (near, far))
        eps, kind = float(np.ptp(one - two)), NoisyMax
    return 0.0, [kind(eps)] if eps else []


def share(reached: list[Release], paid: Release) -> float:
    """How much of what was paid is reached: of all Gaussian costs (μ²), of all pure ones (ε), or of zCDP (ρ).

    At most 1 where the ledger's entry is right: not the total is compared, but each kind of noise with its own.
    """
    terms = [(one, times) for one, times in (paid.parts if isinstance(paid, Composed) else ((paid, 1),))]
    terms = [(one.release if isinstance(one, PoissonSubsampled) else one, times) for one, times in terms]
    rho = sum(times * one.rho for one, times in terms if isinstance(one, ZCDP))
    if rho:
        return sum(zcdp(one) for one in reached) / rho
    shares = []
    for is_pure in (False, True):
        found = sum(_size(one) for one in reached if _is_pure(one) == is_pure)
        bought = sum(times * _size(one) for one, times in terms if _is_pure(one) == is_pure)
        shares.append(found / bought if found else 0.0)
    return max(math.sqrt(shares[0]), shares[1])


def _is_pure(one: Release) -> bool:
    return isinstance(one, (Laplace, DiscreteLaplace, NoisyMax, PureDP))


def _size(one: Release) -> float:
    """What adds up: ε of pure costs, μ² of others; nothing of a mere δ."""
    if isinstance(one, ApproxDP) and one.epsilon == 0:
        return 0.0
    return float(epsilon(one, 0.0)) if _is_pure(one) else 2 * zcdp(one)


def _difference_of(near: Any, far: Any) -> Any:
    one, two = np.broadcast_arrays(np.asarray(near, np.float64), np.asarray(far, np.float64))
    return np.subtract(one, two, where=one != two, out=np.zeros(one.shape))  # also where both are infinite


def replay(program: Callable[[Any], Any], data: Any, neighbour: Any, *, absent: int = 0, seed: int = 0) -> Replay:
    """Run ``program(data)``, and ``program(neighbour)`` on the same coins with the same things shown.

    What it returns is compared to the last bit (:func:`bits.bits`), of an exception its type and its message.
    """
    first = Tape()
    second = Tape(before=first, absent=absent)
    problems: list[str] = []
    shown = []
    for tape, given in ((first, data), (second, neighbour)):
        try:
            shown.append(_run(program, given, tape, seed))
        except Diverged as other:
            problems.append(f"other noise was asked for: {other}")
            shown.append(None)
    if not problems:
        if len(first.draws) > len(second.draws):
            missing = first.draws[len(second.draws)].asked
            problems.append(f"draw {len(second.draws)} was not asked for again: {missing}")
        if shown[0] != shown[1]:
            problems.append(f"what is shown differs: {_difference(*shown)}")
    problems += [
        f"noise of {draw.asked} hides {hides} numbers"
        for draw in first.draws
        if draw.law in _GAUSSIAN + _LAPLACE and (hides := sum(map(np.size, draw.hidden))) > math.prod(draw.shape)
    ]
    problems += [
        f"noise of {draw.asked} was drawn and hides nothing"
        for draw in first.draws
        if draw.law in _GAUSSIAN + _LAPLACE and draw.law != "standard_normal" and not draw.hidden and not draw.used
    ]
    return Replay(first, second, shown, problems)


def _run(program: Callable[[Any], Any], data: Any, tape: Tape, seed: int) -> Any:
    coins = np.random.Generator(np.random.Philox(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generator, "random_bytes", coins.bytes)
        patch.setattr(secrets, "token_hex", lambda count: count * "ab")  # what is kept in a cache asks for none
        patch.setattr(dpkit.randomness, "_shared", [generator.SecureGenerator()])
        Tape.now = tape
        try:
            return bits(program(data))
        except Exception as error:
            return "raised", type(error).__name__, str(error)
        finally:
            Tape.now = None


def _difference(one: Any, two: Any) -> str:
    """The first place where two trees differ."""
    if isinstance(one, tuple) and isinstance(two, tuple) and len(one) == len(two):
        for a, b in zip(one, two, strict=True):
            if a != b:
                return _difference(a, b)
    return f"{one!r:.200} and {two!r:.200}"
