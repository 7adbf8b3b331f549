"""Processes that are ranks of a group of gloo, and what they do in tests of runs that they make together."""

from __future__ import annotations

import importlib
import math
import multiprocessing
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from accounting import Budget, Ledger

# torch loads the second when the first optimizer is made
_PRELOADED = [
    "torch.distributed", "torch._dynamo", "opacus.accountants", "opacus.validators", "scipy.optimize", "dpkit.optimize",
]  # fmt: skip
# what a job may take on a machine with much else to do; one that takes longer waits for a rank that will not come
PATIENCE = 60.0


class RankProcesses:
    """Processes of one group, which do jobs until they are closed."""

    def __init__(self, count: int, store: Path) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        self._pipes, self.processes = [], []
        for rank in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, count, str(store), theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self.processes.append(process)

    def __enter__(self) -> RankProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.join()

    def each(self, job: Callable[..., Any], *known: Any) -> list[Any]:
        """What ``job(rank, *known)`` returns or raises on every rank; None where the rank has ended."""
        for pipe in self._pipes:
            pipe.send((job, known))
        found = []
        for rank, pipe in enumerate(self._pipes):
            if not pipe.poll(PATIENCE):
                raise TimeoutError(f"rank {rank} still waits for another one")
            try:
                found.append(pipe.recv())
            except EOFError:
                found.append(None)
        return found


def _serve(rank: int, count: int, store: str, pipe: Any) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if Path("/sys/class/net/lo").exists():
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, count), rank=rank, world_size=count, timeout=timedelta(seconds=PATIENCE)
    )
    noise_of()  # to calibrate it takes longer than to train
    while True:
        job, known = pipe.recv()
        try:
            found = job(rank, *known)
        except BaseException as error:
            found = error
        pipe.send(found)


# ---------------------------------------------------------------------------------------------------- what is trained

BUDGET = Budget(2.0, 1e-5)
ROWS = np.random.default_rng(0).normal(size=(40, 3)) / 2.0
LABELS = (ROWS[:, 0] > 0).astype(float)


def noise_of(z: float = 10.0, drawn: float | None = None) -> None:
    """From now on runs have the noise multiplier z, whatever their budget is, and ``drawn`` is what is drawn."""
    from dpkit.mechanisms import GaussianMechanism

    def mechanism(noise_multiplier: float, **more: Any) -> GaussianMechanism:
        return GaussianMechanism(noise_multiplier=noise_multiplier if drawn is None else drawn, **more)

    source_of: Any = importlib.import_module("dpkit.torch.dp_sgd")
    source_of._noise_multiplier, source_of._epsilon = lambda *asked: z, lambda cost, budget: math.nan
    source_of.GaussianMechanism = mechanism


def network(seed: int = 0) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 1))


def loss(outputs: Any, targets: Any) -> Any:
    import torch

    return torch.nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], targets)


def adam(parameters: Any) -> Any:
    import torch

    return torch.optim.Adam(parameters, lr=0.05)


def constant() -> Any:
    """Its gradient is −x, whatever θ is."""
    from dpkit.optimize import GLM

    return GLM("linear", lambda eta, y: -eta, lambda eta, y: -np.ones_like(eta), 1.0, 0.0, clip=1.0)


def train(part: Any, **more: Any) -> Any:
    """A short simulation on these of the rows."""
    from dpkit.optimize import dp_sgd, glm

    known = {
        "model": glm("logistic", clip=1.0), "X": ROWS[part], "y": LABELS[part], "budget": BUDGET, "epochs": 2,
        "rng": np.random.default_rng(7),
    }  # fmt: skip
    return dp_sgd(**(known | more))


def of_module(**more: Any) -> dict[str, Any]:
    return {"model": network(), "loss": loss, "clip": 0.5, "optimizer": adam} | more


def alone(part: Any, **more: Any) -> Any:
    """The same by one process."""
    return train(part, process_group=own_group(), **more)


_groups: list[Any] = []


def own_group() -> Any:
    import torch.distributed as dist

    if not _groups:
        _groups.append(dist.new_subgroups(group_size=1)[0])
    return _groups[0]


def shown(fit: Any, *fields: str) -> dict[str, Any]:
    return {name: fit[name] for name in ("x", "clipped", *fields)}


# --------------------------------------------------------------------------------------------------------------- jobs

