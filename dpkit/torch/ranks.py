"""One run of DP-SGD by several processes, each of which holds some of the rows: what passes between them.

Every rank of a process group of ``torch.distributed`` makes the same call with rows of its own. Rank 0 runs
:mod:`dpkit.torch.dp_sgd` on the units of all ranks, one rank's after the other's: it alone draws samples and noise,
takes the optimizer's steps, charges the ledger and keeps the checkpoint. The others sum clipped gradients. A step is

    rank 0 → all:   the sample B of all units, and the parameters θ
    every rank r:   S_r = Σ clip_C(∇ℓ(θ; x_i)) over its own units in B, in 64-bit whole numbers
    all → rank 0:   Σ_r S_r, to which it adds noise once.

Privacy. Neighbours are those of one process, in the rows of all ranks together; on which rank a unit is does not
matter, but it must be on one only. Whole numbers are added without rounding (:mod:`dpkit.torch.exact_sums`; at most 2²⁶
rows on all ranks together), so that Σ_r S_r is the sum of one process, however the rows are spread and in whichever
order ranks are added. All that is random is drawn once, by one process from one source: no two ranks can draw alike.
So what is released has the law of one process that holds all rows, and costs the same; from a seed it is the same run,
up to last digits of single rows' gradients, which torch may round otherwise where it runs fewer rows together.

Parameters within an epoch, samples and sums without noise pass between ranks: all ranks and the network between them
are trusted as the memory of one process is. A rank gives its caller nothing before rank 0 has said how the run ended.

What one rank raises, all raise: errors before the first step are gathered, one within a step is counted in the sum that
the step needs anyway, and the end of rank 0's run, a result or an error, goes to all. An interrupt waits until the
exchange that it falls into is over, for ranks that are in different ones would wait for each other, and the others
hear of it in the next one.
"""

from __future__ import annotations

import hashlib
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpkit.training.whole_rows import check_rows

if TYPE_CHECKING:
    import torch
    from scipy.optimize import OptimizeResult

    from dpkit.torch.exact_sums import Lattice
    from dpkit.torch.problem import Problem, Released
    from dpkit.torch.unit_sums import UnitSums
    from dpkit.training.groups import Groups

__all__ = ["Ranks", "SharedSums", "ranks_of"]

# what rank 0 says in place of the size of a sample
_ENDED, _FAILED = -1, -2
# rows by which shards are told apart
_LOOKED_AT = 64


