"""The cryptographic source, as a ``numpy.random.Generator``."""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dpkit.randomness.pool import POOL, Pool
from dpkit.randomness.variates import BLOCK, exponentials, gammas, normals, uniforms

__all__ = ["SecureGenerator", "random_bytes"]

Size = int | Sequence[int] | None
# So many bytes take no longer from OpenSSL itself than from what was drawn ahead.
_DIRECT = 1 << 14
# Python asks OpenSSL for fewer than 2³¹ bytes at once.
_MOST = 1 << 30


def random_bytes(count: int) -> bytes:
    """Bytes from the generator of the OpenSSL that Python is linked to, or from the kernel where there is none.

    It is AES-256 in counter mode (NIST SP 800-90A, CTR_DRBG), keyed by the operating system, keyed anew in the child of
    a fork and at least every 2¹⁶ requests, and it replaces its key after each request. It is five to fifteen times as
    fast as the kernel's.
    """
    if count > _MOST:
        return b"".join(random_bytes(min(_MOST, count - start)) for start in range(0, count, _MOST))
    try:
        from ssl import RAND_bytes  # loaded at the first draw: it costs 20 ms
    except ImportError:
        return os.urandom(count)
    return RAND_bytes(count)


def _words(count: int) -> NDArray[np.uint64]:
    return np.frombuffer(random_bytes(8 * count), dtype=np.uint64)