WAYS: dict[str, dict[str, Any]] = {
    "Poisson samples": {},
    "balls in bins": {"sampling": "balls_in_bins"},
    "shuffled batches": {"sampling": "shuffle"},
    "at most 22 rows": {"max_batch": 22, "batch": 10, "budget": Budget(4.0, 1e-2)},
    "a row that comes or goes": {"budget": Budget(2.0, 1e-5, adjacency="add_remove"), "public_rows": 44},
}

CHARGED = ("Poisson samples", "a row that comes or goes")


def equal_runs(rank: int, cuts: list[slice]) -> dict[str, Any]:
    """Simulations by this group and by one process."""
    fields = ("cost", "nit", "nfev", "message", "success", "history", "epsilon", "noise_multiplier", "not_private")
    found: dict[str, Any] = {}
    for name, more in WAYS.items():
        ledger, own = (Ledger(more.get("budget", BUDGET)) if name in CHARGED else None for _ in range(2))
        # the generators of other ranks than 0 are never used
        rng = np.random.default_rng(7 if rank == 0 else 99)
        together = train(cuts[rank], ledger=ledger if rank == 0 else None, rng=rng, **more)
        by_one = alone(slice(None), ledger=own, **more)
        rows = [
            [(row.label, row.release, row.outcome, row.simulation) for row in book.rows()]
            for book in (ledger, own)
            if book is not None
        ]
        drawn = rng.bit_generator.state != np.random.default_rng(99).bit_generator.state
        found[name] = shown(together, *fields), shown(by_one, *fields), rows, together.path, drawn
    return found


def modules_and_people(rank: int) -> dict[str, Any]:
    """A module by layer rules, a Dataset, and people, of whom rank 1 has the greater labels."""
    import torch

    part = [slice(0, 13), slice(13, 40)][rank]
    data = torch.utils.data.TensorDataset(*(torch.tensor(v[part], dtype=torch.float32) for v in (ROWS, LABELS)))
    people = np.arange(40) // 3
    by_person = {"budget": Budget(2.0, 1e-5, unit="person"), "batch": 4}
    edge = [slice(0, 18), slice(18, 40)][rank]
    pairs = [
        (train(part, **of_module()), alone(slice(None), **of_module())),
        (train(part, **of_module(X=data, y=None)), alone(slice(None), **of_module())),
        (
            train(edge, **of_module(groups=people[edge]), **by_person),
            alone(slice(None), **of_module(groups=people), **by_person),
        ),
    ]
    return {
        "pairs": [(shown(a, "path", "cost"), shown(b, "path", "cost")) for a, b in pairs],
        "released": [
            np.concatenate([p.detach().double().numpy().ravel() for p in fit.module.parameters()]) for fit, _ in pairs
        ],
    }


def equal_sums(rank: int, cuts: list[slice], trials: int) -> list[bool]:
    """Sums over chosen units by this group and by one process, of which every row's gradient is taken by itself."""
    import torch.distributed as dist
    from scipy.optimize import OptimizeResult

    from dpkit.torch.problem import Released, module_problem
    from dpkit.torch.ranks import Ranks, SharedSums
    from dpkit.torch.unit_sums import UnitSums

    problem = module_problem(network(), ROWS[cuts[rank]], LABELS[cuts[rank]], loss, 0.3)
    whole = module_problem(network(), ROWS, LABELS, loss, 0.3)
    sums = SharedSums(
        Ranks(dist.group.WORLD), UnitSums(problem, None, 1), problem, None, settings={}, given={}, ledger=False
    )
    rng, of_all, released = np.random.default_rng(1), UnitSums(whole, None, 1), Released(problem)

    def fit() -> Any:
        same = []
        for trial in range(trials):
            for ours, theirs in zip(problem.parameters, whole.parameters, strict=True):
                ours.data += 0.1 * trial
                theirs.data.copy_(ours.data)
            chosen = np.flatnonzero(rng.random(40) < [0.0, 0.2, 1.0][trial % 3])
            pairs = zip(sums.over(chosen), of_all.over(chosen), strict=True)
            same.append(all(bool((a == b).all()) for a, b in pairs) and sums.clipped == of_all.clipped)
        return OptimizeResult(x=released.update(), same=same)

    same: list[bool] = sums.run(fit, released)["same"]
    return same


