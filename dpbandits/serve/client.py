"""A client of the service: the standard library alone, so that it can be copied to wherever decisions are needed."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Client", "Refused"]


class Refused(RuntimeError):
    """The service refused a request, and said why.

    Examples
    --------
    >>> from dpbandits.serve.client import Refused
    >>> issubclass(Refused, RuntimeError)
    True
    """


class Client:
    """One connection, with one token; for one thread.

    Parameters
    ----------
    url : str
        Where the service answers.
    token : str
    run : str, optional
        Which one, of a service of many runs.
    patience : float
        For so many seconds a request is sent again where nobody answers or the service is busy. A reward counts once
        however often it is sent; a decision whose answer was lost gets no reward.

    Examples
    --------
    >>> from dpbandits.serve.client import Client
    >>> client = Client("http://127.0.0.1:8000", "a-token", patience=1.0)  # connects with the first request
    """

    def __init__(self, url: str, token: str, *, run: str | None = None, patience: float = 30.0) -> None:
        self._at = "/v1" if run is None else f"/v1/runs/{run}"
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "localhost", parts.port, timeout=patience)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._patience = patience

    def decide(self, *asked: dict[str, Any], activate: bool = True) -> list[dict[str, Any]]:
        """Decisions for ``{"arms": [[…], …]}`` or ``{"context": […]}``, with ``"person"`` where needed.

        One with a ``"ticket"`` in place of an id is learned once it is activated: so if ``activate`` is false, and
        where the service's database was away.
        """
        body = {"decisions": asked, "activate": activate}
        found: list[dict[str, Any]] = self.send("POST", f"{self._at}/decisions", body)["decisions"]
        return found

    def slates(self, *asked: dict[str, Any], activate: bool = True) -> list[dict[str, Any]]:
        """Slates for ``{"names": ["storm", …], "arms": [[…], …]}``, with ``"person"`` where needed; an arm a name.

        ``"slate"`` of each holds the names to show, by position from the top; else as :meth:`decide`.
        """
        body = {"slates": asked, "activate": activate}
        found: list[dict[str, Any]] = self.send("POST", f"{self._at}/slates", body)["slates"]
        return found

    def activate(self, *tickets: str) -> list[dict[str, Any]]:
        """Ids of decisions that were answered with tickets; each counts once, however often it is sent."""
        found: list[dict[str, Any]] = self.send("POST", f"{self._at}/activations", {"tickets": tickets})["activations"]
        return found

    def reward(self, *rewards: tuple[str, float | Sequence[float]]) -> list[str]:
        """What became of rewards: of each ``(id, reward)``, with the id of its decision, the status.

        The reward of a slate is a list: one number for each position that was seen, from the top.
        """
        for one in rewards:
            if len(one) == 2 and one[0] is None:
                raise ValueError(
                    "rewards must be of decisions with an id, got None: a decision with a ticket gets its id from "
                    "activate(ticket), and one with neither is not learned from, as its run has ended"
                )
            if len(one) != 2 or not isinstance(one[0], str):
                raise TypeError(
                    f"rewards must be pairs (id, reward), each an argument: reward(*pairs), got {one!r:.80}"
                )
        body = {"rewards": [{"id": id, "reward": reward} for id, reward in rewards]}
        return [one["status"] for one in self.send("POST", f"{self._at}/rewards", body)["rewards"]]

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a request."""
        limit = time.monotonic() + self._patience
        while True:
            try:
                self._connection.request(method, path, None if body is None else json.dumps(body), self._headers)
                answer = self._connection.getresponse()
                content = answer.read()
                if answer.status < 300:
                    return json.loads(content)
                if answer.status != 503 or time.monotonic() > limit:
                    raise Refused(f"{method} {path}: {answer.status} {content.decode()}")
            except (OSError, http.client.HTTPException):
                self._connection.close()
                if time.monotonic() > limit:
                    raise
            time.sleep(0.1)
