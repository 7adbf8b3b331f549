"""What privacy costs on the workloads of the gallery: private policies beside the best references and chance.

    OPENBLAS_NUM_THREADS=1 python benchmarks/workloads.py --quick             # a look, in minutes
    OPENBLAS_NUM_THREADS=1 python benchmarks/workloads.py --jobs 2 --docs     # refreshes the page, in hours
    python benchmarks/workloads.py --worlds flip still --seeds 3
    python benchmarks/workloads.py --docs --only-page                         # the page again, from what was played

Every world of ``dpbandits.lab.environments.GALLERY``, ten seeds, δ = 1/T, ε = 1 and 4. Private: ``OnePassPrivateGLM``
with its defaults, and, where another policy is made for the workload, that one (``SUITED``). Where arms are fixed and
have no features a reference is ``ThompsonArms``, which explores, told how large rewards are. Best reference: the one of
``REFERENCES`` with the least regret (or the largest reward) there: chosen on the same seeds, in its favour. Runs are
kept in ``--folder`` as they end; the same command goes on where it was stopped, and plays only what is not there.

``--quick`` plays a tenth of the rounds on two seeds; its folder is another one. Cells are mean ± standard error over
seeds. Seeds are those of a simulation: nothing here is a private release.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from accounting import Budget
from dpbandits import policies, simulate
from dpbandits.lab.environments import GALLERY, Drifting, Environment, Supervised
from dpbandits.lab.environments.base import without_features
from dpbandits.lab.simulation.results import Results
from dpbandits.policy.protocol import Policy

Factory = Callable[[np.random.Generator], Policy]
Arguments = Callable[[Any, int], dict[str, Any]]

ROOT = Path(__file__).resolve().parent.parent
EPSILONS = (1.0, 4.0)
# a shared parameter with a block for every arm is hopeless beyond this, and takes hours
_LARGEST_SHARED = 50


def model(world: Any, rounds: int) -> dict[str, Any]:
    """What the policy of a generalized linear world is told."""
    return {"link": world.link, "theta_bound": world.theta_bound}


def base(rate: float, **known: Any) -> Arguments:
    return lambda world, rounds: model(world, rounds) | {"base_rate": rate} | known


def changing(world: Any, rounds: int) -> dict[str, Any]:
    return {"on_change": True, "parameters": model(world, rounds)}


def lagging(rounds_late: int) -> Arguments:
    return lambda world, rounds: model(world, rounds) | {"delay": min(rounds_late, rounds // 4)}


def per_arm(world: Any, rounds: int) -> dict[str, Any]:
    """A parameter for every arm of a world that shows one context for all of them."""
    # of K labels one is right
    known = {"base_rate": 1.0 / world.n_arms} if isinstance(world, Supervised) else {}
    return known | {"dim": world.context_dim, "arms": world.n_arms}


def names(world: Any, rounds: int) -> dict[str, Any]:
    """How many fixed arms there are, of which nothing else is known."""
    return {"arms": world.n_arms}


def sized(world: Any, rounds: int) -> dict[str, Any]:
    """And how large rewards are."""
    return names(world, rounds) | {
        "reward_range": getattr(world, "support", world.reward_range),
        "on_violation": "clip",
    }


def private_per_arm(world: Any, rounds: int) -> dict[str, Any]:
    return per_arm(world, rounds) | {"link": world.link}


def persons(world: Any, rounds: int) -> dict[str, Any]:
    return model(world, rounds) | {"unit": "person"}


# arms without features
NAMED = "abn", "abn-close", "rare", "unknown-scale", "pareto", "long-logits", "arms-10", "arms-40", "arms-100"
# what is made for a workload besides the policy to start with: the class in dpbandits.policies, and its arguments
SUITED: dict[str, tuple[str, Arguments]] = {
    "logit-shift": ("OnePassPrivateGLM", base(0.076)),
    "advertising": ("OnePassPrivateGLM", base(0.04)),
    # so long is θ if the base rate is off by a factor of 5 at most
    "advertising-centred": ("OnePassPrivateGLM", base(0.04, theta_bound=6.0)),
    "one-hot": ("StandingPrivateGLM", model),
    "sphere": ("StandingPrivateGLM", model),
    "digits": ("DisjointPrivateGLM", private_per_arm),
    "diamonds": ("DisjointPrivateGLM", private_per_arm),
    "disjoint": ("DisjointPrivateGLM", private_per_arm),
    "disjoint-50": ("DisjointPrivateGLM", private_per_arm),
    "flip": ("Restarting", changing),
    "still": ("Restarting", changing),
    "late": ("ShuffleOnePassGLM", lagging(200)),
    "overtaking": ("ShuffleOnePassGLM", lagging(400)),
    "people": ("PersonPrivateGLM", persons),
    "regulars": ("PersonPrivateGLM", persons),
    "films": ("PersonPrivateGLM", persons),
    **dict.fromkeys(NAMED, ("PrivateArms", names)),
}
# without privacy; those that take contexts play where there are some
REFERENCES: dict[str, Arguments] = {
    "GLBOMD": model,
    "LinearThompson": lambda world, rounds: {},
    "DisjointThompson": per_arm,
    "DisjointLinUCB": per_arm,
}


# a posterior of the likelihood itself, at a hundred times the cost of the others: where arms stand, those are stuck
SLOW: dict[str, tuple[str, Arguments]] = {
    "one-hot": ("LaplaceThompson", model),
    "sphere": ("LaplaceThompson", model),
}


class Make:
    """A policy from a generator; picklable, for worker processes."""

    def __init__(self, kind: str, arguments: dict[str, Any]) -> None:
        self.kind, self.arguments = kind, arguments

    @property
    def public_arms(self) -> bool:
        """Whether it is told the arms, which stand."""
        return bool(getattr(getattr(policies, self.kind), "public_arms", False))

    def __call__(self, rng: np.random.Generator, arms: Any = None) -> Policy:
        kind = getattr(policies, self.kind)
        told = self.arguments if arms is None else self.arguments | {"arms": arms}
        policy: Policy = kind(**{name: value for name, value in told.items() if name not in kind.passed_on}, rng=rng)
        return policy


def factories(name: str, world: Any, rounds: int) -> dict[str, Factory]:
    """Everything that plays a world, by title."""
    contexts = hasattr(world, "context_dim")
    shared = world.dim <= _LARGEST_SHARED
    limits = {"reward_range": world.reward_range, "on_violation": "clip"}
    made: dict[str, Factory] = {"uniform": Make("Uniform", {"dim": world.dim})}
    if without_features(world):
        made["ThompsonArms"] = Make("ThompsonArms", sized(world, rounds))
    # they learn by features
    for kind, arguments in () if name in NAMED else REFERENCES.items():
        disjoint = arguments is per_arm
        if hasattr(policies, kind) and (contexts if disjoint else shared):
            made[kind] = Make(kind, {"dim": world.dim} | arguments(world, rounds))
    if name in SLOW:
        kind, arguments = SLOW[name]
        made[kind] = Make(kind, {"dim": world.dim} | arguments(world, rounds))
    for epsilon in EPSILONS:
        budget = Budget(epsilon, 1 / rounds, unit="round")
        private = {"dim": world.dim, "horizon": rounds} | limits
        if shared:
            given = private | {"budget": budget} | model(world, rounds)
            made[f"OnePassPrivateGLM, ε = {epsilon:g}"] = Make("OnePassPrivateGLM", given)
        kind, arguments = SUITED.get(name, ("", model))
        if hasattr(policies, kind):
            told = arguments(world, rounds)
            # what a private policy is told, the best reference may know, too
            if kind == "OnePassPrivateGLM" and "base_rate" in told:
                made["GLBOMD, told the base rate"] = Make("GLBOMD", {"dim": world.dim} | told)
            given = private | {"budget": budget} | told
            if unit := given.pop("unit", None):
                given["budget"] = Budget(epsilon, 1 / rounds, unit=unit)
            made[f"suited: {kind}, ε = {epsilon:g}"] = Make(kind, given)
    return made


# ------------------------------------------------------------------------------------------------ results


def cell(row: dict[str, Any] | None, metric: str) -> str:
    """Mean ± standard error."""
    if row is None:
        return "–"
    digits = 3 if metric == "reward" else 0
    mean, error = row[metric], row[f"{metric}_se"]
    return f"{mean:,.{digits}f}" + ("" if math.isnan(error) else f" ± {error:,.{digits}f}")


def summary(name: str, results: Results) -> dict[str, Any]:
    """One line of the table, as plain values."""
    metric = results.metric
    rows = {row["policy"]: row for row in results.table()}
    sign = -1.0 if metric == "regret" else 1.0
    references = [row for title, row in rows.items() if "ε = " not in title and title != "uniform"]
    best = max(references, key=lambda row: sign * row[metric])
    private: dict[str, dict[str, dict[str, Any]]] = {}
    for title, row in rows.items():
        kind, mark, epsilon = title.partition(", ε = ")
        if mark:
            private.setdefault(kind.removeprefix("suited: ") if kind.startswith("suited") else "default", {})
            private[kind.removeprefix("suited: ") if kind.startswith("suited") else "default"][epsilon] = row
    chance = rows["uniform"]

    def price(row: dict[str, Any]) -> float:
        """Regret over the best reference's; where only rewards are known, the share of its gain that is lost."""
        if metric == "regret":
            return float(row["regret"] / max(best["regret"], 1e-9))
        return float((best["reward"] - row["reward"]) / max(best["reward"] - chance["reward"], 1e-9))

    keep = (metric, f"{metric}_se")
    return {
        "world": name,
        "metric": metric,
        "rounds": chance["rounds"],
        "seeds": chance["seeds"],
        "uniform": {key: chance[key] for key in keep},
        "best": {key: best[key] for key in keep} | {"policy": best["policy"]},
        "private": {
            kind: {epsilon: {key: row[key] for key in keep} | {"price": price(row)} for epsilon, row in by.items()}
            for kind, by in private.items()
        },
    }


