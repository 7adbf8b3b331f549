"""``dpkit epsilon``, ``calibrate`` and ``check``: what a description costs, needs, and whether a claim of it holds."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from dpkit.cli.options import print_json
from dpkit.cli.printing import accountant_name, pricing, print_accountants, print_table, refusals, say

if TYPE_CHECKING:
    from accounting import Adjacency, Release
    from dpkit.cli.claims import Claim

__all__ = ["HOW", "NAMES", "calibrate_command", "check_command", "epsilon_command", "verify_command"]

# What a description may call, so that help is shown without loading the accountants (a test compares the two).
NAMES = (
    "ApproxDP", "BestOfPoissonRuns", "BestOfRuns", "DiscreteGaussian", "DiscreteLaplace", "FixedSizeSubsampled",
    "Gaussian", "GeneralizedGaussian", "Laplace", "LocalShuffled", "NoisyMax", "ObjectivePerturbation",
    "PoissonSubsampled", "PureDP", "RandomAllocated", "RandomizedResponse", "ShuffledBinomial", "TreeAggregation",
    "UnaryEncoding", "ZCDP", "parallel",
)  # fmt: skip

HOW = (
    "A DESCRIPTION is a sum of releases, each with its noise relative to the sensitivity, written as in Python:\n\n"
    "'1000 * Gaussian(2.0) + PureDP(0.1)'\n\n"
    "'TreeAggregation(5.0, steps=1023) + 12 * Laplace(20.0)'\n\n"
    "'10000 * PoissonSubsampled(Gaussian(1.0), rate=0.01)'\n\n"
    "'parallel(Laplace(1.0), Laplace(2.0))'\n\n"
    f"The names are {', '.join(NAMES)}."
)


def epsilon_command(
    delta: Annotated[float, typer.Option(help="The δ at which ε is stated; 0 asks for pure DP.")],
    description: Annotated[str | None, typer.Argument(help="What is released, as text; see below.")] = None,
    gaussian: Annotated[
        list[float] | None,
        typer.Option(help="Gaussian noise: its standard deviation over the L2 sensitivity. Repeat it for several."),
    ] = None,
    laplace: Annotated[
        list[float] | None, typer.Option(help="Laplace noise: its scale over the L1 sensitivity. Repeatable.")
    ] = None,
    subsampled: Annotated[
        list[float] | None, typer.Option(help="Gaussian noise on a Poisson sample of --rate. Repeatable.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="The sampling rate of --subsampled.")] = None,
    tree: Annotated[
        list[float] | None,
        typer.Option(help="Running sums over --steps by a binary tree: the noise of a node. Repeatable."),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="The length of the stream of --tree.")] = None,
    pure: Annotated[list[float] | None, typer.Option(help="Any mechanism of this pure ε. Repeatable.")] = None,
    count: Annotated[int, typer.Option(help="How many times all of it is released.")] = 1,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object: description, epsilon, delta, accountant, accountants."),
    ] = False,
    certificate: Annotated[
        Path | None,
        typer.Option(help="Write a certificate of both ends of ε to this file, which dpkit verify checks."),
    ] = None,
) -> None:
    """Show the ε of a description at a δ, under every accountant that applies.

    What is given as text and by options is released together, --count times.

    dpkit epsilon --gaussian 2.0 --count 1000 --delta 1e-6

    dpkit epsilon "10000 * PoissonSubsampled(Gaussian(1.0), 1e-3)" --delta 1e-6 --certificate run.json
    """
    with refusals():
        from accounting import Gaussian, Laplace, PoissonSubsampled, PureDP, compare
        from accounting.releases import Composed, TreeAggregation
        from dpkit.cli.expression import Expression

        parts: list[Release] = [] if description is None else [Expression(description)()]
        parts += [Gaussian(z) for z in gaussian or ()]
        parts += [Laplace(z) for z in laplace or ()]
        for z in subsampled or ():
            if rate is None:
                raise ValueError("--subsampled needs --rate")
            parts.append(PoissonSubsampled(Gaussian(z), rate))
        for z in tree or ():
            if steps is None:
                raise ValueError("--tree needs --steps")
            parts.append(TreeAggregation(z, steps))
        parts += [PureDP(value) for value in pure or ()]
        if not parts:
            raise ValueError("nothing is released: give a DESCRIPTION or an option such as --gaussian 2.0")
        release = count * sum(parts, start=Composed())
        found = compare(release, delta)
        if certificate is not None:
            from accounting import certify

            certify(release, delta).save(certificate)
    if as_json:
        print_json(_facts(release, found, delta))
        return
    print_accountants(release, found, delta)


def calibrate_command(
    description: Annotated[
        str, typer.Argument(help="What is released, as text, with z for the noise multiplier to be found; see below.")
    ],
    epsilon: Annotated[float, typer.Option(help="The ε that may be spent.")],
    delta: Annotated[float, typer.Option(help="The δ that may be spent.")],
    adjacency: Annotated[
        str | None,
        typer.Option(
            help="How two neighbouring inputs differ: replace, add_remove or zero_out. By default as the description "
            "says, or else replace."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: noise_multiplier, and as dpkit epsilon does.")
    ] = False,
) -> None:
    """Find the smallest noise multiplier z with which a description meets a budget.

    dpkit calibrate "100 * Gaussian(z)" --epsilon 1 --delta 1e-6

    dpkit calibrate "1000 * PoissonSubsampled(Gaussian(z), 0.01)" --epsilon 1 --delta 1e-6
    """
    with refusals():
        from accounting import Budget, calibrate, compare
        from dpkit.cli.expression import Expression

        make = Expression(description)
        if not make.has_unknown:
            raise ValueError("the description must contain z, the noise multiplier to be found: 'Gaussian(z)', say")
        neighbours = cast("Adjacency", adjacency or make(8.0).adjacency or "replace")  # at z where calibrate begins
        budget = Budget(epsilon, delta, adjacency=neighbours)
        z = calibrate(make, budget)
        found = compare(make(z), delta)
    if as_json:
        print_json({"noise_multiplier": z, **_facts(make(z), found, delta)})
        return
    say(f"z = {z!r}")
    say(f"Neighbours: {neighbours}.")
    print_accountants(make(z), found, delta)


def check_command(
    description: Annotated[str, typer.Argument(help="What is said to be released; see below.")],
    epsilon: Annotated[float, typer.Option(help="The ε that is claimed.")],
    delta: Annotated[float, typer.Option(help="The δ that is claimed.")],
    adjacency: Annotated[
        str | None, typer.Option(help="The neighbours that are claimed: replace, add_remove or zero_out.")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON object: verdict (holds, is false, is not proved), claim, and as dpkit epsilon does; "
            "neighbours, at_least. Of words: verdict, claim, and ways, one for each way to make batches.",
        ),
    ] = False,
) -> None:
    """Say whether a claimed (ε, δ) holds for a description, for which neighbours, and by which accountant.

    A run of DP-SGD may be described in words. There is a row for each way in which its batches may have been made.

    Exit status: 0 if the claim holds, 1 if it is false or nothing here proves it, 2 if the question is not understood.

    A run in words must hold in every row of the way of making batches that it names, or else in all rows.

    --adjacency leaves only the rows of these neighbours.

    dpkit check "1000 * PoissonSubsampled(Gaussian(1.1), 0.01)" --epsilon 3 --delta 1e-5

    dpkit check "DP-SGD, noise 1.1, batch 256 of 60,000, 60 epochs, shuffled" --epsilon 3 --delta 1e-5
    """
    with refusals():
        from dpkit.cli.claims import read_claim

        claim = read_claim(description)
    if claim is not None:
        _check_words(claim, epsilon, delta, adjacency, as_json)
        return
    with refusals():
        from accounting import Budget, UnsupportedRelease, compare
        from accounting import epsilon as least_epsilon
        from accounting.calibration import check_budget_adjacency
        from accounting.notions.gdp import is_exact
        from dpkit.cli.expression import Expression

        release = Expression(description)()
        if adjacency is not None:
            check_budget_adjacency(release, Budget(epsilon, delta, adjacency=cast("Adjacency", adjacency)))
        Budget(epsilon, delta)  # which checks the figures
        found = compare(release, delta)
    best = min(found, key=found.__getitem__)
    holds = found[best] <= epsilon
    if as_json:
        false = not holds and (is_exact(release) or found.at_least > epsilon)
        facts = _facts(release, found, delta)
        facts |= {"at_least": found.at_least, "neighbours": release.adjacency or adjacency}
        verdict = "holds" if holds else "is false" if false else "is not proved"
        print_json({"verdict": verdict, "claim": {"epsilon": epsilon, "delta": delta}, **facts})
        if not holds:
            raise typer.Exit(1)
        return
    say(f"{release!r}")
    if holds:
        say(f"The claim ({epsilon:g}, {delta:g}) holds, by {accountant_name(best)}.", style="bold green")
    elif is_exact(release):
        say(f"The claim ({epsilon:g}, {delta:g}) is false: {accountant_name(best)} is exact here.", style="bold red")
    elif (least := found.at_least) > epsilon:
        say(f"The claim ({epsilon:g}, {delta:g}) is false: it takes at least ε = {least:.6g}.", style="bold red")
    else:
        say(f"The claim ({epsilon:g}, {delta:g}) is not proved by any accountant here.", style="bold red")
    stated = release.adjacency
    if stated is None:
        stated = cast("Adjacency | None", adjacency)
    if stated is None:
        say("Neighbours: those for which the noise was measured against the sensitivity; the description states none.")
    else:
        say(f"Neighbours: {stated}.")
    swapped = _swapped(release) if stated == "add_remove" else None
    if swapped is not None:
        try:
            value = least_epsilon(swapped, delta)
            verdict = "holds" if value <= epsilon else "is not proved"
            say(f"For replace, the same mechanism has ε = {value:.6g}: there the claim {verdict}.")
        except UnsupportedRelease:
            pass
    print_accountants(None, found, delta)
    if not holds:
        raise typer.Exit(1)


def verify_command(
    certificate: Annotated[Path, typer.Argument(help="A certificate, as dpkit epsilon --certificate writes it.")],
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object: accepted, reason, epsilon, at_least, delta, at_upper, at_lower."
        ),
    ] = False,
) -> None:
    """Prove the claim of a certificate again, in ball arithmetic and without the accountants.

    Exit status: 0 if all that is claimed is proved, 1 if not, 2 if the file is no certificate. Needs python-flint.

    dpkit verify run.json
    """
    with refusals():
        from accounting import Certificate

        claim = Certificate.load(certificate)
        try:
            from accounting import verify
        except ImportError as error:
            raise RuntimeError(str(error)) from None
        verdict = verify(claim)
    if as_json:
        facts = {"accepted": verdict.accepted, "reason": verdict.reason, "epsilon": claim.upper}
        facts |= {"at_least": claim.lower, "delta": claim.delta}
        print_json({**facts, "at_upper": verdict.at_upper, "at_lower": verdict.at_lower})
    else:
        say(f"{claim.release!r}")
        least = "" if claim.lower is None else f", and not for less than {claim.lower:.9g}"
        say(f"Claimed: ε = {claim.upper:.9g} at δ = {claim.delta:g}{least}.")
        word, style = ("Accepted", "bold green") if verdict else ("Refused", "bold red")
        say(f"{word}: {verdict.reason}.", style=style)
    if not verdict:
        raise typer.Exit(1)


def _facts(release: Release, found: dict[str, float], delta: float) -> dict[str, Any]:
    """ε by every accountant, the smallest first."""
    by_size = dict(sorted(found.items(), key=lambda one: one[1]))
    best = next(iter(by_size))
    return {
        "description": repr(release), "epsilon": by_size[best], "delta": delta, "accountant": best,
        "accountants": by_size,
    }  # fmt: skip


def _check_words(claim: Claim, epsilon: float, delta: float, adjacency: str | None, as_json: bool) -> None:
    """A table of all ways to make batches; the exit status is that of all rows that the claim means.

    These are the rows of the way that it names and of the neighbours that are claimed; of all where it does not say.
    """
    with refusals():
        from accounting import Budget, bound
        from accounting import epsilon as least_epsilon

        Budget(epsilon, delta, adjacency=cast("Adjacency", adjacency or "replace"))
        figures: list[tuple[str, str, float, float, str]] = []
        verdicts = {}
        for way in claim.ways():
            if adjacency not in (None, way.adjacency):
                continue
            with pricing(f"{way.said}, {way.adjacency}"), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # the table shows both ends
                known = bound(way.least, delta)
                least = float(known.lower)
                most = float(known.upper if way.cost is way.least else least_epsilon(way.cost, delta))
            verdict = "holds" if most <= epsilon else "is false" if least > epsilon else "is not proved"
            figures.append((way.said, way.adjacency, least, most, verdict))
            verdicts[way.sampling, way.adjacency] = verdict
    named = {key: verdict for key, verdict in verdicts.items() if claim.sampling in (None, key[0])}
    proved = set(named.values()) == {"holds"}
    if as_json:
        parts = ("batches", "neighbours", "at_least", "at_most", "claim")
        ways = [dict(zip(parts, row, strict=True)) for row in figures]
        claimed = {"epsilon": epsilon, "delta": delta}
        false = "is false" in named.values()
        found = "holds" if proved else "is false" if false else "is not proved"
        print_json({"verdict": found, "claim": claimed, "ways": ways})
        if not proved:
            raise typer.Exit(1)
        return
    say(
        f"DP-SGD: noise {claim.noise:g} × the clip norm, batches of {claim.batch:,} of {claim.rows:,}, "
        f"{claim.steps:,} steps. The claim is ({epsilon:g}, {delta:g}), by how batches were made:"
    )
    print_table(
        [("batches", "left"), ("neighbours", "left"), ("ε at least", "right"), ("at most", "right"), ("claim", "left")],
        [(said, whose, f"{least:.4g}", f"{most:.4g}", verdict) for said, whose, least, most, verdict in figures],
    )
    say("Balls in bins: each unit in one batch of every epoch, independently of the others. Shuffled batches of one")
    say("size are neither that nor Poisson samples, and have no price that is proved but one release for every epoch.")
    if any(whose == "zero_out" for _, whose, *_ in figures):
        say("zero_out: one row's contribution is null, or not; the number of rows is public.")
    if not named:
        say(f"For {adjacency} nothing is known of {claim.ways()[-1].said}.", style="bold red")
        raise typer.Exit(1)
    if claim.sampling is not None:
        said = next(way.said for way in claim.ways() if way.sampling == claim.sampling)
        found = "; ".join(f"under {whose} the claim {verdict}" for (_, whose), verdict in named.items())
        say(f"You said {said}: {found}.", style="bold green" if proved else "bold red")
    held = [whose for (_, whose), verdict in named.items() if verdict == "holds"]
    if claim.sampling is not None and held and not proved:
        say(f"A claim for {' and '.join(held)} alone, which holds, is asked for by --adjacency {held[0]}.")
    if not proved:
        raise typer.Exit(1)


def _swapped(release: Release) -> Release | None:
    """The same sampled mechanism for neighbours of which one unit is swapped; None if there is none."""
    from accounting import Gaussian, PoissonSubsampled, RandomAllocated
    from accounting.releases import Composed, compose

    parts = release.parts if isinstance(release, Composed) else ((release, 1),)
    terms = []
    for part, count in parts:
        if not isinstance(part, PoissonSubsampled | RandomAllocated) or not isinstance(part.release, Gaussian):
            return None
        terms.append((replace(part, adjacency="replace"), count))
    return compose(terms)
