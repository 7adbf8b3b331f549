"""What a shuffler lets out: the exact law where one user sends a known vector, all others zeros; and its rounds."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
from scipy.special import gammaln

from dpkit.shuffle import SumProtocol


def log_likelihood(protocol: SumProtocol, estimates: np.ndarray, record: np.ndarray) -> np.ndarray:
    """ln of the probability of decoded sums, shape (trials, D), if the one user sends ``record``, shape (D,) or alike.

    In each coordinate the count is ⌊w⌋ + Bernoulli(w − ⌊w⌋) of that user, ⌊g/2⌋ (and, if g is odd, a fair coin) of each
    of the others, and Bin(n·b, ½).
    """
    n, g, b = protocol.users, protocol.resolution, protocol.noise_bits
    counts = np.rint(estimates / protocol.step + n * (g + b) / 2)
    w = (record + protocol.bound) * g / (2 * protocol.bound)
    floor = np.floor(w)
    coins = n * b + (n - 1) * (g % 2)
    k = counts - (n - 1) * (g // 2) - floor
    with np.errstate(divide="ignore"):
        below, above = np.log1p(floor - w), np.log(w - floor)
    return np.logaddexp(below + _log_pmf(k, coins), above + _log_pmf(k - 1, coins)).sum(axis=-1)


def _log_pmf(k: np.ndarray, trials: int) -> np.ndarray:
    inside = np.clip(k, 0, trials)
    value = gammaln(trials + 1) - gammaln(inside + 1) - gammaln(trials - inside + 1) - trials * math.log(2)
    return np.where(inside == k, value, -np.inf)


def response_of(kind: Any) -> Any:
    """The randomized response that a scalar mean is made of, or itself."""
    return getattr(kind, "_response", kind)


def randomized(response: Any, values: np.ndarray) -> np.ndarray:
    """What users with these categories send."""
    return response._randomized(values)


def rounds_of(shuffler: Any) -> Any:
    return shuffler._rounds


def begin_anew(shuffler: Any, ledger: Any = None) -> None:
    """As a new one, with all of its rounds; calibration would take most of the time."""
    rounds = rounds_of(shuffler)
    shuffler._rounds = type(rounds)(rounds.rounds, rounds.cost, rounds.users, "begun anew", ledger, False)


def resealed(data: bytes) -> bytes:
    """The same message with the checksum that it should have."""
    return data[:-4] + zlib.crc32(data[:-4]).to_bytes(4, "big")
