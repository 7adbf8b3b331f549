"""``dpbandits serve``: a private bandit as a web service, and what its operator does to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpbandits._extras import need
from dpbandits.cli.refusals import Command, Commands

if TYPE_CHECKING:
    from dpbandits.serve.config import Config

__all__ = ["serve"]


class _Serve(Commands):
    """``dpbandits serve run.toml`` starts; what is no command is the file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read ``start`` where no command is named."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["start", *args]
        return super().parse_args(ctx, args)


serve = typer.Typer(
    cls=_Serve,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Serve a private bandit over HTTP: workers that decide, one learner that releases, a page for its owner.\n\n"
    "**dpbandits serve init run.toml** begins a run, once; **dpbandits serve run.toml** starts what the file "
    "describes, as often as needed; **dpbandits serve --demo** shows all of it at once.",
)

_Run = Annotated[str | None, typer.Option(metavar="NAME", help="Where the file describes many runs: which.")]
_File = Annotated[Path, typer.Argument(metavar="CONFIG", help="The service's TOML file.")]
_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object: well (true or false), said.")]


@serve.command(cls=Command)
def start(
    config: Annotated[Path | None, typer.Argument(help="The service's TOML file; see the documentation.")] = None,
    demo: Annotated[bool, typer.Option("--demo", help="A service, a simulated crowd and the owner's page.")] = False,
    pages: Annotated[bool, typer.Option("--pages", help="In the demo: pages of three articles, with clicks.")] = False,
    token: Annotated[bool, typer.Option("--token", help="Make a token, and its digest for the file.")] = False,
    only: Annotated[
        str | None, typer.Option(help="worker or learner: these processes alone, the others elsewhere.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Of the demo, by default 8000; a file says its own.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: token and digest; or url, where it listens.")
    ] = False,
) -> None:
    """Start what the file describes, and start again whatever ends; the word **start** may be left out.

    It makes neither ledger nor database: **dpbandits serve init** does. A process that ends by an error again and again
    is given up, and the service with it, with exit status 1.
    """
    from dpkit.cli.options import print_json

    if token:
        import secrets

        from dpbandits.serve.clients import digest

        made = secrets.token_urlsafe(32)
        if as_json:
            print_json({"token": made, "digest": digest(made)})
            return
        typer.echo(f"token (for whoever uses it):  {made}\ndigest (for the file):        {digest(made)}")
        return
    for module in ("pydantic", "uvicorn"):
        need(module, "dpbandits serve", "serve")
    if port is not None and not 0 <= port <= 65535:
        raise ValueError(f"--port must lie in 0, …, 65535, got {port}")
    if demo:
        from dpbandits.serve.demo import demo as show

        show(8000 if port is None else port, pages=pages)
        return
    if config is None:
        raise ValueError("config must be given: dpbandits serve run.toml, or dpbandits serve --demo")
    if port is not None or pages:
        told = f"port = {port} under [service]" if port is not None else "a policy with slots"
        raise ValueError(f"--port and --pages are the demo's: {config} describes its own service, write {told} in it")
    from dpbandits.serve.many.group import Group, read_any
    from dpbandits.serve.store import Store
    from dpbandits.serve.supervise import Service

    if only not in (None, "worker", "learner"):
        raise ValueError(f"only must be worker or learner, got only={only!r}")
    read = read_any(config)
    if isinstance(read, Group):
        read.check()
        read.open_ledger().close()
    else:
        with suppress(OSError):  # a database that is away may come back; one that is not there is no new run
            Store(read.database).close()
    service = Service(config, workers=0 if only == "learner" else None, learners=0 if only == "worker" else None)
    if service.url:
        if as_json:
            print_json({"url": service.url})
        else:
            typer.echo(f"listening on {service.url}")
    service.run()
    if service.failed:
        typer.echo(f"given up: {service.failed}", err=True)
        raise typer.Exit(1)


