"""``dpbandits serve``: a private bandit as a web service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpbandits._extras import need

__all__ = ["serve"]


def serve(
    config: Annotated[Path | None, typer.Argument(help="The service's TOML file; see the documentation.")] = None,
    demo: Annotated[bool, typer.Option("--demo", help="A service, a simulated crowd and the owner's page.")] = False,
    token: Annotated[bool, typer.Option("--token", help="Make a token, and its digest for the file.")] = False,
    only: Annotated[
        str | None, typer.Option(help="worker or learner: these processes alone, the others elsewhere.")
    ] = None,
    port: Annotated[int, typer.Option(help="Of the demo.")] = 8000,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: token and digest; or url, where it listens.")
    ] = False,
) -> None:
    """Serve a private bandit over HTTP: workers that decide, one learner that releases, a page for its owner.

    **dpbandits serve run.toml** starts what the file describes, and starts again whatever ends; **dpbandits serve
    --demo** shows all of it at once.
    """
    from dpkit.cli.options import print_json

    if token:
        import secrets

        from dpbandits.serve.config import digest

        made = secrets.token_urlsafe(32)
        if as_json:
            print_json({"token": made, "digest": digest(made)})
            return
        typer.echo(f"token (for whoever uses it):  {made}\ndigest (for the file):        {digest(made)}")
        return
    for module in ("pydantic", "uvicorn"):
        need(module, "dpbandits serve", "serve")
    if not 0 <= port <= 65535:
        raise ValueError(f"--port must lie in 0, …, 65535, got {port}")
    if demo:
        from dpbandits.serve.demo import demo as show

        show(port)
        return
    if config is None:
        raise ValueError("config must be given: dpbandits serve run.toml, or dpbandits serve --demo")
    from dpbandits.serve.supervise import Service

    if only not in (None, "worker", "learner"):
        raise ValueError(f"only must be worker or learner, got only={only!r}")
    service = Service(config, workers=0 if only == "learner" else None, learners=0 if only == "worker" else 1)
    if service.url:
        if as_json:
            print_json({"url": service.url})
        else:
            typer.echo(f"listening on {service.url}")
    service.run()
