"""Refusals in the words of a command: the packages name their parameters, and whoever types a command its options."""

from __future__ import annotations

import codecs
import io
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

__all__ = [
    "Command",
    "Decimal",
    "Missing",
    "Separator",
    "Thousands",
    "Witness",
    "brief",
    "check_targets",
    "encodable_output",
    "in_options",
    "paid_for",
    "plain_warnings",
    "print_json",
    "refusal",
]

# of the commands that open a ledger
Witness = Annotated[
    str | None,
    typer.Option(
        help="The ledger's witness (a file or postgresql://…). What was made with one is spent from only with it."
    ),
]

# of the commands that read a file: how a CSV file is written
Separator = Annotated[str, typer.Option(help="The separator of columns in a CSV file.")]
Decimal = Annotated[str, typer.Option(help="The decimal point of a CSV file; a comma, say.")]
Thousands = Annotated[str | None, typer.Option(help="The separator of thousands in a CSV file.")]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEXT",
        help="A text that stands for a missing value; repeatable. Else only an empty cell does: NA is a text.",
    ),
]

# the options of the command that runs, and what they were given
_RUNNING: ContextVar[tuple[Iterable[Any], Mapping[str, Any]]] = ContextVar("_RUNNING", default=((), {}))


class Command(TyperCommand):
    """A command whose refusals :func:`refusal` can put into its own words, and which says that Ctrl-C ended it."""

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        token = _RUNNING.set((self.params, ctx.params))
        try:
            with plain_warnings("dpkit: "):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("dpkit: interrupted", err=True)
            raise typer.Exit(130) from None
        finally:
            _RUNNING.reset(token)


@contextmanager
def plain_warnings(start: str) -> Iterator[None]:
    """What the packages warn of, as lines for whoever typed a command, who did not write the line of code."""

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, UserWarning):
            typer.echo(f"{start}note: {message}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def check_targets(targets: Mapping[str, Path | None], read: Iterable[str | Path | None] = ()) -> None:
    """Refuse files, by the option that names each, that cannot be written, or that the command writes or reads, too.

    Before anything is spent: what was paid for must not be lost for want of a place.
    """
    taken = {os.path.realpath(one) for one in read if one is not None}
    for option, target in targets.items():
        if target is None:
            continue
        place = os.path.realpath(target)
        if place in taken:
            raise ValueError(f"{option} must be a file of its own, got {str(target)!r}, which the command uses, too")
        taken.add(place)
        why = ""
        try:
            new = not target.exists()
            if new or target.is_file():
                target.open("ab").close()  # no question about rights is answered as surely
                if new:
                    os.unlink(place)
            elif target.is_dir() or not os.access(target, os.W_OK):
                why = ": it is no file" if target.is_dir() else ": it may not be written to"
        except (OSError, ValueError) as error:
            why = f": {getattr(error, 'strerror', None) or error}"
        if why:
            raise ValueError(
                f"{option} must be a file in a folder that exists and can be written to, got {str(target)!r}{why}"
            )


def encodable_output() -> None:
    r"""Let the output of this process have what its encoding lacks as JSON writes it, \u03b5 for ε.

    What is printed may have been paid for: it must neither end in an error nor lose a letter of a key.
    """
    codecs.register_error("dpkit.escaped", _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="dpkit.escaped")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


@contextmanager
def paid_for(text: Callable[[], str]) -> Iterator[None]:
    """Print what was paid for, or where that fails (a disk is full) its text as an error: to ask again costs again."""
    try:
        yield
        sys.stdout.flush()
    except OSError:
        typer.echo(text(), err=True)
        raise


def print_json(facts: Mapping[str, Any]) -> None:
    """One JSON object in a line; what is infinite or no number is null."""
    typer.echo(json.dumps(_finite(facts), ensure_ascii=False, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(entry) for entry in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if isinstance(value, (str, int, bool, type(None))) else str(value)


def brief(description: str) -> str:
    """A description for a table: numbers to six digits, the first unnamed; files and JSON have all of it.

    >>> brief("Laplace(noise_multiplier=1.9999935739163788, adjacency='add_remove')")
    "Laplace(1.99999, adjacency='add_remove')"
    """
    rounded = re.sub(r"\d+\.\d{6,}(e[+-]?\d+)?", lambda number: f"{float(number[0]):.6g}", description)
    return re.sub(r"(\w\()(?:noise_multiplier|epsilon|rho|release)=", r"\1", rounded)


def refusal(message: str) -> str:
    """A message in the words of the command that runs, with releases in short."""
    return in_options(brief(message), *_RUNNING.get())


def in_options(message: str, parameters: Iterable[Any], given: Mapping[str, Any]) -> str:
    """A message with the names of options: of parameters that are refused, and of columns that are not there.

    "max_rows must be at least 1, got max_rows=0" becomes "--max-rows must be at least 1, got --max-rows 0", and
    "there must be a column 'reward'" gets "(named by --reward)" behind it, if that is what was given there.
    """
    named: dict[str, list[str]] = {}
    for parameter in parameters:
        if not parameter.opts[0].startswith("-"):
            continue  # an argument, which is called by its name
        flag = max(parameter.opts, key=len)
        for name in {parameter.name, flag.strip("-").replace("-", "_")}:
            message = re.sub(rf"(^|[;:] ){name}(?= (?:must|needs)\b)", rf"\1{flag}", message)
            message = re.sub(rf"\bgot {name}=", f"got {flag} ", message)
        values = given.get(parameter.name)
        for value in values if isinstance(values, (list, tuple)) else [values]:
            if isinstance(value, str):
                named.setdefault(value, []).append(flag)

    def with_flags(found: re.Match[str]) -> str:
        flags = named.get(found[1])
        return found[0] if flags is None else f"{found[0]} (named by {', '.join(flags)})"

    message = re.sub(r"(?:\ba|\bno|\d,) column '([^']*)'", with_flags, message)
    return re.sub(r"\bgot (--[\w-]+)=", r"got \1 ", message)
