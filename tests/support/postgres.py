"""A PostgreSQL server for tests: started on a free port, in a temporary folder, and stopped at the end."""

import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import accounting.postgres

# a machine that stands still for some seconds is no server that is gone
accounting.postgres._PATIENCE["connect_timeout"] = "120"

_CONFIGURATION = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
shared_buffers = 16MB
max_wal_senders = 0
wal_level = minimal
max_connections = 200
autovacuum = off
"""
# below those that a system gives to whoever connects: else a client that knocks while the server is away may be given
# the server's own port, and is then connected to itself, and the server cannot come back
_PORTS = range(20_000, 30_000)
_START = 120.0  # seconds
_names = itertools.count()


def binaries():
    """The folder of the server's programs, or None."""
    found = shutil.which("postgres")
    if found:
        return Path(found).resolve().parent
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    return places[-1] if places else None


def missing():
    """Why there can be no server, or None."""
    if os.name != "posix":
        return "these tests start a server on POSIX systems only"
    if binaries() is None:
        return "no PostgreSQL server is installed (Debian: apt-get install postgresql)"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed: dpkit[postgres]"
    return None


class Server:
    """One server; ``url()`` is the address of a schema that nobody has used."""

    @classmethod
    def known(cls, folder, port):
        """One that another process has started."""
        server = cls.__new__(cls)
        server.folder, server.port, server.process = Path(folder), port, None
        return server

    def __init__(self, folder, user):
        self.folder, self._user = Path(folder), user
        self.process = None
        self._run(
            "initdb",
            "-D",
            str(self.folder / "data"),
            "-U",
            "tests",
            "--auth=trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        )
        for _ in range(20):  # somebody else may take the port between the look and the start
            self.port = _free_port()
            with (self.folder / "data" / "postgresql.conf").open("a") as file:
                file.write(_CONFIGURATION.format(port=self.port))
            if self._started():
                return
        raise AssertionError(f"the server must start: {self._log()}")

    def _run(self, name, *arguments):
        command = [str(binaries() / name), *arguments]
        subprocess.run(command, check=True, capture_output=True, user=self._user, cwd="/")

    def start(self):
        """Again, where it was."""
        assert self._started(), self._log()

    def _started(self):
        with (self.folder / "log").open("ab") as log:
            command = [str(binaries() / "postgres"), "-D", str(self.folder / "data")]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, user=self._user, cwd="/")
        asked = [str(binaries() / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        end = time.monotonic() + _START
        while self.process.poll() is None and time.monotonic() < end:
            if subprocess.run(asked, check=False, cwd="/").returncode == 0 and self.process.poll() is None:
                return True
            time.sleep(0.02)
        self.stop()
        return False

    def _log(self):
        return (self.folder / "log").read_text()

    def kill(self):
        """Like a loss of power: nothing is written any more, and nothing of it is left running."""
        self.process.send_signal(signal.SIGSTOP)  # it starts no more children
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in [self.process.pid, *map(int, children)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        # as long as one of them has the shared memory, a new server refuses to start
        end = time.monotonic() + _START
        while any(_runs(pid) for pid in children):
            assert time.monotonic() < end, "what was killed must end"
            time.sleep(0.002)

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)  # at once
            self.process.wait(60)

    def url(self, schema=None):
        return (
            f"postgresql://tests@127.0.0.1:{self.port}/postgres?schema={schema or f'test_{os.getpid()}_{next(_names)}'}"
        )


def _free_port():
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def _runs(pid):
    """Whether a process has not ended; one that nobody has waited for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    """A server that runs, for all tests; the processes of pytest-xdist share it, and the last one stops it."""
    if reason := missing():
        pytest.skip(reason)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        with running() as server:
            yield server
        return
    shared = tmp_path_factory.getbasetemp().parent / "postgres.json"
    with _alone(shared):
        if shared.exists():
            known = json.loads(shared.read_text())
        else:
            server = running().__enter__()
            known = {"folder": str(server.folder), "port": server.port, "pid": server.process.pid, "users": 0}
        known["users"] += 1
        shared.write_text(json.dumps(known))
    yield Server.known(known["folder"], known["port"])
    with _alone(shared):
        known = json.loads(shared.read_text())
        known["users"] -= 1
        shared.write_text(json.dumps(known))
        if known["users"] == 0:
            os.kill(known["pid"], signal.SIGQUIT)
            shutil.rmtree(known["folder"], ignore_errors=True)
            shared.unlink()


@contextmanager
def _alone(path):
    import fcntl

    with open(f"{path}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(params=["file", "server"])
def new(request, tmp_path):
    """New paths of files, or addresses of schemas, by a name."""
    if request.param == "file":
        return lambda name="a": str(tmp_path / f"{name}.ledger")
    server, urls = request.getfixturevalue("postgres"), {}

    def url(name="a"):
        if name not in urls:
            urls[name] = server.url()
        return urls[name]

    return url


def on_server(server):
    """Service and ledger in new schemas of a PostgreSQL server."""
    return f'database = "{server.url()}"\nledger = "{server.url()}"'


@pytest.fixture(params=["file", "server"])
def storage(request):
    """Where database and ledger are: in files, or, one transaction for both, on a server. Anew for each call."""
    if request.param == "file":
        return lambda: ""
    server = request.getfixturevalue("postgres")
    return lambda: on_server(server)


class running:  # noqa: N801
    """A server of one's own."""

    def __enter__(self):
        if reason := missing():
            pytest.skip(reason)
        user = None
        if os.getuid() == 0:  # as which it does not run
            import pwd

            names = {one.pw_name for one in pwd.getpwall()}
            user = next(name for name in ("postgres", "nobody") if name in names)
        self._folder = tempfile.mkdtemp(prefix="postgres-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
        if user is not None:
            shutil.chown(self._folder, user)
        try:
            self._server = Server(self._folder, user)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self._server

    def __exit__(self, *_):
        self._server.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
