"""The rule of dpkit.features.Hashed, transcribed from its docstring alone: one row, one name at a time."""

from __future__ import annotations

import math

M = 2**32


def murmur3(data: bytes, seed: int = 0) -> int:
    def mixed(k: int) -> int:
        k = k * 0xCC9E2D51 % M
        k = (k << 15 | k >> 17) % M
        return k * 0x1B873593 % M

    h, whole = seed, len(data) // 4 * 4
    for i in range(0, whole, 4):
        h ^= mixed(int.from_bytes(data[i : i + 4], "little"))
        h = (h << 13 | h >> 19) % M
        h = (h * 5 + 0xE6546B64) % M
    if data[whole:]:
        h ^= mixed(int.from_bytes(data[whole:], "little"))
    return final(h ^ len(data))


def final(h: int) -> int:
    h = (h ^ h >> 16) * 0x85EBCA6B % M
    h = (h ^ h >> 13) * 0xC2B2AE35 % M
    return h ^ h >> 16


def names(value, path, ranges):
    """(name, value) of every feature."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from names(one, path + "/" + escaped(key), ranges)
    elif isinstance(value, list):
        for i, one in enumerate(value):
            number = isinstance(one, (int, float)) and not isinstance(one, bool)
            yield from names(one, f"{path}[{i if number else ''}]", ranges)
    elif value is None or isinstance(value, bool):
        yield path + "=" + {None: "null", True: "true", False: "false"}[value], 1.0
    elif isinstance(value, str):
        yield f'{path}="{value}', 1.0
    else:
        x = float(value)
        if path in ranges:
            low, high = ranges[path]
            x = (min(max(x, low), high) * 2 - low - high) / (high - low)
        yield path, min(max(x, -1.0), 1.0)


def escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1").replace("=", "~2").replace("[", "~3")


def row_of(row, dim, namespaces, interactions, ranges, seed):
    """One row, as a list of ``dim`` numbers."""
    terms, parts = [], {}
    for space in namespaces:
        found = list(names(row[space], escaped(space), ranges)) if space in row else []
        length = max(1.0, math.sqrt(sum(v * v for _, v in found)))
        parts[space] = [(murmur3(name.encode(), seed), v / length) for name, v in found]
        terms += parts[space]
    for a, b in interactions:
        terms += [(final(f * 0x9E3779B1 % M ^ g), v * w) for f, v in parts[a] for g, w in parts[b]]
    x = [0.0] * dim
    for h, v in terms:
        x[h % 2**31 % dim] += (-v if h >= 2**31 else v) / math.sqrt(len(namespaces) + len(interactions))
    length = max(1.0, math.sqrt(sum(v * v for v in x)))
    return [v / length for v in x]