@serve.command(cls=Command)
def init(
    config: _File,
    adopt: Annotated[bool, typer.Option("--adopt", help="Take over a run of an earlier release instead.")] = False,
    as_json: _AsJson = False,
) -> None:
    """Begin a run, once: charge the ledger, make the learner's first state and the database.

    Run it where the learner's disk is. Nothing else makes any of these, so that a volume that is not mounted is not a
    new run with its whole budget. Where the file describes many runs, it makes their ledger and their folder.
    """
    from dpbandits.serve import operate
    from dpbandits.serve.many.group import Group, read_any

    found = read_any(config)
    if isinstance(found, Group):
        _say(found.adopt() if adopt else found.init(), as_json)
    else:
        _say(operate.adopt(found) if adopt else operate.init(found, actor=_user()), as_json)


@serve.command(cls=Command)
def doctor(config: _File, run: _Run = None, as_json: _AsJson = False) -> None:
    """Look at everything, and say what is wrong and which command mends it; exit status 1 if something is.

    Where the file describes many runs, it looks at all of them, or at one.
    """
    from dpbandits.serve import operate
    from dpbandits.serve.many.group import Group, read_any

    found = read_any(config)
    if isinstance(found, Group) and run is None:
        well, lines = found.doctor()
    else:
        well, lines = operate.doctor(_one(config, run))
    _say(lines, as_json, well=well)
    if not well:
        raise typer.Exit(1)


@serve.command(cls=Command)
def restore(
    config: _File,
    burn: Annotated[
        bool, typer.Option("--burn", help="End the run where its newest state is lost; its releases stay charged.")
    ] = False,
    run: _Run = None,
    as_json: _AsJson = False,
) -> None:
    """Put a service right whose ledger, database or learner went back; with the service stopped.

    What was released stays charged, and no data that were released are released again. One of many runs is put right
    while the others go on.
    """
    from dpbandits.serve import operate

    with _alone(config, run) as found:
        _say(operate.restore(found, burn=burn), as_json)


@serve.command(cls=Command)
def close(config: _File, run: _Run = None, as_json: _AsJson = False) -> None:
    """End a run for good: the last release, if one is due, then all raw data are erased; with the learner stopped.

    One of many runs is ended while the others go on.
    """
    from dpbandits.serve import operate

    with _alone(config, run) as found:
        _say(operate.close(found), as_json)


@serve.command(cls=Command)
def erase(
    config: _File,
    person: Annotated[str, typer.Argument(help="Whose rounds, as they were sent.")],
    run: _Run = None,
    as_json: _AsJson = False,
) -> None:
    """Erase what is kept of a person; with the learner stopped. What was released stays, and it says so.

    In one of many runs it is done while the service runs.
    """
    from dpbandits.serve import operate

    with _alone(config, run) as found:
        _say(operate.erase(found, person), as_json)


def _user() -> str | None:
    """Whoever runs the command, for the ledger; None where the system does not say."""
    import getpass

    try:
        return f"user {getpass.getuser()}"
    except (KeyError, OSError):
        return None


def _one(path: Path, run: str | None) -> Config:
    """The run of a file, or one of many."""
    from dpbandits.serve.many.group import Group, read_any

    found = read_any(path)
    if isinstance(found, Group):
        if run is None:
            raise ValueError(f"--run must name a run, as {path} describes many: one of {', '.join(found.names())}")
        return found.config(run)
    if run is not None:
        raise ValueError(f"--run must be left out, as {path} describes one run, got --run {run}")
    return found


@contextmanager
def _alone(path: Path, run: str | None) -> Iterator[Config]:
    """A run to work on; from one of many its learner keeps away meanwhile."""
    from dpbandits.serve.many.group import Group, read_any

    found = read_any(path)
    if isinstance(found, Group) and run is not None:
        with found.alone(run) as config:
            yield config
    else:
        yield _one(path, run)


def _say(lines: list[str], as_json: bool, *, well: bool = True) -> None:
    from dpkit.cli.options import print_json

    if as_json:
        print_json({"well": well, "said": lines})
        return
    for line in lines:
        typer.echo(line)
