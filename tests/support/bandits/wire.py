"""The network between a client and a server, in the hands of a test: it may hold what is sent, cut it off, or both.

Every connection is two threads that pass bytes on. ``at(b"COMMIT\\0")`` chooses the next piece from a client that holds
these bytes (on a connection that has sent others before); the test waits until it has come, and then lets it through
or not, and the connection live or not.
"""

import socket
import threading
from contextlib import contextmanager, suppress


class Held:
    """A piece on its way to the server, with the connection that it came on."""

    def __init__(self):
        self.come = threading.Event()
        self._go = threading.Event()
        self._through = False
        self._answered = False
        self._pair = None

    def wait(self):
        """Until it has come; the client now waits for an answer."""
        assert self.come.wait(60.0), "it must come"

    def cut_off_client(self):
        """The client sees a broken connection, whatever becomes of the piece."""
        _shut(self._pair[0])

    def go(self, *, through, answered):
        """Let it reach the server or not, and its answer the client or not; where not, the connection ends."""
        self._through, self._answered = through, answered
        self._go.set()

    def _decided(self, client, server):
        self._pair = client, server
        self.come.set()
        assert self._go.wait(60.0), "somebody must say what becomes of it"
        return self._through, self._answered


class Wire:
    """Listens on ``port``, and passes on to a server."""

    def __init__(self, target):
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._wanted = []
        self._open = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def at(self, what, *, after=b""):
        """Hold the next piece that holds these bytes, of a connection that has sent ``after``."""
        held = Held()
        with self._lock:
            self._wanted.append((what, after, held))
        return held

    def cut(self):
        """End all connections."""
        with self._lock:
            pairs = list(self._open)
        for pair in pairs:
            for one in pair:
                _shut(one)

    def close(self):
        self._listening.close()
        self.cut()

    def _accept(self):
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open.add((client, server))
            threading.Thread(target=self._upstream, args=(client, server), daemon=True).start()
            threading.Thread(target=self._downstream, args=(client, server), daemon=True).start()

    def _upstream(self, client, server):
        sent = b""
        try:
            while data := client.recv(65536):
                sent += data
                if (held := self._found(data, sent)) is not None:
                    through, answered = held._decided(client, server)
                    if not answered:
                        _shut(client)
                    if through:
                        server.sendall(data)
                    if not (through and answered):
                        break
                    continue
                server.sendall(data)
        except OSError:
            pass
        # the server reads to the end what was let through, and then sees that nobody is there
        _end(server, socket.SHUT_WR)

    def _downstream(self, client, server):
        try:
            while data := server.recv(65536):
                client.sendall(data)
        except OSError:
            pass
        _shut(client)
        server.close()
        with self._lock:
            self._open.discard((client, server))

    def _found(self, data, sent):
        with self._lock:
            for i, (what, after, held) in enumerate(self._wanted):
                if what in data and after in sent:
                    del self._wanted[i]
                    return held
        return None


def _end(one, way):
    with suppress(OSError):
        one.shutdown(way)


def _shut(one):
    _end(one, socket.SHUT_RDWR)


@contextmanager
def wired(server):
    """A wire to a PostgreSQL server of tests, and that server's address by it."""
    wire = Wire(server.port)
    try:
        yield wire, lambda url: url.replace(f":{server.port}/", f":{wire.port}/")
    finally:
        wire.close()
