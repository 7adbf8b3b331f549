"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dpbandits.cli.policies import POLICIES

__all__ = [
    "BaseRate",
    "DEFAULT_EPSILONS",
    "Delta",
    "Epsilon",
    "Jobs",
    "Out",
    "PolicyNames",
    "Resume",
    "Seeds",
    "Unit",
    "chosen",
    "folder",
    "kept_in",
    "processes",
    "unit_note",
]

DEFAULT_EPSILONS = [1.0, 4.0]

_POLICIES, _OUTPUT = "Policies", "Repetitions and output"

Epsilon = Annotated[
    list[float],
    typer.Option(
        "--epsilon", "-e", help="Privacy budget ε of the whole run. Repeat to compare.", rich_help_panel=_POLICIES
    ),
]
Delta = Annotated[
    float, typer.Option(help="δ of the budget: well below 1 over the number of rounds.", rich_help_panel=_POLICIES)
]
PolicyNames = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        "-p",
        help="A policy to play. Repeat to compare. By default uniform, glb-omd and one-pass-private, or with "
        f"--unit person person-private. Known: {', '.join(POLICIES)}.",
        rich_help_panel=_POLICIES,
    ),
]
Unit = Annotated[
    str,
    typer.Option(
        help="What a private policy protects: one round, or one person in all rounds of that person.",
        rich_help_panel=_POLICIES,
    ),
]
BaseRate = Annotated[
    float | None,
    typer.Option(
        help="A public guess of the mean reward of an arm taken at random, such as 0.04 for rare clicks.",
        rich_help_panel=_POLICIES,
    ),
]
Seeds = Annotated[int, typer.Option(help="Number of repetitions, with seeds 0, 1, …", rich_help_panel=_OUTPUT)]
Jobs = Annotated[
    int | None, typer.Option(help="Number of processes; by default one per processor.", rich_help_panel=_OUTPUT)
]
Out = Annotated[
    Path,
    typer.Option(help="Folder for the plot and the JSON file; older ones are replaced.", rich_help_panel=_OUTPUT),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        help="A .jsonl file that keeps every run as it ends; the same command with it plays the missing ones only.",
        rich_help_panel=_OUTPUT,
    ),
]


def chosen(policy: list[str] | None, unit: str) -> list[str]:
    """The policies to play."""
    return policy or ["uniform", "glb-omd", "person-private" if unit == "person" else "one-pass-private"]


def folder(out: Path) -> None:
    """Make the folder to write to, before anything is computed."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out must be a folder that can be made, got {str(out)!r}: {error.strerror}") from None
    if not os.access(out, os.W_OK):
        raise ValueError(f"--out must be a folder that can be written to, got {str(out)!r}")


def kept_in(resume: Path | None) -> None:
    """Refuse a file that could not be made."""
    if resume is not None and (resume.is_dir() or not resume.absolute().parent.is_dir()):
        raise ValueError(f"--resume must be a file in a folder that exists, got {str(resume)!r}")


def processes(jobs: int | None) -> int:
    """``jobs``, or one per processor that this process may use."""
    if jobs is not None:
        return jobs
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def unit_note(unit: str, policies: Sequence[str] = ()) -> str:
    """What a table of these policies says of the unit."""
    note = (
        "The unit of privacy is one round, its arms and its reward, not one person: who takes part in several rounds "
        "is protected less."
    )
    if unit == "person":
        note = (
            "The unit of privacy is one person: arms and rewards of all rounds of that person together. Everyone is "
            "served every time; person-private learns from all rounds of everybody, the others from one round of each."
        )
    if "standing-private" in policies:
        note += " standing-private protects rewards alone: arms, and which was shown in which round, must be public."
    return note