def prices(line: dict[str, Any], kind: str) -> str:
    """The price of privacy at every ε."""
    found = [line["private"].get(kind, {}).get(f"{epsilon:g}") for epsilon in EPSILONS]
    if line["metric"] == "regret":
        return " / ".join("–" if one is None else f"{one['price']:.1f} ×" for one in found)
    return " / ".join("–" if one is None else f"−{100 * one['price']:.0f} %" for one in found)


def table(lines: list[dict[str, Any]]) -> str:
    """Markdown."""
    head = ["world", "rounds × seeds", "a random choice", "best reference"]
    head += ["`OnePassPrivateGLM`, ε = 1", "ε = 4", "price"]
    head += ["made for it", "ε = 1", "ε = 4", "price"]
    rows = [head, ["---"] * len(head)]
    for line in lines:
        metric, private = line["metric"], line["private"]
        suited = next((kind for kind in private if kind != "default"), None)
        best = f"{cell(line['best'], metric)} ({line['best']['policy']})"
        row = [f"`{line['world']}`", f"{line['rounds']:,} × {line['seeds']}", cell(line["uniform"], metric), best]
        for kind in ("default", suited):
            if kind == suited:
                row.append("" if suited is None else f"`{suited}`")
            by = private.get(kind, {}) if kind else {}
            row += [cell(by.get(f"{epsilon:g}"), metric) if by else "" for epsilon in EPSILONS]
            row.append(prices(line, kind) if by and kind else "")
        rows.append(row)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def picture(lines: list[dict[str, Any]], path: Path) -> None:
    """The price of privacy for every world where regret is known, least over the private policies."""
    import matplotlib.pyplot as plt

    known = [line for line in lines if line["metric"] == "regret" and line["private"]]
    figure, axes = plt.subplots(figsize=(6.5, 0.32 * len(known) + 1.2), layout="constrained")
    for epsilon, colour in zip(EPSILONS, ("#b2182b", "#2166ac"), strict=True):
        least = [
            min(
                (by[f"{epsilon:g}"]["price"] for by in line["private"].values() if f"{epsilon:g}" in by),
                default=math.nan,
            )
            for line in known
        ]
        axes.scatter(least, range(len(known)), color=colour, label=f"ε = {epsilon:g}", zorder=3)
    chance = [line["uniform"]["regret"] / max(line["best"]["regret"], 1e-9) for line in known]
    axes.scatter(chance, range(len(known)), marker="|", color="#777777", label="a random choice", zorder=2)
    axes.set_xscale("log")
    axes.axvline(1.0, color="#777777", linewidth=0.8)
    axes.set_yticks(range(len(known)), [line["world"] for line in known])
    axes.invert_yaxis()
    axes.grid(axis="x", which="both", linewidth=0.3)
    axes.set_xlabel("regret over that of the best reference without privacy")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def overall(lines: list[dict[str, Any]]) -> str:
    """The median and the worst price, of the better private policy of every world."""
    found = []
    for epsilon in EPSILONS:
        known: dict[str, list[tuple[float, str]]] = {"regret": [], "reward": []}
        for line in lines:
            least = [by[f"{epsilon:g}"]["price"] for by in line["private"].values() if f"{epsilon:g}" in by]
            known[line["metric"]].append((min(least), line["world"]))
        times, shares = sorted(known["regret"]), sorted(known["reward"])
        if times:
            median = float(np.median([price for price, _ in times]))
            worst = ", ".join(f"{price:.1f} × (`{world}`)" for price, world in reversed(times[-3:]))
            found.append(f"ε = {epsilon:g}: median {median:.1f} ×, worst {worst}")
        if shares:
            found.append(f"of a gain at most {100 * shares[-1][0]:.0f} % lost (`{shares[-1][1]}`)")
    return f"(Mean ± standard error over seeds, δ = 1/T. Prices of the better private policy: {'; '.join(found)}.)"


