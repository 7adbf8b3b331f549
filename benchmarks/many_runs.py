"""Memory, idle processor time, and times to start and stop, of a service of many runs as real processes.

    python benchmarks/many_runs.py [--runs 100] [--dim 20]

Every run is begun by a request, decides, is rewarded and learns; then nobody asks. Memory is proportional (PSS): what
processes share is divided among them. Linux only.
"""

from __future__ import annotations

import argparse
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpbandits.serve.client import Client
from dpbandits.serve.clients import digest
from dpbandits.serve.many.group import Group
from dpbandits.serve.supervise import Service

_IDLE = 10.0  # seconds
_FILE = """
[runs]
most = {runs}
[budget]
epsilon = 8.0
delta = 1e-5
unit = "round"
[service]
port = 0
[clients.owner]
tokens = ["{digest}"]
scopes = ["own", "decide", "reward"]
"""


def _megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _processor(pids: list[int]) -> float:
    ticks = sum(sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) for pid in pids)
    return ticks / os.sysconf("SC_CLK_TCK")


def _timed(what: str, work: Callable[[], object]) -> None:
    begun = time.perf_counter()
    work()
    print(f"{what:40}{time.perf_counter() - begun:8.1f} s", flush=True)


def main(runs: int, dim: int) -> None:
    """Print the figures."""
    token = secrets.token_hex(8)
    names = [f"run-{i}" for i in range(runs)]
    arms = np.eye(dim)[:10].tolist()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "group.toml"
        path.write_text(_FILE.format(runs=runs, digest=digest(token)), encoding="utf-8")
        Group.read(path).init()
        service = Service(path)
        owner = Client(service.url, token, patience=60.0)

        def begin() -> None:
            policy = {"class": "OnePassPrivateGLM", "dim": dim, "horizon": 100_000}
            for name in names:
                budget = {"epsilon": 1.0, "delta": 1e-7, "scope": name}
                owner.send("POST", "/v1/runs", {"name": name, "policy": policy, "budget": budget})
            wait()

        def wait() -> None:
            while any(one["state"] != "running" for one in owner.send("GET", "/v1/runs")["runs"]):
                time.sleep(0.2)

        def use() -> None:
            for name in names:
                client = Client(service.url, token, run=name, patience=60.0)
                found = client.decide(*[{"arms": arms}] * 100)
                client.reward(*((one["id"], 1.0) for one in found if one["id"] is not None))

        def stop() -> None:
            service.stop()
            running.join()

        running = threading.Thread(target=service.run)
        running.start()
        _timed(f"{runs} runs begun", begin)
        _timed("100 decisions with rewards of each", use)
        pids = [*service.processes("worker"), *service.processes("learner")]
        time.sleep(_IDLE)
        before = _processor(pids)
        time.sleep(_IDLE)
        print(f"{'processor, while nobody asks':40}{(_processor(pids) - before) / _IDLE:8.2f} of a core")
        sizes = [_megabytes(pid) for pid in (*pids, os.getpid())]
        parts = ", ".join(f"{size:.0f}" for size in sizes)
        print(f"{'memory':40}{sum(sizes):8.0f} MB (workers, learner, supervisor: {parts})")
        _timed("stopped", stop)
        service = Service(path)
        owner = Client(service.url, token, patience=60.0)
        running = threading.Thread(target=service.run)
        running.start()
        _timed("started again, all runs open", wait)
        _timed("stopped", stop)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--dim", type=int, default=20)
    given = parser.parse_args()
    main(given.runs, given.dim)
