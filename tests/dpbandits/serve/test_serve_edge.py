"""What strangers may hold of a service before they have shown a token, and what clients may take of it."""

import asyncio
import json
import logging
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import numpy as np
import pytest
from serving import TOKENS, Clock, begun, configured, served, wait_until, written

from dpbandits.serve import admin, edge
from dpbandits.serve.admin import Board
from dpbandits.serve.client import Client
from dpbandits.serve.clients import Callers, digest
from dpbandits.serve.clients import Client as Named
from dpbandits.serve.config import Config
from dpbandits.serve.edge import Bodies, Gone, Rates, Repeated, watch
from dpbandits.serve.messages import Refusal
from dpbandits.serve.metrics import BOUNDS
from dpbandits.serve.supervise import Service

ARMS = np.eye(3).tolist()
OWNER = {"owner": Named("owner", frozenset([digest(TOKENS["owner"])]), frozenset(["own"]))}


def ipv6():
    """Whether this machine speaks it."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not ipv6(), reason="this machine has no IPv6")


def told(*messages):
    """A connection that says these, and then nothing."""
    left = list(messages)

    async def receive():
        if left:
            return left.pop(0)
        await asyncio.sleep(60)

    return receive


class Hurried(asyncio.SelectorEventLoop):
    """Nobody waits: where nothing is left to do, its clock goes on to the next timer."""

    def __init__(self):
        super().__init__()
        self.now, select = 0.0, self._selector.select

        def at_once(timeout):
            self.now += timeout or 0.0
            return select(0)

        self._selector.select = at_once

    def time(self):
        return self.now


@pytest.fixture
def hurried(monkeypatch):
    """As ``asyncio.run``."""
    with asyncio.Runner(loop_factory=Hurried) as runner:
        monkeypatch.setattr(edge, "time", SimpleNamespace(monotonic=runner.get_loop().time))
        yield runner.run


def part(content, more=True):
    return {"type": "http.request", "body": content, "more_body": more}


def test_a_body_is_read_within_its_bounds_or_refused(hurried):
    bodies = Bodies(most=10, together=15, seconds=0.05)
    assert hurried(bodies.read(told(part(b"12345"), part(b"67890", more=False)))) == b"1234567890"
    for messages, status in (([part(b"x" * 11)], 413), ([part(b"12345")], 408)):
        with pytest.raises(Refusal) as refused:
            hurried(bodies.read(told(*messages)))
        assert refused.value.status == status
        assert refused.value.headers["connection"] == "close"
    with pytest.raises(Gone):
        hurried(bodies.read(told(part(b"1"), {"type": "http.disconnect"})))

    async def two():
        return await asyncio.gather(*(bodies.read(told(part(b"x" * 8))) for _ in range(2)), return_exceptions=True)

    assert sorted(error.status for error in hurried(two())) == [408, 503]
    # all of it was given back
    assert hurried(bodies.read(told(part(b"x" * 10, more=False)))) == b"x" * 10


def test_rates_are_per_client_and_come_back_with_time():
    clock = Clock(0.0)
    rates = Rates(120.0, 2, clock)  # of two workers
    a, b, slow = (named(name, one) for name, one in (("a", None), ("b", None), ("slow", 4.0)))
    rates.take(a, 60)
    rates.take(b, 60)
    with pytest.raises(Refusal, match="decisions of this minute") as refused:
        rates.take(a, 10)
    assert refused.value.status == 429
    assert 10 <= int(refused.value.headers["retry-after"]) <= 11
    clock.now = 10.0
    rates.take(a, 10)
    with pytest.raises(Refusal, match="in smaller requests"):
        rates.take(a, 61)
    Rates(None).take(a, 10**9)
    # one with a rate of its own
    for bounds in (rates, Rates(None, 2, clock)):
        bounds.take(slow, 2)
        with pytest.raises(Refusal, match="decisions of this minute"):
            bounds.take(slow, 1)


def named(name, decisions=None):
    return Named(name, frozenset(), frozenset(["decide"]), decisions=decisions)


def test_idle_connections_are_closed_in_time_and_the_oldest_where_there_are_too_many(hurried, monkeypatch):
    monkeypatch.setattr(edge, "_LOOK", 0.05)
    closed = []

    def connection(name, answering=False):
        transport = SimpleNamespace(
            abort=lambda: (closed.append(name), connections.discard(one)), get_write_buffer_size=lambda: one.unread
        )
        cycle = SimpleNamespace(response_complete=not answering)
        one = type("One", (), {"cycle": cycle, "transport": transport, "unread": 0})()
        connections.add(one)
        return one

    connections = set()

    async def play():
        busy = connection("busy", answering=True)
        connection("old")
        watching = asyncio.create_task(watch(connections, most=2, seconds=0.5))
        await asyncio.sleep(0.1)
        connection("new")  # three of two
        await asyncio.sleep(0.2)
        assert closed == ["old"]
        await asyncio.sleep(0.6)
        assert closed == ["old", "new"]
        busy.cycle.response_complete = True
        await asyncio.sleep(0.8)
        assert closed == ["old", "new", "busy"]
        watching.cancel()

    hurried(play())


def test_an_answer_that_nobody_reads_is_given_up_and_a_client_that_comes_again_is_not(hurried, monkeypatch):
    """The first held a worker's connections for good, without a token; the other was cut off in the middle."""
    monkeypatch.setattr(edge, "_LOOK", 0.02)
    closed = []

    def connection(name, unread):
        transport = SimpleNamespace(abort=lambda: closed.append(name), get_write_buffer_size=lambda: unread)
        return type("One", (), {"cycle": SimpleNamespace(response_complete=not unread), "transport": transport})()

    deaf, busy = connection("deaf", 9), connection("busy", 0)

    async def play():
        watching = asyncio.create_task(watch({deaf, busy}, most=2, seconds=0.5))
        for _ in range(10):
            await asyncio.sleep(0.1)
            busy.cycle = SimpleNamespace(response_complete=True)  # the next request was answered
        watching.cancel()

    hurried(play())
    assert set(closed) == {"deaf"}


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
def test_nobody_holds_the_admin_port(host, monkeypatch):
    """It had a thread for each connection, without a bound, and as long as a byte came in ten seconds."""
    monkeypatch.setattr(admin, "_SECONDS", 1.0)
    port = admin.Admin(Board(), host, 0, Callers(OWNER))
    place, threads = (host, int(port.url.rpartition(":")[2])), threading.active_count()
    try:
        silent = [socket.create_connection(place) for _ in range(100)]
        long = socket.create_connection(place)
        long.sendall(b"GET /livez HTTP/1.1\r\nx: " + b"a" * 20_000)
        with urllib.request.urlopen(f"{port.url}/livez", timeout=20) as answer:
            assert answer.read() == b"alive\n"
        assert threading.active_count() == threads
        assert figures(port.url)
        for one in [*silent, long]:
            one.settimeout(20)
            with suppress(ConnectionError):
                assert one.recv(1) == b""  # closed, and nothing said
            one.close()
        for method, path, token, status in (
            ("POST", "/livez", "", 405),
            ("GET", "/", "", 404),
            ("GET", "/metrics", "", 401),
            ("GET", "/metrics", TOKENS["decider"], 401),
        ):
            asked = urllib.request.Request(f"{port.url}{path}", method=method, headers={"Authorization": token})
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(asked, timeout=20)
            assert refused.value.code == status
    finally:
        port.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(place, timeout=5)