def ranks_of(group: Any) -> Ranks | None:
    """The ranks of this group, or of the default one if there is one; None if this process is alone."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        if group is not None:
            raise ValueError(
                "process_group must be None unless torch.distributed is initialised, got "
                f"process_group={group!r}: call torch.distributed.init_process_group first"
            )
        return None
    group = dist.group.WORLD if group is None else group
    if dist.get_rank(group) < 0:
        raise ValueError(f"process_group must have this process in it, got process_group={group!r}")
    if dist.get_world_size(group) == 1:
        return None
    backends = str(dist.get_backend_config(group))
    if "cpu:" not in backends:
        raise ValueError(
            "process_group must have a backend for tensors on the host, where exact sums are added, got "
            f"{backends!r}: init_process_group('cpu:gloo,cuda:nccl'), or "
            "process_group=torch.distributed.new_group(backend='gloo')"
        )
    return Ranks(group)


class Ranks:
    """The processes of a group: what they tell each other, on the host.

    Attributes
    ----------
    rank, size : int
        Of this process, and how many there are.
    open : bool
        Whether the others listen to rank 0: not after the end, nor after an exchange that failed.
    interrupted : bool
        Whether there was an interrupt of which the others have not heard.
    """

    def __init__(self, group: Any) -> None:
        import torch.distributed as dist

        self._group, self._first = group, dist.get_global_rank(group, 0)
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.open, self.interrupted = True, False

    def facts(self, own: Any) -> list[Any]:
        """What each rank says here, in their order."""
        import torch.distributed as dist

        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, own, group=self._group)
        return found

    def share(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor of rank 0, written into those of the others."""
        import torch.distributed as dist

        if tensor.numel():
            dist.broadcast(tensor, self._first, group=self._group)
        return tensor

    def number(self, of_first: int = 0) -> int:
        """A number that rank 0 says."""
        import torch

        return int(self.share(torch.tensor([of_first])))

    def thing(self, of_first: Any = None) -> Any:
        """Anything that rank 0 says."""
        import torch.distributed as dist

        held = [of_first]
        dist.broadcast_object_list(held, self._first, group=self._group)
        return held[0]

    def add(self, whole: torch.Tensor) -> torch.Tensor:
        """The sum over ranks, on rank 0."""
        import torch.distributed as dist

        dist.reduce(whole, self._first, group=self._group)
        return whole

    @contextmanager
    def agreement(self) -> Iterator[None]:
        """What one rank refuses here is refused by all, with the error of the first that does."""
        own: BaseException | None = None
        try:
            yield
        except BaseException as error:
            own = error
        if own is None and self.interrupted:
            own = KeyboardInterrupt()
        with _interrupts_later() as noted:
            errors = self.facts(None if own is None else _told(own, self.rank))
        self.interrupted = bool(noted)
        for rank, found in enumerate(errors):
            if found is not None:
                raise own if own is not None and rank == self.rank else found

    @contextmanager
    def exchange(self) -> Iterator[list[int]]:
        """Calls that all ranks make together, to their end; after one that fails there are no others."""
        with _interrupts_later() as noted:
            try:
                yield noted
            except BaseException:
                self.open = False
                raise


class _Facts(NamedTuple):
    """What a rank has."""

    settings: Mapping[str, object]  # the same on all
    given: Mapping[str, bool]  # what rank 0 uses alone
    ledger: bool
    model: str
    shapes: tuple[tuple[int, ...], ...]  # of a row and its target, where they are arrays
    units: int
    rows: int
    looked_at: str  # a digest of some rows; empty where there are fewer than two
    persons: NDArray[np.generic] | None
    path: str


