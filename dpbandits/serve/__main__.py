"""One process of a service: ``python -m dpbandits.serve worker run.toml --fd 3``, or ``learner run.toml``.

Of a group of runs a learner process has a place among the others, and a name for its leases: ``--place 0 --holder …``.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

from dpbandits.serve.admin import report
from dpbandits.serve.config import Config
from dpbandits.serve.database import Mismatch
from dpbandits.serve.edge import JsonLines, Repeated, failed_at
from dpbandits.serve.many.group import Group, read_any
from dpbandits.serve.metrics import configure_traces
from dpbandits.serve.supervise import MISFIT

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Be a worker on a socket that is open already, or a learner."""
    logging.basicConfig(level=logging.WARNING, format=f"%(levelname)s {arguments[0]} {os.getpid()}: %(message)s")
    logging.getLogger("dpbandits.serve").setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.addFilter(Repeated())
    _end_with_parent()
    try:
        config = read_any(arguments[1])
    except (ValueError, OSError) as error:  # of the file, which holds no data
        print(f"{arguments[0]}: {error}", file=sys.stderr, flush=True)
        sys.exit(MISFIT)
    if config.log == "json":
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonLines(arguments[0], traces=config.traces))
    given = dict(zip(arguments[2::2], arguments[3::2], strict=True))
    board = int(given["--board"]) if "--board" in given else None
    if arguments[0] == "worker":
        worker(config, socket.socket(fileno=int(given["--fd"])), board)
    else:
        learner(config, board, int(given.get("--place", 0)), given.get("--holder", ""))


def worker(config: Config | Group, listening: socket.socket, board: int | None = None) -> None:
    """Answer requests until a signal."""
    import uvicorn

    from dpbandits.serve.app import create
    from dpbandits.serve.store import Store

    # commits are made by a thread of its own, which must not wait long for the one that computes
    sys.setswitchinterval(0.0005)
    try:
        if isinstance(config, Group):
            config.check()
        else:
            Store(config.database).close()
    except Mismatch as error:
        print(f"worker: {error}", file=sys.stderr, flush=True)
        sys.exit(MISFIT)
    except OSError:
        pass  # it may come back
    if config.traces:
        configure_traces()
    connections: set[Any] = set()
    app = create(config, connections=connections, board=board)
    # no collection of garbage looks through what is there for good, which takes as long as a hundred requests do
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)  # of what a request leaves behind, hardly anything is in a circle
    # nothing but warnings, and no line per request: paths and times are enough to recognise a person. Who a proxy says
    # that the client is plays no part
    quiet: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False, "proxy_headers": False}
    # a head of at most 16 KiB; whoever is being answered when the end comes has two seconds
    small: dict[str, Any] = {"http": "h11", "h11_max_incomplete_event_size": 2**14, "timeout_graceful_shutdown": 2}
    server = uvicorn.Server(uvicorn.Config(app, lifespan="on", ws="none", **quiet, **small))
    server.server_state.connections = connections
    server.run(sockets=[listening])


def learner(config: Config | Group, board: int | None = None, place: int = 0, holder: str = "") -> None:
    """Learn until a signal; an error's type and place are logged, and not its message, which may hold values."""
    from dpbandits.serve.learner import learn
    from dpbandits.serve.many.pool import learn_many

    stop, gauges = threading.Event(), dict[str, float]()
    if board is not None:
        report(board, lambda: {"gauges": dict(gauges)})
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    try:
        if isinstance(config, Group):
            learn_many(config, place, holder, stop, gauges)
        else:
            learn(config, stop, gauges)
    except Mismatch as error:
        print(f"learner: {error}", file=sys.stderr, flush=True)
        sys.exit(MISFIT)
    except Exception as error:
        sys.exit(f"learner: {failed_at(error)}")


def _end_with_parent() -> None:
    """A service whose supervisor was killed leaves no process behind."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
