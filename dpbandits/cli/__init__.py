"""The commands, one file each. What they need is imported when they run, so that ``--help`` is quick.

=============================================================== ==================================================
``quickstart.py``, ``run.py``, ``replay.py``                    see policies learn: on films, worlds, your own log
``evaluate.py``, ``price.py``                                   what others would have earned; what each ε costs
``experiment.py``                                               an A/B/n test: plan, analyse, report
``serve.py``, ``reproduce.py``                                  the service; published figures
``options.py``                                                  options that several share
``policies.py``                                                 the policies by name, and what each is told
``report.py``                                                   how a simulation is played, printed and written
``refusals.py``                                                 how a command ends that refuses
=============================================================== ==================================================

A command makes an environment from its options, policies from their names (``policies.factories``), and hands both to
``report.play``.
"""

from __future__ import annotations

from typing import Annotated

import typer

from dpbandits.cli.evaluate import evaluate
from dpbandits.cli.experiment import experiment
from dpbandits.cli.price import Lists, price
from dpbandits.cli.quickstart import quickstart
from dpbandits.cli.refusals import Command, Commands
from dpbandits.cli.replay import replay
from dpbandits.cli.reproduce import HELP, reproduce
from dpbandits.cli.run import run
from dpbandits.cli.serve import serve

__all__ = ["app"]

app = typer.Typer(
    cls=Commands,
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


for _command in (quickstart, run, replay, evaluate):
    app.command(cls=Command)(_command)
app.command(cls=Lists)(price)
app.command(cls=Command, help=HELP)(reproduce)
app.add_typer(experiment, name="experiment")
app.add_typer(serve, name="serve")