class SecureGenerator(np.random.Generator):
    """A ``numpy.random.Generator`` whose every value is computed from a cryptographic stream of bits.

    Promised:

    * The bits are those of OpenSSL's AES-256 counter generator, keyed from the operating system (of the kernel's own
      generator if Python was built without OpenSSL). No key or counter is held here, so there is no state to save.
    * Small requests are served from values that were drawn ahead; each is handed out once and then overwritten.
    * After a fork the child overwrites what the parent had drawn ahead, and its bits are independent of the parent's.
    * It cannot be seeded, copied, pickled or rewound. Threads may share it.
    * A method that is not implemented on this stream raises ``NotImplementedError``; none falls back on another one.

    Not promised: that floating-point noise hides every bit of its input (use the exact samplers for that), that
    running times are independent of the values, that copies which Python or the operating system makes of memory
    (temporaries, swap, a snapshot of a virtual machine) are wiped, or a reproducible order of values.
    """

    def __init__(self) -> None:
        # numpy requires a bit generator; nothing is ever drawn from it, for no inherited method is reachable
        super().__init__(np.random.PCG64())
        self._renew()
        _live.add(self)

    def _renew(self) -> None:
        """Wipe everything drawn ahead (and drop a lock that another thread held when the process was forked)."""
        for pool in vars(self).values():
            if isinstance(pool, Pool):
                pool.wipe()
        self._guard = threading.RLock()  # reentrant, for signal handlers
        self._pid = os.getpid()
        self._raw = Pool(_fill_words, np.uint64)
        self._uniform = Pool(lambda out: uniforms(out, _words), np.float64)
        self._normal = Pool(lambda out: normals(out, _words), np.float64)
        self._exponential = Pool(lambda out: exponentials(out, _words), np.float64)

    def _draw(self, pool: str, size: Size, out: NDArray[np.float64] | None = None) -> Any:
        """Values of one pool in the shape ``size`` (a float for None), or in ``out``."""
        if os.getpid() != self._pid:  # a fork that did not run Python's hooks
            self._renew()
        if out is None:
            values = np.empty(() if size is None else size)
        else:
            values = out
            if out.dtype != np.float64 or not out.flags.c_contiguous or not out.flags.writeable:
                raise TypeError("out must be a writeable, C-contiguous array of float64")
            if size is not None and np.broadcast_shapes(size) != out.shape:
                raise ValueError(f"size must match out of shape {out.shape}, got size={size!r}")
        with self._guard:
            getattr(self, pool).take(values.reshape(-1))
        return float(values) if size is None and out is None else values

    def _draw_words(self, count: int) -> NDArray[np.uint64]:
        if os.getpid() != self._pid:
            self._renew()
        if count >= POOL:
            return _words(count)
        words = np.empty(count, np.uint64)
        with self._guard:
            self._raw.take(words)
        return words

    # ------------------------------------------------------------------------ bits, integers and permutations

    def bytes(self, length: int) -> bytes:
        """``length`` random bytes."""
        if length >= _DIRECT:
            return random_bytes(length)
        return self._draw_words((length + 7) // 8).tobytes()[:length]

    def integers(  # type: ignore[override]
        self,
        low: int,
        high: int | None = None,
        size: Size = None,
        dtype: DTypeLike = np.int64,
        endpoint: bool = False,
    ) -> Any:
        """Uniform integers in [low, high), or in [0, low) if ``high`` is None, without bias; the bounds are numbers."""
        if high is None:
            low, high = 0, low
        first, last = int(low), int(high) - (not endpoint)
        kind = np.dtype(dtype)
        lowest, highest = (0, 1) if kind == np.bool_ else (np.iinfo(kind).min, np.iinfo(kind).max)
        if not lowest <= first <= last <= highest:
            raise ValueError(f"low and high must bound a nonempty range of {kind}, got low={low!r}, high={high!r}")
        shape = () if size is None else tuple(np.empty(size, np.bool_).shape)
        offsets = self._below(last - first + 1, math.prod(shape))
        # modular arithmetic in 64 bits gives the right low bits for every signed and unsigned type
        values = (offsets + np.uint64(first % 2**64) if first else offsets).astype(kind).reshape(shape)
        return values if size is not None else values[()].item()

    def _below(self, span: int, count: int) -> NDArray[np.uint64]:
        """Uniform integers in [0, span), 1 ≤ span ≤ 2⁶⁴, by rejection from the next power of two."""
        bits = (span - 1).bit_length()
        if bits == 64 and span == 2**64:
            return self._draw_words(count)
        shift, bound = np.uint64(64 - bits), np.uint64(span - 1)
        if bits == 0:
            return np.zeros(count, np.uint64)
        values: NDArray[np.uint64] = self._draw_words(count) >> shift
        rejected = np.flatnonzero(values > bound)
        while rejected.size:
            values[rejected] = self._draw_words(rejected.size) >> shift
            rejected = rejected[values[rejected] > bound]
        return values

    def permutation(self, x: int | ArrayLike, axis: int = 0) -> NDArray[Any]:
        """A uniformly permuted copy of ``x`` along ``axis``, or of ``arange(x)``."""
        items = np.arange(x) if isinstance(x, (int, np.integer)) else np.asarray(x)
        count = items.shape[axis]
        while True:
            keys = self._draw_words(count)
            order = np.argsort(keys)
            ranked = keys[order]
            if not np.any(ranked[1:] == ranked[:-1]):  # a tie, of probability below count²·2⁻⁶⁵, would bias the order
                return np.take(items, order, axis=axis)

    def choice(self, a: int | ArrayLike, size: Size = None) -> Any:  # type: ignore[override]
        """Uniform choice with replacement from ``arange(a)`` or from the rows of ``a``."""
        items = np.arange(a) if isinstance(a, (int, np.integer)) else np.asarray(a)
        return items[self.integers(len(items), size=size)]

    # -------------------------------------------------------------------------------- continuous distributions

    def random(self, size: Size = None, dtype: DTypeLike = np.float64, out: Any = None) -> Any:  # type: ignore[override]
        """Uniform multiples of 2⁻⁵³ in [0, 1)."""
        _check_float64(dtype)
        return self._draw("_uniform", size, out)

    def standard_normal(self, size: Size = None, dtype: DTypeLike = np.float64, out: Any = None) -> Any:  # type: ignore[override]
        """Standard normal floating-point numbers."""
        _check_float64(dtype)
        return self._draw("_normal", size, out)

    def standard_exponential(  # type: ignore[override]
        self, size: Size = None, dtype: DTypeLike = np.float64, method: str = "inv", out: Any = None
    ) -> Any:
        """Standard exponential floating-point numbers; always by inversion, whatever ``method`` says."""
        _check_float64(dtype)
        return self._draw("_exponential", size, out)

    def standard_gamma(  # type: ignore[override]
        self, shape: ArrayLike, size: Size = None, dtype: DTypeLike = np.float64, out: None = None
    ) -> Any:
        """Standard gamma floating-point numbers with positive, finite ``shape`` parameters."""
        _check_float64(dtype)
        parameters = np.asarray(shape, dtype=np.float64)
        if not np.all((parameters > 0) & np.isfinite(parameters)):
            raise ValueError(f"shape must be positive and finite, got shape={shape!r}")
        wanted = _broadcast_size(size, parameters)
        values = gammas(np.broadcast_to(parameters, wanted).ravel(), _words).reshape(wanted)
        return values if wanted or size is not None else float(values)

    def uniform(self, low: ArrayLike = 0.0, high: ArrayLike = 1.0, size: Size = None) -> Any:  # type: ignore[override]
        """``low`` + (``high`` − ``low``)·:meth:`random`."""
        first = np.asarray(low, dtype=np.float64)
        width = np.asarray(high, dtype=np.float64) - first
        return _plain(first + width * self.random(_broadcast_size(size, first, width)))

    def normal(self, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0, size: Size = None) -> Any:  # type: ignore[override]
        """``loc`` + ``scale``·:meth:`standard_normal`."""
        return self._located("normal", loc, scale, size)

    def laplace(self, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0, size: Size = None) -> Any:  # type: ignore[override]
        """Laplace floating-point numbers: the difference of two exponentials."""
        return self._located("laplace", loc, scale, size)

    def gumbel(self, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0, size: Size = None) -> Any:  # type: ignore[override]
        """Gumbel floating-point numbers: −ln of an exponential."""
        return self._located("gumbel", loc, scale, size)

    def exponential(self, scale: ArrayLike = 1.0, size: Size = None) -> Any:  # type: ignore[override]
        """``scale``·:meth:`standard_exponential`."""
        return self._located("exponential", 0.0, scale, size)

    def _located(self, name: str, loc: Any, scale: Any, size: Size) -> Any:
        wanted = size
        if name == "normal" and type(loc) is type(scale) is float and scale >= 0 and size is not None:
            values = self.standard_normal(size)  # short rows, drawn often
            values *= scale
            values += loc
            return values
        if not (isinstance(loc, (int, float)) and isinstance(scale, (int, float))):
            loc, scale = np.asarray(loc, dtype=np.float64), np.asarray(scale, dtype=np.float64)
            wanted = _broadcast_size(size, loc, scale)
        if not np.all(scale >= 0):
            raise ValueError(f"scale must be nonnegative, got scale={scale!r}")
        match name:
            case "normal":
                values = self.standard_normal(wanted)
            case "laplace":
                values = self.standard_exponential(wanted) - self.standard_exponential(wanted)
            case "gumbel":
                # an exponential can round to 0, whose logarithm is not finite
                values = -np.log(np.maximum(self.standard_exponential(wanted), 2.0**-65))
            case _:
                values = self.standard_exponential(wanted)
        return _plain(loc + scale * values)

    # ------------------------------------------------------------------------------------------ no state

    @property
    def bit_generator(self) -> NoReturn:
        """Refused: there is no bit generator whose state could be read or set."""
        raise NotImplementedError("a secure generator has no bit_generator: its state cannot be read, set or shared")

    def spawn(self, n_children: int) -> list[np.random.Generator]:
        """``n_children`` further secure generators."""
        return [SecureGenerator() for _ in range(n_children)]

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secure generator cannot be copied, pickled or saved: noise must never be replayed")

    def __getstate__(self) -> NoReturn:
        self.__reduce__()

    def __setstate__(self, state: object) -> NoReturn:
        self.__reduce__()

    def __repr__(self) -> str:
        return f"<SecureGenerator at {id(self):#x}>"

    __str__ = __repr__


def _refuse(name: str) -> Callable[..., NoReturn]:
    def method(self: SecureGenerator, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            f"{name} is not implemented on the secure source, and no other source takes its place; "
            "pass a seeded numpy.random.Generator for a simulation"
        )

    method.__name__ = name
    return method


for _name in dir(np.random.Generator):
    if not _name.startswith("_") and _name not in vars(SecureGenerator):
        setattr(SecureGenerator, _name, _refuse(_name))


def _fill_words(out: NDArray[np.uint64]) -> None:
    for start in range(0, out.size, BLOCK):
        block = out[start : start + BLOCK]
        block[:] = _words(block.size)


def _check_float64(dtype: DTypeLike) -> None:
    if np.dtype(dtype) != np.float64:
        raise TypeError(f"dtype must be float64 on the secure source, got dtype={dtype!r}")


def _broadcast_size(size: Size, *parameters: NDArray[np.float64]) -> tuple[int, ...]:
    shapes = [parameter.shape for parameter in parameters]
    if size is None:
        return np.broadcast_shapes(*shapes)
    wanted = np.broadcast_shapes(size)
    try:
        fits = np.broadcast_shapes(wanted, *shapes) == wanted
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"size must cover the parameters of shapes {shapes}, got size={size!r}")
    return wanted


def _plain(values: Any) -> Any:
    return float(values) if np.ndim(values) == 0 else values


_live: weakref.WeakSet[SecureGenerator] = weakref.WeakSet()


def _renew_all() -> None:
    for generator in list(_live):
        generator._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
