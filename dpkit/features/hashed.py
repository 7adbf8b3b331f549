"""Nested JSON into the unit ball, by public signed hashing: features that need no list of columns.

For whoever has events and items as JSON, in a service that is perhaps written in another language. Weinberger,
Dasgupta, Langford, Smola & Attenberg (2009): every feature has a name, its hash says to which of ``dim`` entries its
value is added, and with which sign, so that features that meet by chance cancel on average. Nothing is learned: the
rule is public, and one row says nothing about another's.

The rule, in full (version 1; it does not change). ``docs/features-from-json.md`` has it as a table, and
``docs/tables/features-from-json.json`` has vectors that every transcription must meet.

1. *Names.* A row has one JSON value per namespace. A value at path P gives

   * an object: every member at path P/key, where in the key ~ is written ~0, / ~1, = ~2 and [ ~3;
   * an array: a number at place i (from 0) at path P[i], everything else at path P[];
   * a number x: the feature P, with x from its public range (low, high) to [−1, 1], (x − low + x − high)/(high − low),
     without a range as it is, and cut to [−1, 1];
   * a text s: the feature P="s (no second quote), with value 1; true, false and null: P=true, P=false, P=null.

   The path of a namespace is its name, written as a key. Names are not normalised (texts that look alike may differ:
   use NFC), and are hashed as UTF-8. Features of the same name are different terms, whose values add up.
2. *Hash.* h(name) is MurmurHash3 (x86, 32 bits) with ``seed``. The term is added to entry (h mod 2³¹) mod dim, with
   sign − if h ≥ 2³¹.
3. *Lengths.* The values of a namespace are divided by max(1, their Euclidean norm).
4. *Interactions* of namespaces a and b: for every feature f of a and g of b a term of value v_f·v_g, whose hash is
   Murmur's finaliser of (h_f·0x9E3779B1 mod 2³²) xor h_g.
5. The sum is divided by √B, B the number of namespaces and interactions, and by its norm, where that is then above 1.

Refused: NaN and infinite numbers, integers beyond floats, texts that have no UTF-8 (lone surrogates), keys that are not
texts, more than 32 levels, namespaces that were not declared. A namespace that is missing, {} or [] gives no feature.

Guarantee: rows of norm at most 1, in floating point. Cost: O(features + products of interactions + dim) per row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from accounting.checks import integer
from dpkit.features.collisions import Collisions
from dpkit.features.murmur import finished, murmur3
from dpkit.features.scaled import INSIDE

__all__ = ["Hashed"]

_LEVELS = 32
# names whose hashes are kept, and how long they are at most
_KEPT, _LONGEST = 2**20, 256
_ESCAPES = str.maketrans({"~": "~0", "/": "~1", "=": "~2", "[": "~3"})
_PAIRED = np.uint32(0x9E3779B1)

_Terms = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32], Array]


class Hashed:
    """A public transform of JSON into rows of R^dim of norm at most 1.

    Parameters
    ----------
    dim : int
        Length of a row.
    namespaces : sequence of str
        The parts that a row may have.
    interactions : sequence of (str, str)
        Pairs of different namespaces, all pairs of whose features are features too.
    ranges : mapping from str to (float, float)
        Public ranges of numbers, by path, such as ``{"context/age": (0, 100)}``.
    seed : int
        Of the hash, in [0, 2³²): public, and the same wherever rows are compared.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range; from ``transform`` and ``arms`` for what the rule refuses.

    Examples
    --------
    >>> hashed = Hashed(64, ranges={"context/age": (0, 100), "action/price": (0, 50)})
    >>> visitor = {"age": 31, "device": "phone", "tags": ["jazz", "live"]}
    >>> offers = [{"artist": "Ella", "price": 24.5}, {"artist": "Nina", "price": None}]
    >>> arms = hashed.arms(visitor, offers)
    >>> arms.shape, bool((np.linalg.norm(arms, axis=1) <= 1).all())
    ((2, 64), True)
    >>> np.array_equal(arms[1], hashed.transform([{"context": visitor, "action": offers[1]}])[0])
    True
    """

    def __init__(
        self,
        dim: int,
        *,
        namespaces: Sequence[str] = ("context", "action"),
        interactions: Sequence[tuple[str, str]] = (("context", "action"),),
        ranges: Mapping[str, tuple[float, float]] | None = None,
        seed: int = 0,
    ) -> None:
        self.dim = integer("dim", dim, at_least=1)
        if self.dim >= 2**31:
            raise ValueError(f"dim must be below 2**31, got dim={dim!r}")
        if isinstance(namespaces, str) or not all(isinstance(name, str) for name in namespaces):
            raise TypeError(f"namespaces must be a sequence of names, got namespaces={namespaces!r}")
        self.namespaces = tuple(namespaces)
        if not self.namespaces or len(set(self.namespaces)) < len(self.namespaces):
            raise ValueError(f"namespaces must be at least one name, all different, got namespaces={namespaces!r}")
        self.interactions = tuple((str(a), str(b)) for a, b in interactions)
        for pair in self.interactions:
            if pair[0] == pair[1] or not set(pair) <= set(self.namespaces):
                raise ValueError(f"interactions must be pairs of different namespaces {self.namespaces}, got {pair!r}")
        self.ranges: dict[str, tuple[float, float]] = {}
        for path, (low, high) in (ranges or {}).items():
            if not (low < high and math.isfinite(low) and math.isfinite(high) and math.isfinite(high - low)):
                raise ValueError(f"ranges must be finite and increasing, got {path!r}: {(low, high)!r}")
            self.ranges[str(path)] = (float(low), float(high))
        self.seed = integer("seed", seed, at_least=0)
        if self.seed >= 2**32:
            raise ValueError(f"seed must be below 2**32, got seed={seed!r}")
        self._known: dict[str, int] = {}

    def transform(self, rows: Iterable[Mapping[str, Any]]) -> Array:
        """Rows of norm at most 1, of shape (n, dim).

        Parameters
        ----------
        rows : iterable of mappings
            From namespaces to JSON values, as ``json.loads`` returns them.
        """
        listed = list(rows)
        for row in listed:
            if not isinstance(row, Mapping) or not set(row) <= set(self.namespaces):
                told = sorted(map(str, row)) if isinstance(row, Mapping) else type(row).__name__
                raise ValueError(f"rows must be mappings from the namespaces {self.namespaces} to JSON, got {told}")
        parts = [self._terms(name, [(row[name],) if name in row else () for row in listed]) for name in self.namespaces]
        return self._summed(parts, len(listed))

    def arms(self, context: Any, actions: Sequence[Any]) -> Array:
        """Rows of the actions of one context, of shape (K, dim): what a policy chooses from.

        Parameters
        ----------
        context : JSON value
            Of the first namespace.
        actions : sequence of K JSON values
            Of the second.

        Raises
        ------
        ValueError
            Where there are not two namespaces.
        """
        if len(self.namespaces) != 2:
            raise ValueError(f"namespaces must be two, a context's and an action's, got {self.namespaces!r}: transform")
        K = len(actions)
        starts, counts, hashes, values = self._terms(self.namespaces[0], [(context,)])
        shared = (np.broadcast_to(starts, K), np.broadcast_to(counts, K), hashes, values)
        return self._summed([shared, self._terms(self.namespaces[1], [(one,) for one in actions])], K)

    def collisions(self, rows: Iterable[Mapping[str, Any]]) -> Collisions:
        """Which features share an entry, and which numbers are cut, on *public* rows. See :class:`Collisions`."""
        pairs: list[tuple[str, int]] = []
        numbers: dict[str, list[float]] = {}
        for row in rows:
            self.transform([row])  # refuses what it refuses
            own: dict[str, list[str]] = {name: [] for name in self.namespaces}
            for name, value in row.items():
                walked: list[float] = []
                self._walk(value, _escaped(name), own[name], walked, 0)
                for feature, v in zip(own[name], walked, strict=True):
                    if "=" not in feature:
                        numbers.setdefault(feature, []).append(v)
            hashed = {name: self._hashes(found) for name, found in own.items()}
            for name in own:
                pairs += zip(own[name], hashed[name].tolist(), strict=True)
            for a, b in self.interactions:
                both = _paired(hashed[a][:, None], hashed[b][None]).ravel().tolist()
                pairs += zip((f"{f} × {g}" for f in own[a] for g in own[b]), both, strict=True)
        # a number at an end of its range was, or may have been, cut to it
        cut = {name: float((np.abs(found) >= 1).mean()) for name, found in numbers.items()}
        return Collisions.of(((name, h % 2**31 % self.dim) for name, h in pairs), self.dim, cut)

    def __repr__(self) -> str:
        return (
            f"Hashed({self.dim}, namespaces={self.namespaces!r}, interactions={self.interactions!r}, "
            f"ranges={self.ranges!r}, seed={self.seed})"
        )

    # --------------------------------------------------------------------------------------------- the rule

    def _terms(self, namespace: str, values: Sequence[tuple[Any, ...]]) -> _Terms:
        """Features of a namespace: where each row's begin, how many they are, their hashes and scaled values."""
        names: list[str] = []
        numbers: list[float] = []
        ends = []
        path, walk = _escaped(namespace), self._walk
        for value in values:
            if value:
                walk(value[0], path, names, numbers, 0)
            ends.append(len(names))
        stops = np.array(ends, dtype=np.int64)
        counts = np.diff(stops, prepend=0)
        v = np.array(numbers, dtype=np.float64)
        row = np.repeat(np.arange(len(stops)), counts)
        norms = np.sqrt(np.bincount(row, v * v, len(stops)))
        return stops - counts, counts, self._hashes(names), v / np.maximum(1.0, norms)[row]

    def _walk(self, value: Any, path: str, names: list[str], numbers: list[float], level: int) -> None:
        kind = type(value)
        if kind is str:
            names.append(f'{path}="{value}')
            numbers.append(1.0)
        elif kind is float or kind is int:
            names.append(path)
            numbers.append(self._number(value, path))
        elif kind is dict:
            if level >= _LEVELS:
                raise ValueError(f"rows must have at most {_LEVELS} levels, got more below {path[:80]!r}")
            for key, one in value.items():
                if type(key) is not str:
                    raise ValueError(f"keys must be texts, got {key!r} below {path!r}")
                self._walk(one, f"{path}/{_escaped(key)}", names, numbers, level + 1)
        elif kind is list:
            if level >= _LEVELS:
                raise ValueError(f"rows must have at most {_LEVELS} levels, got more below {path[:80]!r}")
            for place, one in enumerate(value):
                own = f"{path}[{place}]" if type(one) is float or type(one) is int else f"{path}[]"
                self._walk(one, own, names, numbers, level + 1)
        elif value is None or kind is bool:
            names.append(path + ("=null" if value is None else "=true" if value else "=false"))
            numbers.append(1.0)
        else:
            raise ValueError(f"rows must hold what json.loads returns, got a {kind.__name__} at {path!r}")

    def _number(self, x: float, path: str) -> float:
        try:
            x = float(x)
        except OverflowError:
            x = math.inf
        if not math.isfinite(x):
            raise ValueError(f"numbers must be finite, got one that is not at {path!r}")
        if path in self.ranges:
            low, high = self.ranges[path]
            x = min(max(x, low), high)
            x = ((x - low) + (x - high)) / (high - low)
        return min(max(x, -1.0), 1.0)

    def _hashes(self, names: list[str]) -> NDArray[np.uint32]:
        known = self._known
        try:
            return np.fromiter(map(known.__getitem__, names), dtype=np.uint32, count=len(names))
        except KeyError:
            pass
        new = list(dict.fromkeys(name for name in names if name not in known))
        try:
            texts = [name.encode() for name in new]
        except UnicodeEncodeError as error:
            raise ValueError(f"texts must have a UTF-8 form, got {error.object[:80]!r} with a lone surrogate") from None
        found = dict(zip(new, murmur3(texts, self.seed).tolist(), strict=True))
        hashes = [known[name] if name in known else found[name] for name in names]
        if len(known) > _KEPT:
            self._known = known = {}
        known.update((name, h) for name, h in found.items() if len(name) <= _LONGEST)
        return np.array(hashes, dtype=np.uint32)

    def _summed(self, parts: Sequence[_Terms], n: int) -> Array:
        """Rows from the features of every namespace, and from their interactions."""
        entries, terms = [], []
        one = (np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64))
        blocks: list[tuple[_Terms, _Terms | None]] = [(part, None) for part in parts]
        where = dict(zip(self.namespaces, parts, strict=True))
        blocks += [(where[a], where[b]) for a, b in self.interactions]
        for (start, count, h, v), second in blocks:
            other_start, other_count = one if second is None else second[:2]
            row, f, g = _products(start, count, other_start, other_count)
            hashes = h[f] if second is None else _paired(h[f], second[2][g])
            value = v[f] if second is None else v[f] * second[3][g]
            entries.append(row * self.dim + (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % self.dim)
            terms.append(np.where(hashes >= np.uint32(0x80000000), -value, value))
        size = n * self.dim
        sums = np.bincount(np.concatenate(entries), np.concatenate(terms), size)
        x: Array = np.asarray(sums, dtype=np.float64).reshape(n, self.dim)
        x *= INSIDE / math.sqrt(len(blocks))
        x *= (INSIDE / np.maximum(1.0, np.sqrt(np.einsum("ij,ij->i", x, x))))[:, None]
        return x


def _paired(h: NDArray[np.uint32], g: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return finished((h * _PAIRED) ^ g)


def _products(
    start: NDArray[np.int64], count: NDArray[np.int64], other: NDArray[np.int64], others: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For every row all pairs of its features: the row, the place of the first, the place of the second."""
    pairs = count * others
    row = np.repeat(np.arange(len(pairs)), pairs)
    within = np.arange(len(row)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    first, second = np.divmod(within, others[row]) if len(row) else (within, within)
    return row, start[row] + first, other[row] + second


def _escaped(key: str) -> str:
    return key.translate(_ESCAPES) if not key.isalnum() else key