def test_what_repeats_itself_is_written_a_few_times_with_a_count():
    clock = Clock(0.0)
    found = Repeated(most=3, seconds=60.0, clock=clock)

    def said(line, text="no files left", level=logging.ERROR):
        record = logging.LogRecord("x", level, "a.py", line, text, (), None)
        return found.filter(record) and record.getMessage()

    assert [bool(said(1)) for _ in range(1000)] == [True] * 3 + [False] * 997
    assert said(2)
    clock.now = 61.0
    assert said(1) == "no files left (997 more like this were not written)"
    assert said(1) == "no files left"
    # of heads of a ledger the last one counts, and a process that is killed tells nothing later
    assert all(said(3, f"release {i}, head {i}", logging.INFO) for i in range(100))


def test_logs_may_be_json_lines():
    record = logging.LogRecord("x", logging.WARNING, "a.py", 1, "waits: %s", ("OSError",), None)
    told = json.loads(edge.JsonLines("learner").format(record))
    assert (told["level"], told["role"], told["message"]) == ("WARNING", "learner", "waits: OSError")
    assert told["time"].endswith("Z")


def test_a_limit_on_decisions_is_read_and_kept(tmp_path):
    config = configured(tmp_path, more="[limits]\ndecisions = 20\n[service]\nworkers = 2")
    assert config.rate == 20.0
    with served(config) as (_, browser):
        browser.decide(*[{"arms": ARMS}] * 10)
        answer = browser.send("POST", "/v1/decisions", "decider", json={"decisions": [{"arms": ARMS}]})
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        # nothing was taken of the horizon
        assert browser.send("GET", "/v1/releases", "owner").json()["releases"][-1]["number"] == 0
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match=r"limits\.decisions must be at least 1 a minute"):
        configured(tmp_path / "b", more="[limits]\ndecisions = 0.5")


def test_probes(tmp_path):
    with served(configured(tmp_path)) as (_, browser):
        assert browser.send("GET", "/livez").json() == {"live": True}
        wait_until(lambda: browser.send("GET", "/readyz").status_code == 200)


# ------------------------------------------------------------------------------------------------ real processes


