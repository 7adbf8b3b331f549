"""State files from elsewhere: whatever is in one, it loads or is refused by a ValueError, in little memory and time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from private_policies import SMALL, offered, play, small

from dpbandits import Policy, policies
from dpbandits.mathematics.estimators import Rows

# what a leaf is replaced by: of other types, signs and sizes, and what asks for much memory or time
LEAVES: list[Any] = [
    *(None, True, False, "", "x", "linear", "every_round", "theory", "tree", "Doubling", "a" * 10**6, "\x00\ud800"),
    *(0, 1, -1, 2, 3, 60, 61, 1000, 10**6, 10**9, 10**12, 10**15, 2**31, 2**61, 2**62, 2**63, 10**30, 10**400),
    *(0.0, -0.0, 0.5, 1.0 + 1e-15, 1.00001, -1.5, 5e-324, 1e-300, 1e15, 1e308, math.nan, math.inf, -math.inf),
    *([], {}, [0], [[]], [1.0, -1.0], [10**12] * 3, [-math.inf, math.inf], {"x": 1}, [[[[[[[[1]]]]]]]]),
]
NUMBERS = [0.0, -0.0, 1.0, -1.0, 1.1, 1e-300, 1e308, -1e308, math.nan, math.inf, -math.inf, 2.0**62, -(2.0**62)]
INTEGERS = [0, 1, -1, 2, 10, 10**6, 10**12, 2**61, 2**63 - 1, -(2**63)]


def leaves(tree: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every node of a tree but its root."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in entries:
        yield (*way, key)
        yield from leaves(value, (*way, key))


def changed_array(array: np.ndarray, rng: np.random.Generator) -> Any:
    array = array.copy()
    match rng.integers(8):
        case 0 | 1 | 2 if array.size:
            values = NUMBERS if array.dtype == np.float64 else INTEGERS if array.dtype == np.int64 else [True, False]
            array.flat[rng.integers(array.size)] = values[rng.integers(len(values))]
            return array
        case 3:
            return array.astype([np.float64, np.int64, np.bool_][rng.integers(3)])
        case 4:
            return array.reshape(-1) if rng.random() < 0.5 else array[None]
        case 5 if array.ndim and len(array):
            return array[1:] if rng.random() < 0.5 else np.concatenate([array, array])
        case 6:
            return np.zeros([(), (0,), (0, 2**39), (10,), (3, 3), (1000,)][rng.integers(6)])
        case _:
            return array.tolist()


def changed(tree: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A tree of which one to three nodes differ."""
    tree = copied(tree)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        ways = list(leaves(tree))
        if rng.random() < 0.4:  # the parameters, of which a constructor makes something
            ways = [way for way in ways if way[0] == "config" and len(way) > 1] or ways
        *way, key = ways[rng.integers(len(ways))]
        parent = tree
        for step in way:
            parent = parent[step]
        match rng.integers(12):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[f"{key}_"] = parent[key]
            case 1:
                parent.append(parent[key])
            case 2:  # what stands elsewhere
                node: Any = tree
                for step in ways[rng.integers(len(ways))]:
                    node = node[step]
                parent[key] = copied(node)
            case _ if isinstance(parent[key], np.ndarray):
                with np.errstate(all="ignore"):
                    parent[key] = changed_array(parent[key], rng)
            case _:
                parent[key] = copied(LEAVES[rng.integers(len(LEAVES))])
    return tree


def copied(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: copied(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [copied(value) for value in tree]
    return tree.copy() if isinstance(tree, np.ndarray) else tree


def honest_policy(name: str, **more: Any) -> Policy:
    """A policy that has released, with decisions that are open, of which one's batch is closed."""
    kind = getattr(policies, name)
    if kind.trust == "none" and name not in SMALL:
        own = {"n_arms": 2} if kind.takes == "context" else {}
        policy = kind(2, **{"horizon": 40, "reward_range": (0.0, 1.0), **own, **more})
    else:
        policy = small(name, **more)
    policy.select(offered(policy))
    play(policy, 6)
    policy.select(offered(policy))
    return policy


class TooSlow(BaseException):
    """A load took longer than a second and some."""


def faults(policy: Policy) -> list[str]:
    """What a loaded policy must not hold: NaN or infinity in what it learned, and arms or rows that are too long."""
    found = []

    def look(node: Any, way: str) -> None:
        if isinstance(node, dict):
            for key, value in node.items():
                look(value, f"{way}.{key}")
        elif isinstance(node, list):
            for value in node:
                look(value, way)
        elif isinstance(node, (float, np.ndarray)) and not np.isfinite(node).all():
            found.append(f"{way} is not finite")

    look(policy._kept(), "learned")
    for pending in policy._open.values():
        if len(pending.arm) and not float(policy._length(pending.arm)) <= 1.0:
            found.append("an arm is too long")
    for value in vars(policy).values():
        for rows in value if isinstance(value, list) else [value]:
            if isinstance(rows, Rows) and rows._bound == 1.0 and rows.count:
                lengths = np.linalg.norm(rows.array[:, :-1], rows._order, axis=1)
                found += ["a row is too long"] * (not (lengths <= 1.0).all())
    low, high = policy.reward_range
    found += ["reward_range is no range"] * (not low < high)
    return found