def refused(rank: int, name: str) -> Any:
    """The error of a call that does not belong to that of the other rank, and whether anything was drawn or spent."""
    import torch

    rng, ledger = np.random.default_rng(3), Ledger(BUDGET)
    part = [slice(0, 15), slice(15, 40)][rank]
    second = rank == 1
    wrapped = torch.nn.parallel.DistributedDataParallel
    known: dict[str, Any] = {"rng": rng, "ledger": None if second else ledger}
    people = np.arange(40)[part] % 20
    known |= {
        "clip": {"model": of_module()["model"], "loss": loss, "clip": 2.0 if second else 1.0},
        "budget": {"budget": Budget(1.0 if second else 2.0, 1e-5)},
        "epochs": {"epochs": 3 if second else 2},
        "sampling": {"sampling": "shuffle" if second else "poisson"},
        "rng": {"rng": None} if second else {},
        "values": of_module(model=network(rank)),
        "layers": of_module(model=torch.nn.Sequential(torch.nn.Linear(3, 1), *[torch.nn.Tanh()] * rank)),
        "kind": of_module() if second else {},
        "wrapped": of_module(model=wrapped(network())) if name == "wrapped" else {},
        "shape": {"X": ROWS[part][:, : 3 - rank]},
        "rows": {"X": ROWS, "y": LABELS},
        "people": {"budget": Budget(2.0, 1e-5, unit="person"), "groups": people},
        "ledger": {"ledger": ledger},
        "progress": {"progress": print} if second else {},
        "not finite": {"X": np.full((3, 3), np.nan), "y": np.zeros(3)} if second else {},
        "batch": {"batch": 41},
        "full": {"ledger": Ledger(Budget(0.01, 1e-5)) if rank == 0 else None},
        "public": {"budget": Budget(2.0, 1e-5, adjacency="add_remove"), "ledger": None},
    }[name]
    before = rng.bit_generator.state
    try:
        train(part, **known)
    except Exception as error:
        return type(error), str(error), rng.bit_generator.state != before, len(ledger.rows())
    return None


def failing(rank: int, where: int, what: str, path: str) -> Any:
    """A run that fails on rank ``where`` in its third step or so, and a sound one after it."""
    import torch

    class Failing(torch.nn.Linear):
        calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            # four calls try the first row, and then there is one a step
            if self.calls == 7 and rank == where:
                if what == "an error":
                    raise ArithmeticError("of its own")
                if what == "an error of a class that others do not know":
                    raise type("Unheard", (ArithmeticError,), {})("of its own")
                os.kill(os.getpid(), signal.SIGINT)
            return super().forward(x)

    torch.manual_seed(0)
    known: dict[str, Any] = {"model": Failing(3, 1), "loss": loss, "clip": 1.0, "batch": 40, "epochs": 6}
    ledger = Ledger.create(path, BUDGET) if rank == 0 else None
    found: Any
    try:
        fit = train([slice(0, 15), slice(15, 40)][rank], ledger=ledger, **known)
        found = shown(fit, "success", "nit", "message")
    except Exception as error:
        found = [kind.__name__ for kind in type(error).__mro__], str(error), getattr(error, "__notes__", [])
    return found, None if ledger is None else [row.outcome for row in ledger.rows()]


def interrupted(rank: int, where: int, call: int) -> Any:
    """A run that is interrupted on rank ``where`` while ranks tell each other what they have, for this time."""
    from dpkit.torch import ranks

    calls, telling = 0, ranks.Ranks.facts

    def facts(self: Any, own: Any) -> Any:
        nonlocal calls
        calls += 1
        if (rank, calls) == (where, call):
            os.kill(os.getpid(), signal.SIGINT)
        return telling(self, own)

    ledger = Ledger(BUDGET) if rank == 0 else None
    ranks.Ranks.facts = facts  # type: ignore[method-assign]
    try:
        fit = train([slice(0, 15), slice(15, 40)][rank], ledger=ledger)
        return fit.message, fit.nit
    except KeyboardInterrupt:
        return "KeyboardInterrupt", None if ledger is None else len(ledger.rows())
    finally:
        ranks.Ranks.facts = telling  # type: ignore[method-assign]


