"""The commands, one file each. What they need is imported when they run, so that ``--help`` is quick."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dpbandits.cli.evaluate import evaluate
from dpbandits.cli.price import Lists, price
from dpbandits.cli.quickstart import quickstart
from dpbandits.cli.refusals import Command, fail
from dpbandits.cli.replay import replay
from dpbandits.cli.reproduce import HELP, reproduce
from dpbandits.cli.run import run
from dpbandits.cli.serve import serve

__all__ = ["app"]


class _OneLineErrors(TyperGroup):
    """What cannot be read ends with one line and exit code 2, like what is refused; an interrupt with exit code 130."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        try:
            sys.exit(super().main(*args, **kwargs))
        except (KeyboardInterrupt, typer.Abort):
            fail("interrupted", 130)
        except Exception as error:
            # typer's own complaints (an unknown option, a word for a number) know how to say themselves
            if not hasattr(error, "format_message"):
                raise
            context = getattr(error, "ctx", None)
            way = "" if context is None else f" Try '{context.command_path} --help'."
            fail(error.format_message().removesuffix(".") + "." + way, 2)


app = typer.Typer(
    cls=_OneLineErrors,
    add_completion=False,
    pretty_exceptions_enable=False,
    # paragraphs are set anew for the width of the terminal
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from accounting import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Private contextual bandits: see them learn, compare them, replay your own log.

    Start with **dpbandits quickstart**.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for _command in (quickstart, run, replay, evaluate, serve):
    app.command(cls=Command)(_command)
app.command(cls=Lists)(price)
app.command(cls=Command, help=HELP)(reproduce)
