"""One process of a service: ``python -m dpbandits.serve worker run.toml --fd 3``, or ``learner run.toml``."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any

from dpbandits.serve.config import Config
from dpbandits.serve.database import Mismatch
from dpbandits.serve.supervise import MISFIT

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Be a worker on a socket that is open already, or a learner."""
    logging.basicConfig(level=logging.WARNING, format=f"%(levelname)s {arguments[0]} {os.getpid()}: %(message)s")
    logging.getLogger("dpbandits.serve").setLevel(logging.INFO)
    _end_with_parent()
    try:
        config = Config.read(arguments[1])
    except (ValueError, OSError) as error:  # of the file, which holds no data
        print(f"{arguments[0]}: {error}", file=sys.stderr, flush=True)
        sys.exit(MISFIT)
    if arguments[0] == "worker":
        worker(config, socket.socket(fileno=int(arguments[3])))
    else:
        learner(config)


def worker(config: Config, listening: socket.socket) -> None:
    """Answer requests until a signal."""
    import uvicorn

    from dpbandits.serve.app import create
    from dpbandits.serve.store import Store

    # commits are made by a thread of its own, which must not wait long for the one that computes
    sys.setswitchinterval(0.0005)
    try:
        Store(config.database).close()
    except Mismatch as error:
        print(f"worker: {error}", file=sys.stderr, flush=True)
        sys.exit(MISFIT)
    except OSError:
        pass  # it may come back
    app = create(config)
    # no collection of garbage looks through what is there for good, which takes as long as a hundred requests do
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)  # of what a request leaves behind, hardly anything is in a circle
    # nothing but warnings, and no line per request: paths and times are enough to recognise a person. Who a proxy says
    # that the client is plays no part
    quiet: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False, "proxy_headers": False}
    uvicorn.Server(uvicorn.Config(app, lifespan="on", ws="none", **quiet)).run(sockets=[listening])


def learner(config: Config) -> None:
    """Learn until a signal; an error's type and place are logged, and not its message, which may hold values."""
    from dpbandits.serve.learner import learn

    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    try:
        learn(config, stop)
    except Mismatch as error:
        print(f"learner: {error}", file=sys.stderr, flush=True)
        sys.exit(MISFIT)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        sys.exit(f"learner: {type(error).__name__} in {os.path.basename(place.filename)}, line {place.lineno}")


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