class SharedSums:
    """Exact sums over the units of all ranks, as :class:`~dpkit.torch.unit_sums.UnitSums` of them all would make them.

    Every rank makes one; then rank 0 calls :meth:`over`, in what :meth:`run` runs, and the others answer.

    Parameters
    ----------
    ranks : Ranks
    own : UnitSums
        Of this rank's units.
    problem : Problem
    people : Groups, optional
    settings : mapping
        What must be the same on all ranks.
    given : mapping
        Whether there is what rank 0 uses alone: then rank 0 must have it.
    ledger : bool
        Whether there is one, which rank 0 alone may have.

    Raises
    ------
    ValueError
        On all ranks, if they do not belong together.
    """

    def __init__(
        self,
        ranks: Ranks,
        own: UnitSums,
        problem: Problem,
        people: Groups | None,
        *,
        settings: Mapping[str, object],
        given: Mapping[str, bool],
        ledger: bool,
    ) -> None:
        self._ranks, self._own, self._parameters = ranks, own, problem.parameters
        self._failure: BaseException | None = None
        with ranks.agreement():
            mine = _Facts(
                settings,
                given,
                ledger,
                _digest_of_model(problem.module, own.on),
                problem.rows.shapes(),
                own.units,
                len(problem.rows),
                _digest_of_rows(problem),
                None if people is None else people.labels,
                own.path,
            )
        with ranks.exchange() as noted:
            facts = ranks.facts(mine)
        _check(facts)
        if noted or ranks.interrupted:
            self._failure = KeyboardInterrupt()
        ends = np.cumsum([f.units for f in facts])
        self._begin, self._end = int(ends[ranks.rank]) - own.units, int(ends[ranks.rank])
        self.units = int(ends[-1])
        self.on: Lattice = own.on
        self.clipped = 0
        with_rows = [f.path for f in facts if f.rows] or [own.path]
        self.path = f"{with_rows[0]}; on {ranks.size} ranks"

    def over(self, chosen: NDArray[np.intp]) -> list[torch.Tensor]:
        """Σ of the units' clipped gradients for every parameter, in int64; on rank 0."""
        import torch

        failure = None
        with self._ranks.exchange() as noted:
            self._ranks.number(chosen.size)
            found = self._sum(torch.from_numpy(np.ascontiguousarray(chosen, dtype=np.int64)))
            if found[-1]:
                self._ranks.number(_FAILED)
                failure = self._first_failure()
        if failure is not None:
            raise failure
        if noted:
            raise KeyboardInterrupt
        self.clipped += int(found[-2])
        totals = found[:-2].split([p.numel() for p in self._parameters])
        return [total.reshape(p.shape) for total, p in zip(totals, self._parameters, strict=True)]

    def run(self, fit: Callable[[], OptimizeResult], released: Released) -> OptimizeResult:
        """What ``fit`` returns or raises on rank 0, on every rank; ``released`` gets its parameters."""
        from dpkit.training.printed_result import PrivateResult

        if self._ranks.rank == 0:
            try:
                if self._failure is not None:  # before anything is charged
                    raise self._failure
                result = fit()
                self._finish({name: value for name, value in result.items() if name != "module"})
            except BaseException as error:
                self._finish(_told(error, 0))
                raise
            return result
        ending = self._answer()
        if isinstance(ending, BaseException):
            raise ending
        released.restore(ending["x"])
        return PrivateResult(**ending, module=released.module)

    def _finish(self, ending: object) -> None:
        """Tell the others how it ended, if they listen."""
        if self._ranks.open:
            with self._ranks.exchange():
                self._ranks.open = False
                self._ranks.number(_ENDED)
                self._ranks.thing(ending)

    def _answer(self) -> Any:
        """Do what rank 0 asks for, until it says how the run ended."""
        import torch

        with self._ranks.exchange() as noted:
            while (size := self._ranks.number()) != _ENDED:
                if size == _FAILED:
                    self._first_failure()
                    continue
                if noted:  # an interrupt of any rank is one of all
                    noted.clear()
                    self._failure = KeyboardInterrupt()
                self._sum(torch.empty(size, dtype=torch.int64))
            return self._ranks.thing()

    def _sum(self, chosen: torch.Tensor) -> torch.Tensor:
        """One exchange: for every parameter the sum over all ranks, how many units were cut, and how many ranks failed;
        on rank 0."""
        import torch

        self._ranks.share(chosen)
        theta = torch.cat([p.detach().reshape(-1).cpu() for p in self._parameters])
        self._ranks.share(theta)
        found = torch.zeros(theta.numel() + 2, dtype=torch.int64)
        try:
            if self._failure is not None:
                raise self._failure
            if self._ranks.rank:
                values = theta.split([p.numel() for p in self._parameters])
                for p, value in zip(self._parameters, values, strict=True):
                    p.data.copy_(value.reshape(p.shape))
            mine = chosen[(chosen >= self._begin) & (chosen < self._end)] - self._begin
            before = self._own.clipped
            totals = self._own.over(mine.numpy())
            torch.cat([total.reshape(-1).cpu() for total in totals], out=found[:-2])
            found[-2] = self._own.clipped - before
        except BaseException as error:
            self._failure = error
            found.zero_()
            found[-1] = 1
        return self._ranks.add(found)

    def _first_failure(self) -> BaseException:
        """That of the first rank that has one."""
        own, self._failure = self._failure, None
        failures = self._ranks.facts(None if own is None else _told(own, self._ranks.rank))
        rank = next(rank for rank, failure in enumerate(failures) if failure is not None)
        found: BaseException = own if own is not None and rank == self._ranks.rank else failures[rank]
        return found


