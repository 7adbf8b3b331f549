"""Decisions and rewards per second through HTTP, against an empty FastAPI handler on the same machine in the same run.

    python benchmarks/serve.py [--seconds 5] [--exploration inverse_gap] [--database postgresql://user@host/database]

Two workers, a learner, K = 20 arms of dimension 20 as JSON, SQLite (or a PostgreSQL database, of which the schemas
``benchmark`` and ``benchmark_ledger`` must not exist yet) with every commit written through. The load
generator runs beside them, and counts as much as they do where there are few cores. Phases take turns, so that what
else the machine does weighs on all of them; processor times (of workers and learner together, or of the empty handler,
per request) depend on that the least.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from dpbandits.serve.client import Client
from dpbandits.serve.config import Config
from dpbandits.serve.demo import configuration
from dpbandits.serve.operate import init
from dpbandits.serve.supervise import Service

_CONNECTIONS, _TURNS = 128, 3
# requests per second at which times are measured where nobody is in a hurry
_PACE = 200
_EMPTY = """
import socket, sys
import fastapi, uvicorn
app = fastapi.FastAPI()
@app.post("/")
async def empty():
    return {}
settings = uvicorn.Config(app, log_config=None, access_log=False, server_header=False)
uvicorn.Server(settings).run(sockets=[socket.socket(fileno=int(sys.argv[1]))])
"""


async def _send(reader: Any, writer: Any, head: bytes, body: bytes) -> bytes:
    writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
    lines = await reader.readuntil(b"\r\n\r\n")
    length = int(lines.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    content: bytes = await reader.readexactly(length)
    if not lines.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"{lines[:40]!r} {content[:200]!r}")
    return content


async def _load(
    port: int, path: str, token: str, bodies: list[bytes], seconds: float, rate: float
) -> tuple[list[float], list[bytes]]:
    """Until the bodies or the time are used up: seconds of each request, and the answers.

    With a ``rate`` requests are due at so many per second, whatever became of those before, and count from then on;
    without, every connection sends the next one when it has its answer.
    """
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nauthorization: Bearer {token}\r\n"
    ).encode()
    times: list[float] = []
    answers: list[bytes] = []
    start = time.perf_counter()
    limit = start + seconds
    waiting = iter(enumerate(bodies))

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number, body in waiting:
            begun = time.perf_counter()
            if rate:
                await asyncio.sleep(start + number / rate - begun)
                begun = start + number / rate
            if begun > limit:
                break
            answers.append(await _send(reader, writer, head, body))
            times.append(time.perf_counter() - begun)
        writer.close()

    await asyncio.gather(*(one() for _ in range(_CONNECTIONS)))
    return times, answers


def _processor(pids: list[int]) -> float:
    """Seconds of processor time that these have used, where the system tells."""
    found = 0.0
    for pid in pids:
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists():
            return float("nan")
        found += sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return found


def main(seconds: float, exploration: str, database: str) -> None:
    """Print the table."""
    policy = f'exploration = "{exploration}"' if exploration else ""
    storage = ""
    if database:
        joint = "&" if "?" in database else "?"
        schemas = {"database": "benchmark", "ledger": "benchmark_ledger"}
        storage = "\n".join(f'{name} = "{database}{joint}schema={schema}"' for name, schema in schemas.items())
    tokens = {role: secrets.token_hex(8) for role in ("decider", "learner", "owner")}
    rng = np.random.default_rng(0)
    arms = rng.normal(size=(200, 20, 20))
    arms /= np.linalg.norm(arms, axis=-1, keepdims=True)
    ask = [json.dumps({"decisions": [{"arms": one.tolist()}]}).encode() for one in arms]
    tell, quiet = ask, ', "probabilities": false}'
    ask = [one[:-1] + quiet.encode() for one in tell]
    groups = ([{"arms": one.tolist()} for one in arms[i : i + 10]] for i in range(190))
    asks = [(json.dumps({"decisions": group})[:-1] + quiet).encode() for group in groups]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.toml"
        more = "[service]\nport = 0\nworkers = 2"
        text = configuration(tokens, dim=20, horizon=10**6, policy=policy, storage=storage, more=more)
        path.write_text(text, encoding="utf-8")
        init(Config.read(path))
        service = Service(path)
        port = int(service.url.rpartition(":")[2])
        running = threading.Thread(target=service.run)
        running.start()
        listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        fd = listening.fileno()
        empty = [subprocess.Popen([sys.executable, "-c", _EMPTY, str(fd)], pass_fds=(fd,)) for _ in range(2)]
        try:
            Client(service.url, tokens["owner"], patience=60.0).send("GET", "/v1/released")
            who = {"service": service.processes("worker") + service.processes("learner")}
            who["empty"] = [process.pid for process in empty]
            _phases(port, listening.getsockname()[1], tokens, ask, tell, asks, seconds, who)
            owner = Client(service.url, tokens["owner"], patience=60.0)
            print(f"releases meanwhile: {len(owner.send('GET', '/v1/releases')['releases']) - 1}")
        finally:
            for process in empty:
                process.terminate()
            service.stop()
            running.join()


def _phases(
    port: int,
    other: int,
    tokens: dict[str, str],
    ask: list[bytes],
    tell: list[bytes],
    asks: list[bytes],
    seconds: float,
    who: dict[str, list[int]],
) -> None:
    many = 10**5
    rates: dict[str, list[float]] = {}
    slow: dict[str, list[float]] = {}
    used: dict[str, list[float]] = {}

    def run(name: str, each: int, *arguments: Any, rate: float = 0.0) -> list[bytes]:
        pids = who["empty" if name.startswith("empty") else "service"]
        begun, before = time.perf_counter(), _processor(pids)
        times, answers = asyncio.run(_load(*arguments, seconds, rate))
        rates.setdefault(name, []).append(each * len(times) / (time.perf_counter() - begun))
        used.setdefault(name, []).append(1e6 * (_processor(pids) - before) / (each * len(times)))
        slow.setdefault(name, []).extend(times)
        return answers

    for _ in range(_TURNS):
        run("empty handler", 1, other, "/", "", ask * (many // len(ask)))
        run(f"empty handler, {_PACE}/s", 1, other, "/", "", ask * (many // len(ask)), rate=_PACE)
        run(f"decisions, {_PACE}/s", 1, port, "/v1/decisions", tokens["decider"], ask * (many // len(ask)), rate=_PACE)
        run("decisions, with probabilities", 1, port, "/v1/decisions", tokens["decider"], tell * (many // len(tell)))
        made = run("decisions", 1, port, "/v1/decisions", tokens["decider"], ask * (many // len(ask)))
        ids = [one["id"] for answer in made for one in json.loads(answer)["decisions"]]
        one = [json.dumps({"rewards": [{"id": id, "reward": 1.0}]}).encode() for id in ids]
        run("rewards", 1, port, "/v1/rewards", tokens["learner"], one)
        made = run("decisions, 10 together", 10, port, "/v1/decisions", tokens["decider"], asks * (many // len(asks)))
        ids = [one["id"] for answer in made for one in json.loads(answer)["decisions"]]
        ten = [
            json.dumps({"rewards": [{"id": id, "reward": 1.0} for id in ids[i : i + 10]]}).encode()
            for i in range(0, len(ids), 10)
        ]
        run("rewards, 10 together", 10, port, "/v1/rewards", tokens["learner"], ten)
    base = float(np.median(rates["empty handler"]))
    print(f"{os.cpu_count()} cores, {_CONNECTIONS} connections, {_TURNS} turns of {seconds:g} s; medians")
    print(f"{'':30}{'per second':>12}{'of empty':>10}{'p50 ms':>9}{'p99 ms':>9}{'CPU us':>9}")
    for name, found in rates.items():
        rate = float(np.median(found))
        middle, late = 1e3 * np.quantile(slow[name], [0.5, 0.99])
        print(f"{name:30}{rate:12.0f}{rate / base:10.2f}{middle:9.1f}{late:9.1f}{np.median(used[name]):9.0f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each phase")
    parser.add_argument("--exploration", default="", help="the policy's; by default, its own default")
    parser.add_argument("--database", default="", help="a PostgreSQL address")
    found = parser.parse_args()
    main(found.seconds, found.exploration, found.database)
