"""All processes of a service on one machine: workers on one socket, a learner; whoever ends is started again."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from dpbandits.serve.admin import Admin, Board, listening
from dpbandits.serve.many.group import Group, read_any

__all__ = ["MISFIT", "Service"]

# seconds: between looks at the processes, between two starts of one, and for an orderly end
_LOOK, _AGAIN, _END = 0.2, 1.0, 2.8
# the matrices of a decision are small: a BLAS with threads of its own only takes cores from the other processes
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# the exit status of a process that refused what is on disk, which seldom mends itself
MISFIT = 78
# how often in a row a process may end by an error, or refuse, before all give up; who lived longer begins to count anew
_ERRORS, _REFUSALS, _LIVED = 10, 3, 30.0


class Service:
    """The processes of ``run.toml``, of one run or of many.

    Parameters
    ----------
    path : path
        The configuration.
    workers, learners : int, optional
        How many processes of each; by default as the file says.

    Attributes
    ----------
    url, admin_url : str
        Where it answers, and where to monitoring.
    failed : str
        Why the service has given up; empty if it has not.
    """

    def __init__(self, path: str | Path, *, workers: int | None = None, learners: int | None = None) -> None:
        self._path = Path(path).absolute()
        config = read_any(self._path)
        count = config.workers if workers is None else workers
        most = config.learners if isinstance(config, Group) else 1
        self._roles = ["worker"] * count + ["learner"] * (most if learners is None else learners)
        # by which a learner's process goes on with the runs of the one in whose place it is started
        self._holder = secrets.token_hex(12)
        self._socket: socket.socket | None = None
        self.url = self.admin_url = ""
        if count:
            self._socket = listening(config.host, config.port, backlog=1024)
            host = f"[{config.host}]" if ":" in config.host else config.host
            self.url = f"http://{host}:{self._socket.getsockname()[1]}"
        self._board = Board()
        self._admin: Admin | None = None
        if config.admin is not None:
            self._admin = Admin(self._board, config.host, config.admin, config.callers())
            self.admin_url = self._admin.url
        self._running: list[subprocess.Popen[bytes] | None] = [None] * len(self._roles)
        self._begun = [-_AGAIN] * len(self._roles)
        self._errors = [0] * len(self._roles)
        self.failed = ""
        self._stopped = threading.Event()

    def run(self) -> None:
        """Keep all processes running until :meth:`stop`, a signal, or one of them ends by an error again and again."""
        if threading.current_thread() is threading.main_thread():
            for name in (signal.SIGTERM, signal.SIGINT):
                signal.signal(name, lambda *_: self.stop())
        try:
            while not self._stopped.is_set():
                self.look()
                self._stopped.wait(_LOOK)
        finally:
            self._end()

    def stop(self) -> None:
        """End all processes, in order; ``run`` returns then."""
        self._stopped.set()

    def processes(self, role: str) -> list[int]:
        """The ids of the running processes of a role."""
        pairs = zip(self._roles, self._running, strict=True)
        return [one.pid for kind, one in pairs if kind == role and one is not None and one.poll() is None]

    def look(self) -> None:
        """Start whatever does not run, unless it has been started a moment ago; give up what ends again and again."""
        for i, one in enumerate(self._running):
            ended = None if one is None else one.poll()
            now = time.monotonic()
            if not (one is None or ended is not None) or now < self._begun[i] + _AGAIN:
                continue
            if ended is not None and ended > 0:  # not by a signal
                self._errors[i] = 1 if now > self._begun[i] + _LIVED else self._errors[i] + 1
                if self._errors[i] >= (_REFUSALS if ended == MISFIT else _ERRORS):
                    self.failed = (
                        f"the {self._roles[i]} has ended {self._errors[i]} times in a row with status {ended}, and "
                        f"says why above; `dpbandits serve doctor {self._path}` looks at everything"
                    )
                    self.stop()
                    return
            self._begun[i] = now
            self._running[i] = self.start(self._roles[i], i)

    def start(self, role: str, place: int = 0) -> subprocess.Popen[bytes]:
        """Begin a process."""
        command = [sys.executable, "-m", "dpbandits.serve", role, str(self._path)]
        fds: list[int] = []
        if self._admin is not None:
            fds.append(self._board.begin(place, role))
            command += ["--board", str(fds[0])]
        if role == "worker" and self._socket is not None:
            fds.append(self._socket.fileno())
            command += ["--fd", str(fds[-1])]
        if role == "learner":
            number = place - self._roles.index("learner") if "learner" in self._roles else 0
            command += ["--place", str(number), "--holder", f"{self._holder}{number:03d}"]
        # where a signal from the terminal goes to the whole group, the supervisor passes it on, once
        started = subprocess.Popen(command, pass_fds=fds, start_new_session=True, env=_ONE_THREAD | os.environ)
        if self._admin is not None:
            os.close(fds[0])
        return started

    def _end(self) -> None:
        alive = [one for one in self._running if one is not None and one.poll() is None]
        for one in alive:
            one.terminate()
        limit = time.monotonic() + _END
        for one in alive:
            try:
                one.wait(max(0.1, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
        if self._socket is not None:
            self._socket.close()
        if self._admin is not None:
            self._admin.close()