@contextmanager
def running(folder, service=""):
    """A service of one worker, and what it writes."""
    path = written(folder, more=f"[service]\nport = 0\nworkers = 1\n{service}\n[limits]\nseconds = 1")
    begun(Config.read(path))
    service = Service(path)
    thread = threading.Thread(target=service.run)
    thread.start()
    host, port = service.url.removeprefix("http://").split(":")
    address = (host, int(port))
    try:
        wait_until(
            lambda: asked(address, b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")[:12].endswith(
                b"200"
            )
        )
        yield service, address
    finally:
        service.stop()
        thread.join()


def asked(address, content, seconds=30.0):
    """What comes back until the other side closes."""
    try:
        with socket.create_connection(address, timeout=seconds) as one:
            one.sendall(content)
            answer = b""
            while more := one.recv(65536):
                answer += more
            return answer
    except ConnectionError:
        return b""


def head(token=None, length=4_000_000):
    shown = "" if token is None else f"authorization: Bearer {token}\r\n"
    return (
        f"POST /v1/decisions HTTP/1.1\r\nhost: x\r\n{shown}content-type: application/json\r\n"
        f"content-length: {length}\r\n\r\n"
    ).encode()


@pytest.mark.thorough
def test_strangers_hold_nothing_and_an_end_is_an_end(tmp_path):
    with running(tmp_path) as (service, address):
        # without a token nothing of the body is awaited: the answer is there at once, and the connection closed
        answer = asked(address, head() + b"{")
        assert answer.startswith(b"HTTP/1.1 401")
        assert b"connection: close" in answer.lower()
        # with one, a body has a second
        assert asked(address, head(TOKENS["decider"]) + b"{").startswith(b"HTTP/1.1 408")
        # half a head, and nothing at all
        assert asked(address, b"POST /v1/decisions HTTP/1.1\r\nhost:") == b""
        assert asked(address, b"") == b""
        # a head that never ends
        assert asked(address, b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 10_000).startswith((b"HTTP/1.1 400", b""))
        # 200 half-sent bodies do not keep a process from ending
        held = [socket.create_connection(address) for _ in range(200)]
        for one in held:
            one.sendall(head(TOKENS["decider"]) + b"{")
        (worker,) = service.processes("worker")
        begin = time.monotonic()
        os.kill(worker, signal.SIGTERM)
        wait_until(lambda: worker not in service.processes("worker"))
        assert time.monotonic() - begin < 60.0  # two seconds, on a machine that stands still for none
        for one in held:
            one.close()


def figures(url, token=TOKENS["owner"]):
    request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"})
    text = urllib.request.urlopen(request, timeout=30).read().decode()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")}


@pytest.mark.thorough
def test_the_figures_of_all_processes_are_on_a_port_of_their_own(tmp_path):
    with running(tmp_path, service="admin = 0") as (service, _):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            figures(service.admin_url, TOKENS["decider"])
        client = Client(service.url, TOKENS["decider"])
        client.decide(*[{"arms": ARMS}] * 7)
        answered = 'dpbandits_requests_total{route="/v1/decisions",status="2xx"}'
        wait_until(lambda: figures(service.admin_url).get(answered) == 1)
        wait_until(lambda: figures(service.admin_url).get("dpbandits_learner_rounds") == 7)
        found = figures(service.admin_url)
        assert found["dpbandits_learner_rounds_left"] == 293
        assert found["dpbandits_learner_leads"] == found["dpbandits_worker_confirmed"] == 1
        assert found['dpbandits_processes{role="worker"}'] == 1
        (worker,) = service.processes("worker")
        os.kill(worker, signal.SIGKILL)
        client.decide({"arms": ARMS})
        # what the one before had counted is not forgotten
        wait_until(lambda: figures(service.admin_url).get(answered) == 2)
        assert figures(service.admin_url)['dpbandits_process_starts_total{role="worker"}'] == 2


def test_a_board_keeps_the_counts_of_those_that_ended():
    clock = Clock(100.0)
    board = Board(clock)
    many = 1_234_567  # told to the last digit
    for ended in range(3):
        writing = board.begin(0, "worker")
        line = {
            "answers": [["/v1/rewards", "2xx", many]],
            "times": {"/v1/rewards": [5] + [0] * len(BOUNDS)},
            "gauges": {"x": 1},
        }
        os.write(writing, json.dumps(line).encode() + b"\n" + b'{"answers": [["half')
        wait_until(lambda ended=ended: f'status="2xx"}} {many * (ended + 1)}' in board.text())
        os.close(writing)
    assert "dpbandits_worker_x 1" in board.text()
    clock.now = 200.0  # silent for long
    assert 'dpbandits_processes{role="worker"} 0' in board.text()
    assert "dpbandits_worker_x" not in board.text()
    assert "dpbandits_build_info" in board.text()
