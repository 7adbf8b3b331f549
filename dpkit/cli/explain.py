"""``dpkit explain``: what a description, a budget or a ledger means, as the success of the best attack on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpkit.cli.options import Witness
from dpkit.cli.printing import opened_ledger, refusals, say

if TYPE_CHECKING:
    from accounting import Release

__all__ = ["explain_command"]


def explain_command(
    description: Annotated[str | None, typer.Argument(help="What is released, as text; see below.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Explain this ε instead.")] = None,
    delta: Annotated[float, typer.Option(help="With this δ.")] = 0.0,
    ledger: Annotated[str | None, typer.Option(help="Explain all that this ledger has recorded instead.")] = None,
    witness: Witness = None,
    prior: Annotated[
        float, typer.Option(help="How probable it was, before any release, that the unit's data were used.")
    ] = 0.5,
    plot: Annotated[Path | None, typer.Option(help="Write the curve of the best attack there (PNG, PDF, SVG).")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: release, advantage, prior, rates.")
    ] = False,
) -> None:
    """Say in plain words what a privacy guarantee means: how well the best attack can tell who took part.

    dpkit explain --epsilon 1 --delta 1e-6

    dpkit explain "1000 * PoissonSubsampled(Gaussian(1.1), 0.01)" --prior 0.1 --plot attack.png
    """
    with refusals():
        from accounting import ApproxDP, PureDP, attacker

        if sum(one is not None for one in (description, epsilon, ledger)) != 1:
            raise ValueError("one of DESCRIPTION, --epsilon and --ledger must be given, and no more")
        if witness is not None and ledger is None:
            raise ValueError("--witness is of a ledger: give --ledger, too")
        release: Release
        if description is not None:
            from dpkit.cli.expression import Expression

            release = Expression(description)()
        elif ledger is not None:
            release = opened_ledger(ledger, witness=witness).total
        elif epsilon is not None:
            release = ApproxDP(epsilon, delta) if delta > 0 else PureDP(epsilon)
        found = attacker(release)
        shown = json.dumps(found.to_dict(prior), ensure_ascii=False) if as_json else found.in_words(prior)
        if plot is not None:
            import matplotlib.pyplot as plt

            figure, axes = plt.subplots(layout="constrained")
            found.plot(axes)
            figure.savefig(plot)
    if as_json:
        typer.echo(shown)
        return
    say(shown)
    if plot is not None:
        say(f"Plot: {plot}")