def killed(rank: int, where: int, folder: str) -> Any:
    """A run with a checkpoint of which one rank is gone in the second epoch; the other goes on by itself."""
    from dpkit.torch import ranks

    steps, adding, part = 0, ranks.Ranks.add, [slice(0, 15), slice(15, 40)][rank]

    def add(self: Any, whole: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 6 and rank == where:
            os._exit(1)
        return adding(self, whole)

    path, state = Path(folder) / "ledger", Path(folder) / "state"
    known: dict[str, Any] = of_module(batch=10, epochs=3, rng=None)
    own_group()
    ranks.Ranks.add = add  # type: ignore[method-assign]
    kept = {"checkpoint": state, "ledger": Ledger.create(path, BUDGET)} if rank == 0 else {}
    try:
        train(part, **known, **kept)
    except RuntimeError as error:
        found = str(error)
    seen: list[int] = []
    ledger = kept.get("ledger") or Ledger.open(path)
    fit = alone(slice(None), **known, checkpoint=state, ledger=ledger, callback=lambda state: seen.append(state.epoch))
    return found, seen, fit.success, len(ledger.rows()), ledger.total == fit.cost


def of_groups(rank: int) -> list[Any]:
    """Runs of the last two of three ranks, and of them all; what others say of the group, or of one without a host."""
    import torch.distributed as dist

    pair = dist.new_group([1, 2])
    cuts = [slice(0, 0), slice(0, 15), slice(15, 40)]
    found: list[Any] = []
    try:
        found.append(train(cuts[rank], process_group=pair).x)
    except ValueError as error:
        found.append(str(error))
    by_one = alone(slice(None))
    found += [train([slice(0, 5), slice(5, 30), slice(30, 40)][rank]).path, train(cuts[rank]).x, by_one.x, by_one.path]
    usual = dist.get_backend_config, dist.is_initialized
    dist.get_backend_config = lambda group: "cuda:nccl"
    for _ in range(2):
        try:
            train(cuts[rank], process_group=dist.group.WORLD)
        except ValueError as error:
            found.append(str(error))
        dist.is_initialized = lambda: False
    dist.get_backend_config, dist.is_initialized = usual
    return found


def sound(rank: int) -> bool:
    """Whether this group can still train."""
    return bool(train([slice(0, 15), slice(15, 40)][rank]).success)


def resumed(rank: int, folder: str) -> dict[str, Any]:
    """A run that stops on rank 0, which has its checkpoint; goes on by one process, stops again, and goes on by two."""
    part = [slice(0, 15), slice(15, 40)][rank]
    known: dict[str, Any] = of_module(batch=10, epochs=3, rows_at_once=1)
    own_group()
    whole = train(part, **known)

    def crash_at(step: int) -> Callable[[int, int], None]:
        def progress(taken: int, steps: int) -> None:
            if taken == step:
                raise ArithmeticError(f"a crash at {step}")

        return progress

    ledger = Ledger.create(Path(folder) / "ledger", BUDGET) if rank == 0 else None
    kept = {"checkpoint": Path(folder) / "state", "ledger": ledger} if rank == 0 else {}
    try:
        train(part, **known, **kept, **({"progress": crash_at(6)} if rank == 0 else {}))
    except ArithmeticError as error:
        stopped = str(error)
    if rank == 0:  # by itself, up to another step
        try:
            alone(slice(None), **known, **kept, progress=crash_at(10))
        except ArithmeticError as error:
            stopped += str(error)
    again = train(part, **known, **kept)
    return {
        "stopped": stopped, "whole": whole.x, "again": again.x, "nit": again.nit, "cost": again.cost == whole.cost,
        "rows": len(ledger.rows()) if ledger is not None else None,
    }  # fmt: skip


def noise_only(rank: int, drawn: float | None) -> tuple[Any, float]:
    """One step on no rows, with the secure source: −η·noise/batch; and the scale that is claimed."""
    import torch

    d, C = 40_000, 0.7
    model = torch.nn.Linear(d, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    noise_of(1.5, drawn)
    fit = train(
        slice(0), model=model, X=np.zeros((0, d)), y=np.zeros(0), loss=loss, clip=C, epochs=1, batch=40,
        learning_rate=1.0, rng=None, budget=Budget(2.0, 1e-5, adjacency="add_remove"), public_rows=40,
    )  # fmt: skip
    noise_of()
    return fit.x, 1.5 * C / 40


def steps_on(rank: int, data: list[np.ndarray], z: float, drawn: float | None, steps: int, batch: int = 40) -> Any:
    """The noisy sums of every step, on rank 0, of rows of which rank r has ``data[r]``; with the secure source."""
    import torch

    seen: list[Any] = []

    class Recording(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            seen.append(self.param_groups[0]["params"][0].grad.numpy().ravel().copy())

    noise_of(z, drawn)
    train(
        slice(0), model=constant(), X=data[rank], y=np.zeros(len(data[rank])), rng=None, batch=batch, public_rows=40,
        epochs=math.ceil(steps * batch / 40), budget=Budget(2.0, 1e-5, adjacency="add_remove"),
        optimizer=lambda parameters: Recording(parameters, lr=0.0),
    )  # fmt: skip
    noise_of()
    return -batch * np.array(seen)[:steps]