def refresh(page: Path, lines: list[dict[str, Any]]) -> None:
    """Write the table between the page's marks."""
    text = page.read_text(encoding="utf-8")
    begin, end = "<!-- table: benchmarks/workloads.py -->", "<!-- end of table -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    body = f"{begin}\n{table(lines)}\n\n{overall(lines)}\n{end}"
    page.write_text(before + body + after, encoding="utf-8")


# --------------------------------------------------------------------------------------------------- main


def played(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Play a world, or go on with it, and keep its summary."""
    entry = GALLERY[name]
    rounds = max(400, entry.rounds // 10) if options.quick else entry.rounds
    world: Environment = entry.make()
    if isinstance(world, Drifting):  # so that the change is within the rounds that are played
        world = Drifting(world.dim, change=world.change, rounds=rounds)
    results = simulate(
        factories(name, world, rounds),
        world,
        rounds=rounds,
        seeds=options.seeds,
        jobs=options.jobs,
        resume=options.folder / f"{name}.jsonl",
    )
    print(f"\n{name}: {entry.what}\n{results}", flush=True)
    if name == "flip" and results.complete:
        results.plot_time(options.folder / "flip.png")
    line = summary(name, results)
    (options.folder / f"{name}.json").write_text(json.dumps(line, indent=1), encoding="utf-8")
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", choices=list(GALLERY), default=list(GALLERY))
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--folder", type=Path, help="of the runs; by default workloads-results beside this checkout's docs"
    )
    parser.add_argument("--docs", action="store_true", help="write the page of workloads and its pictures")
    parser.add_argument("--only-page", action="store_true", help="play nothing: use the summaries in the folder")
    options = parser.parse_args()
    options.seeds = options.seeds or (2 if options.quick else 10)
    options.folder = options.folder or ROOT / ("workloads-quick" if options.quick else "workloads-results")
    options.folder.mkdir(parents=True, exist_ok=True)

    files = {name: options.folder / f"{name}.json" for name in options.worlds}
    if options.only_page:
        lines = [json.loads(path.read_text(encoding="utf-8")) for path in files.values() if path.exists()]
    else:
        lines = [played(name, options) for name in options.worlds]
    print("\n" + table(lines))
    if options.docs and lines:
        refresh(ROOT / "docs" / "measurements" / "workloads.md", lines)
        picture(lines, ROOT / "docs" / "images" / "workloads-price.png")
        curve = options.folder / "flip.png"
        if curve.exists():
            (ROOT / "docs" / "images" / "workloads-flip.png").write_bytes(curve.read_bytes())


if __name__ == "__main__":
    main()
