"""What decides a run beside its numbers: by this a checkpoint knows the run that may go on from it.

Told is what a call says in public: how the module is built (classes, names, shapes and types of its parameters and
buffers, the settings of torch's own layers, and a digest of the values that are not trained), the loss by its name and
code, the optimizer and its scheduler by their classes and settings, the shapes and types of a row and its target.

Not told are the rows. A digest of private rows in a file would let whoever reads it test a guess at them, and no noise
covers that; so other rows of the same number and shapes are not noticed, nor other labels. Nor are the numbers that a
loss holds (weights of classes, a variable of its closure), which may come from the rows. Of the code of a module its
own ``forward`` is told, and no function that it calls.
Where the trained parameters start does not matter: a run goes on from those in the file.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import warnings
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any

from dpkit.models.losses import GLM

if TYPE_CHECKING:
    import torch

    from dpkit.torch.problem import Problem

__all__ = ["check_same", "said_of", "said_of_optimizer", "said_of_schedule"]

# code of one version of Python is no code of another
_PYTHON, _CODE = "Python", "code"
# of an optimizer: what it steps, and by which of torch's ways, which change last digits only
_HOW = ("params", "foreach", "fused", "capturable", "differentiable")


def said_of(problem: Problem, model: Any) -> dict[str, str]:
    """Of the module, its loss and the shapes of its rows."""
    from dpkit.torch.problem import Arrays

    rows = problem.rows
    found = {_PYTHON: f"{sys.version_info.major}.{sys.version_info.minor}", "model": _built(problem.module)}
    own = [type(part).forward for part in problem.module.modules() if not type(part).__module__.startswith("torch.")]
    found |= {f"model, {_CODE}": _digest(_codes(own))}
    if isinstance(rows, Arrays):
        found |= {"X": f"rows of shape {tuple(rows.X.shape[1:])} and {rows.X.dtype}"}
        found |= {"y": f"targets of shape {tuple(rows.y.shape[1:])} and {rows.y.dtype}"}
    else:
        found |= {"X": "a Dataset"}
    if isinstance(model, GLM):
        return found | {"loss": repr(model)}
    return found | {"loss": _said(problem.loss, numbers=False), f"loss, {_CODE}": _digest(_codes(problem.loss))}


def said_of_optimizer(inner: torch.optim.Optimizer) -> dict[str, str]:
    """Its class, and the settings of each group of parameters; to be asked before a scheduler changes them."""
    found = {
        "optimizer": f"{type(inner).__name__} of {[len(group['params']) for group in inner.param_groups]} parameters"
    }
    for number, group in enumerate(inner.param_groups):
        for name, value in group.items():
            if name not in _HOW:
                found[f"optimizer, {name} of group {number}"] = _said(value)
    return found


def said_of_schedule(schedule: Any) -> dict[str, str]:
    """Its class and its settings, as it was made."""
    if schedule is None:
        return {}
    found = {"schedule": type(schedule).__name__}
    found |= {f"schedule, {name}": _said(value) for name, value in schedule.state_dict().items()}
    # those of a LambdaLR, which its state leaves out
    return found | {f"schedule, {_CODE}": _digest(_codes(list(getattr(schedule, "lr_lambdas", []))))}


def check_same(kept: Any, said: Mapping[str, str]) -> None:
    """Refuse a checkpoint of another run, by what differs; one that was written before any of this was kept goes on.

    What only one of the two says (settings that a newer version of torch added) is not compared.
    """
    if kept is None:
        return
    if not isinstance(kept, Mapping):
        raise ValueError(f"checkpoint must hold what decides its run, got {kept!r}")
    other_python = kept.get(_PYTHON) != said[_PYTHON]
    for name, here in said.items():
        there = kept.get(name, here)
        if name == _PYTHON or here == there or (other_python and name.endswith(_CODE)):
            continue
        what = name.partition(",")[0]
        setting = name[len(what) + 2 :]
        which = f" ({setting})" if setting else ""
        raise ValueError(
            f"{what} must be that of the run in the checkpoint{which}, {there}, got {here}: give a new file to a new "
            "run"
        )
    if other_python and any(name.endswith(_CODE) and value for name, value in said.items()):
        warnings.warn(
            f"the code of loss and schedule cannot be compared with that of the run in the checkpoint, which Python "
            f"{kept.get(_PYTHON)} wrote: that it is the same is for you to know",
            UserWarning,
            stacklevel=5,
        )


def _built(module: torch.nn.Module) -> str:
    """A digest of all of it, behind the classes at the top."""
    import torch

    found = hashlib.sha256()
    for name, part in module.named_modules():
        own = type(part).__module__.startswith("torch.")
        found.update(repr((name, type(part).__name__, part.extra_repr() if own else "")).encode())
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        found.update(repr((name, tuple(value.shape), str(value.dtype), value.requires_grad)).encode())
        if not value.requires_grad:
            found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    top = f"{type(module).__name__}({', '.join(type(part).__name__ for part in module.children())})"
    return f"{top if len(top) <= 200 else top[:200] + '…'} [{found.hexdigest()[:16]}]"


def _said(value: Any, *, numbers: bool = True) -> str:
    """A setting in words that every process finds alike; of what has none, its class. Without ``numbers`` no float."""
    import torch

    if isinstance(value, torch.Tensor):
        return _said(value.item()) if numbers and value.numel() == 1 else f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, float) and not numbers:
        return "a number"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return repr(float(value))  # 1, 1.0 and numpy's are one setting
    if value is None or isinstance(value, (bool, str)):
        return repr(value)
    if isinstance(value, Mapping):
        parts = sorted(f"{key}={_said(each, numbers=numbers)}" for key, each in value.items())
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_said(each, numbers=numbers) for each in value)}]"
    if isinstance(value, functools.partial):
        return f"{_said(value.func)} with {_said([value.args, value.keywords], numbers=numbers)}"
    if isinstance(value, torch.nn.Module):
        settings = {name: each for name, each in vars(value).items() if not name.startswith("_") and name != "training"}
        return f"{type(value).__name__} {_said(settings, numbers=numbers)}"
    return str(getattr(value, "__name__", type(value).__name__))


def _codes(value: Any) -> Iterator[Any]:
    """What functions that are not torch's do: of names of files and numbers of lines nothing."""
    if isinstance(value, list):
        for each in value:
            yield from _codes(each)
    elif isinstance(value, functools.partial):
        yield from _codes(value.func)
    else:
        function = getattr(value, "__func__", value)
        if not hasattr(function, "__code__"):  # an object that is called
            kind = type(value)
            function = vars(kind).get("forward") or vars(kind).get("__call__")
        code = getattr(function, "__code__", None)
        if code is not None and str(getattr(function, "__module__", "")).partition(".")[0] != "torch":
            yield _of_code(code)


def _of_code(code: CodeType) -> tuple[Any, ...]:
    constants = [_of_code(each) if isinstance(each, CodeType) else _constant(each) for each in code.co_consts]
    return code.co_code.hex(), constants, code.co_names, code.co_argcount


def _constant(value: Any) -> str:
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def _digest(codes: Iterator[Any]) -> str:
    found = list(codes)
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16] if found else ""
