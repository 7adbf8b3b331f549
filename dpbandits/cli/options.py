"""Options that several commands share, and what is checked of them before anything is computed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dpbandits.cli.policies import POLICIES
from dpkit.cli.options import check_targets

__all__ = [
    "BASE_RATE",
    "AsJson",
    "BaseRate",
    "DEFAULT_EPSILONS",
    "DefaultReward",
    "Delta",
    "Epsilon",
    "Jobs",
    "Out",
    "PersonColumn",
    "PolicyNames",
    "Resume",
    "RewardColumn",
    "Seeds",
    "Unit",
    "folder",
    "kept_in",
    "log_option",
    "processes",
    "writable",
]

DEFAULT_EPSILONS = [1.0, 4.0]
BASE_RATE = "A public guess of the mean reward of an arm taken at random, such as 0.04 for rare clicks."

_policies = partial(typer.Option, rich_help_panel="Policies")
_output = partial(typer.Option, rich_help_panel="Repetitions and output")
log_option = partial(typer.Option, rich_help_panel="The log")

Epsilon = Annotated[
    list[float], _policies("--epsilon", "-e", help="Privacy budget ε of the whole run. Repeat to compare.")
]
Delta = Annotated[float, _policies(help="δ of the budget: well below 1 over the number of rounds.")]
PolicyNames = Annotated[
    list[str] | None,
    _policies(
        "--policy",
        "-p",
        help="A policy to play. Repeat to compare. By default uniform, glb-omd and one-pass-private, or with "
        "--unit person person-private; for fixed arms without features uniform, thompson-arms and private-arms. "
        f"Known: {', '.join(POLICIES)}.",
    ),
]
Unit = Annotated[
    str, _policies(help="What a private policy protects: one round, or one person in all rounds of that person.")
]
BaseRate = Annotated[float | None, _policies(help=BASE_RATE)]
Seeds = Annotated[int, _output(help="Number of repetitions, with seeds 0, 1, …")]
Jobs = Annotated[int | None, _output(help="Number of processes; by default one per processor.")]
Out = Annotated[Path, _output(help="Folder for the plot and the JSON file; older ones are replaced.")]
Resume = Annotated[
    Path | None,
    _output(
        help="A .jsonl file that keeps every run as it ends; the same command with it plays the missing ones only."
    ),
]
AsJson = Annotated[
    bool,
    _output(
        "--json",
        help="Print one JSON object and nothing else: caption, metric, complete, policies (one row each, as in the "
        "table; ε is null where nothing is protected), plot, data.",
    ),
]
RewardColumn = Annotated[str, log_option(help="Column of the reward.")]
DefaultReward = Annotated[
    float | None, log_option(help="What a reward that never came (an empty cell) counts as; by default it is refused.")
]
PersonColumn = Annotated[str | None, log_option(help="Column that says whose row it is.")]


def folder(out: Path) -> None:
    """Make the folder to write to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out must be a folder that can be made, got {str(out)!r}: {error.strerror}") from None
    if not os.access(out, os.W_OK):
        raise ValueError(f"--out must be a folder that can be written to, got {str(out)!r}")


def writable(out: Path, suffix: str, *, read: Iterable[str | Path | None]) -> None:
    """Refuse a file that is called otherwise, could not be written, or is one that the command reads."""
    if out.suffix != suffix:
        raise ValueError(f"--out must be a{'n' if suffix == '.html' else ''} {suffix} file, got {out}")
    check_targets({"--out": out}, read=read)


def kept_in(resume: Path | None) -> None:
    """Refuse a file that could not be made."""
    if resume is not None and (resume.is_dir() or not resume.absolute().parent.is_dir()):
        raise ValueError(f"--resume must be a file in a folder that exists, got {str(resume)!r}")


def processes(jobs: int | None) -> int:
    """``jobs``, or one per processor that this process may use."""
    if jobs is not None:
        return jobs
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