def _check(facts: list[_Facts]) -> None:
    """Refuse ranks that do not belong together; each rank knows all facts, and refuses alike."""
    first = facts[0]
    for rank, other in enumerate(facts):
        for name, value in first.settings.items():
            if other.settings[name] != value:
                raise ValueError(
                    f"{name} must be the same on all ranks, got {name}={value!r} on rank 0 and "
                    f"{name}={other.settings[name]!r} on rank {rank}"
                )
        if rank and other.ledger:
            raise ValueError(
                f"ledger must be None but on rank 0, as no other one is charged, got a ledger on rank {rank}: "
                "ledger=ledger if rank == 0 else None"
            )
        for name, given in first.given.items():
            if other.given[name] and not given:
                raise ValueError(f"{name} must be given on rank 0, which alone uses it, got one on rank {rank} only")
        if other.shapes != first.shapes:
            raise ValueError(
                "X and y must have rows of the same shapes on all ranks, with shape (0, …) where there are none, got "
                f"{first.shapes} on rank 0 and {other.shapes} on rank {rank}"
            )
        if other.model != first.model:
            raise ValueError(
                "model must be the same on all ranks, its layers, parameters and buffers, got others on rank "
                f"{rank} than on rank 0: call torch.manual_seed with one seed on every rank before it is made"
            )
        for before in range(rank):
            if other.looked_at and other.looked_at == facts[before].looked_at:
                raise ValueError(
                    "X and y must be this rank's rows alone, as a row on two ranks would count twice, got the same "
                    f"rows on ranks {before} and {rank}: X[rank::ranks], say; or let every rank train by itself with "
                    "process_group=torch.distributed.new_subgroups(group_size=1)[0]"
                )
    persons = [f.persons for f in facts if f.persons is not None and f.persons.size]
    if persons:
        labels, ranks_of_each = np.unique(np.concatenate(persons), return_counts=True)
        if np.any(ranks_of_each > 1):
            raise ValueError(
                "groups must have all rows of a person on one rank, whose mean gradient is clipped there, got "
                f"{np.count_nonzero(ranks_of_each > 1):,} of {len(labels):,} people on several ranks"
            )
    check_rows(sum(f.rows for f in facts))


def _digest_of_model(module: torch.nn.Module, on: Lattice) -> str:
    """Of all that gradients are made of, and what sums are whole numbers of."""
    import torch

    found = hashlib.sha256(repr((on, [(name, type(part)) for name, part in module.named_modules()])).encode())
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        found.update(repr((name, value.shape, value.dtype, value.requires_grad)).encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _digest_of_rows(problem: Problem) -> str:
    """Of some rows and their targets, which two shards do not have in common."""
    count = len(problem.rows)
    if count < 2:
        return ""
    found = hashlib.sha256(str(count).encode())
    for i in np.unique(np.linspace(0, count - 1, _LOOKED_AT).astype(np.intp)):
        for values in problem.rows.at(np.array([i])):  # one by one, as they may have several shapes
            found.update(values.detach().cpu().double().numpy().tobytes())
    return found.hexdigest()


def _told(error: BaseException, rank: int) -> BaseException:
    """The error as another rank gets it."""
    try:
        found: BaseException = pickle.loads(pickle.dumps(error))
        found.add_note(f"on rank {rank}")
    except Exception:  # of a class that cannot be pickled
        found = RuntimeError(f"{type(error).__name__} on rank {rank}: {error}")
    return found


@contextmanager
def _interrupts_later() -> Iterator[list[int]]:
    """Interrupts are noted; the third raises KeyboardInterrupt as ever, for of one Ctrl-C torchrun makes two."""
    noted: list[int] = []
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield noted
        return

    def note(number: int, frame: object) -> None:
        if len(noted) == 2:
            raise KeyboardInterrupt
        noted.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, usual)
