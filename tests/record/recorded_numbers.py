"""What a record keeps of many numbers, and how two records differ."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

# numbers are equal up to this part of themselves, or of the largest beside them where they are close to 0 by accident
TOLERANCE, ZERO = 1e-9, 1e-12
# where ε is asked of a price and of a ledger; convolutions are right to about 1e-16, in other last digits on each
# processor, which ε at a small δ follows
DELTAS_OF_PRICES, DELTAS_OF_LEDGERS, CONVOLVED = (1e-3, 1e-5, 1e-6, 1e-9, 1e-12), (1e-3, 1e-6, 1e-9), 1e-16


def flat(tree: Any) -> list[float]:
    """All numbers of nested dictionaries, lists and arrays; words are left out."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        return [number for part in tree for number in flat(part)]
    return [] if tree is None or isinstance(tree, str) else np.asarray(tree, dtype=np.float64).ravel().tolist()


def summary(values: Any) -> dict[str, Any]:
    """The first and last numbers of an array, two sums that every one of them enters, and a digest of its bits."""
    array = np.atleast_1d(np.asarray(values))
    flat = array.astype(np.float64).ravel()
    weights = 1.0 + np.random.default_rng(3).random(flat.size)
    return {
        "shape": str(array.shape),
        "ends": [float(number) for number in np.concatenate([flat[:6], flat[6:][-2:]])],
        "sums": [float(weights @ flat), float(weights @ np.abs(flat))],
        "digest": hashlib.sha256(flat.tobytes()).hexdigest()[:16],
    }


def differences(record: Any, now: Any, exact: bool, path: str = "") -> Iterator[str]:
    """Where ``now`` is not what the record says; with ``exact`` to the last bit."""
    if isinstance(record, dict) and isinstance(now, dict):
        for key in record.keys() & now.keys():
            if key != "digest" or exact:
                yield from differences(record[key], now[key], exact, f"{path}/{key}")
        if missing := record.keys() - now.keys():
            yield f"{path}: without {sorted(missing)}"
    elif isinstance(record, list) and isinstance(now, list) and len(record) == len(now):
        sizes = [abs(number) for number in record if isinstance(number, float) and math.isfinite(number)]
        for i, (one, other) in enumerate(zip(record, now, strict=True)):
            if isinstance(one, float) and isinstance(other, float) and not exact:
                if path.endswith("/epsilon"):
                    deltas = DELTAS_OF_PRICES if len(record) == len(DELTAS_OF_PRICES) else DELTAS_OF_LEDGERS
                    relative, zero = max(TOLERANCE, CONVOLVED / deltas[i % len(deltas)]), 0.0
                else:
                    relative, zero = TOLERANCE, ZERO * max(sizes, default=0.0)
                if math.isclose(one, other, rel_tol=relative, abs_tol=zero) or (one != one and other != other):
                    continue
                yield f"{path}[{i}]: {one!r} before, {other!r} now"
            else:
                yield from differences(one, other, exact, f"{path}[{i}]")
    elif record != now and not (record != record and now != now):
        yield f"{path}: {record!r} before, {now!r} now"
