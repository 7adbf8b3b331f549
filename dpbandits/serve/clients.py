"""Who may ask a service for what: named clients, each with tokens, scopes and, if wanted, a day on which they expire.

    [clients.website]
    tokens = ["sha256:…"]              # digests, as `dpbandits serve --token` prints them; two while one is rotated
    scopes = ["decide", "reward"]
    expires = 2027-06-30               # optional; a date, from whose first moment (UTC) on it is refused, or a time
    decisions = 600                    # optional: so many a minute, in place of limits.decisions

The scopes are

* ``decide``: ask for decisions, activate them, and read the newest release to choose by it elsewhere;
* ``reward``: tell rewards;
* ``read``: releases, and what the run costs;
* ``own``: results, raw curves, the figures of rewards, an experiment's end; and all that ``read`` may.

The file is read again when it changes, so that a client is added, rotated or taken out without a restart. Of the file
only this table is; one that is wrong is logged, and those that were known go on.

A proxy that has authenticated whoever asks (mTLS, OpenID Connect) may name the client in a header, if it proves by a
secret that it is the proxy:

    [proxy]
    secret = "sha256:…"                # of the token that it sends as X-Proxy-Secret
    header = "x-client"                # in which it names one of [clients], which then needs no tokens

The proxy must drop both headers from what comes from outside. Without the secret the header is not read.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpbandits.serve.toml import MISSING, Reader, number, of, read

__all__ = ["SCOPES", "Callers", "Client", "Proxy", "clients_of", "digest", "expiry"]

log = logging.getLogger("dpbandits.serve")

SCOPES = ("decide", "reward", "read", "own")
SECRET = b"x-proxy-secret"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")
_HEADER = re.compile(r"[a-z0-9-]{1,60}")
# seconds between two looks at the file
_LOOK = 1.0


@dataclass(frozen=True)
class Client:
    """Somebody who may ask.

    Attributes
    ----------
    name : str
        In the log of a run and in the ledger.
    digests : frozenset of str
        Of its tokens.
    scopes : frozenset of str
    expires : float or None
        Seconds since 1970, from which on it is refused.
    decisions : float or None
        How many a minute; None for what the service's limits say.
    """

    name: str
    digests: frozenset[str]
    scopes: frozenset[str]
    expires: float | None = None
    decisions: float | None = None

    def may(self, scopes: Sequence[str]) -> bool:
        """Whether it has one of some scopes; whoever owns may read, too."""
        return any(one in self.scopes or (one == "read" and "own" in self.scopes) for one in scopes)


@dataclass(frozen=True)
class Proxy:
    """A proxy that says who asks."""

    secret: str
    header: str

    def names(self, headers: Mapping[bytes, bytes]) -> str | None:
        """The client that it names, if the request comes from it."""
        shown = headers.get(SECRET)
        if shown is None or not hmac.compare_digest(digest(shown.decode("latin-1")), self.secret):
            return None
        return headers.get(self.header.encode(), b"").decode("latin-1") or None


def digest(token: str) -> str:
    """What the file holds in place of a token."""
    return "sha256:" + sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _digests(key: str, found: Any) -> frozenset[str]:
    digests = [] if found is MISSING else of(list)(key, found)
    if not all(isinstance(one, str) and _DIGEST.fullmatch(one) for one in digests):
        # never the value: it may be a token that was pasted by mistake
        raise ValueError(
            f"{key} must be a list of digests 'sha256:…', got something else: "
            f"`dpbandits serve --token` makes a token and its digest"
        )
    return frozenset(digests)


def _scopes(key: str, found: Any) -> frozenset[str]:
    scopes = of(list)(key, found)
    if not scopes or not all(one in SCOPES for one in scopes):
        raise ValueError(f"{key} must be a list of some of {', '.join(SCOPES)}, got scopes={scopes!r}")
    return frozenset(scopes)


def expiry(key: str, found: Any) -> float | None:
    """Seconds since 1970 of a date (from its first moment in UTC) or a time with its zone; also as ISO 8601 texts."""
    if found is MISSING:
        return None
    wanted = f"{key} must be a date such as 2027-06-30, or a time with its zone, got expires={found!r}"
    if isinstance(found, str):
        try:
            found = date.fromisoformat(found) if len(found) == len("2027-06-30") else datetime.fromisoformat(found)
        except ValueError:
            raise ValueError(wanted) from None
    if isinstance(found, datetime):
        if found.tzinfo is None:
            raise ValueError(wanted)
        return found.timestamp()
    if not isinstance(found, date):
        raise ValueError(wanted)
    return datetime(found.year, found.month, found.day, tzinfo=UTC).timestamp()


_CLIENT: dict[str, Reader] = {"tokens": _digests, "scopes": _scopes, "expires": expiry, "decisions": number(None)}


def clients_of(tree: Mapping[str, Any], *, named_elsewhere: bool = False, needed: bool = False) -> dict[str, Client]:
    """The table ``clients`` of a file, by names.

    ``named_elsewhere`` if a proxy names them, who need no tokens then; ``needed`` if there must be one: a file without
    may be half written.

    Raises
    ------
    ValueError
    """
    found = tree.get("clients", {})
    if "tokens" in tree:
        raise ValueError(
            "tokens is no table of the file: write a table for each client, [clients.NAME] with tokens, its digests, "
            f"and scopes, some of {', '.join(SCOPES)}"
        )
    if not isinstance(found, dict):
        raise ValueError("clients must be tables, [clients.NAME]")
    made: dict[str, Client] = {}
    for name in found:
        if not _NAME.fullmatch(name):
            raise ValueError(f"clients must have names of small letters, digits, '_', '.' and '-', got {name!r}")
        told = read({f"clients.{name}": found[name]}, {f"clients.{name}": _CLIENT})[f"clients.{name}"]
        one = Client(name, told["tokens"], told["scopes"], told["expires"], told["decisions"])
        if not one.digests and not named_elsewhere:
            raise ValueError(f"clients.{name}.tokens must be a list of digests 'sha256:…', at least one, got none")
        if one.decisions is not None and one.decisions < 1:
            raise ValueError(f"clients.{name}.decisions must be at least 1 a minute, got decisions={one.decisions!r}")
        for other in made.values():
            if one.digests & other.digests:
                raise ValueError(f"clients.{other.name} and clients.{name} must have no token in common, got one")
        made[name] = one
    if needed and not made:
        raise ValueError("clients must have at least one, got none: add a table [clients.NAME] with tokens and scopes")
    return made


def proxy_of(given: Mapping[str, Any]) -> Proxy | None:
    """What the table ``proxy`` says, or None.

    Raises
    ------
    ValueError
    """
    secret, header = given["secret"], given["header"]
    if secret is None:
        return None
    if not _DIGEST.fullmatch(secret):
        raise ValueError("proxy.secret must be a digest 'sha256:…', got something else: `dpbandits serve --token`")
    if not _HEADER.fullmatch(header):
        raise ValueError(f"proxy.header must be a header's name in small letters, got header={header!r}")
    return Proxy(secret, header)


class Callers:
    """The clients of a file, as it is now.

    Parameters
    ----------
    clients : mapping
        Those that are known at first.
    path : Path or None
        The file; None if they do not change.
    again : callable
        What reads them from it.
    proxy : Proxy or None

    Examples
    --------
    >>> shop = Client("shop", frozenset([digest("a-token")]), frozenset(["decide"]), expires=1e9)
    >>> callers = Callers({"shop": shop})
    >>> callers.who({b"authorization": b"Bearer a-token"}, now=0.0).name
    'shop'
    >>> callers.who({b"authorization": b"Bearer another"}, now=0.0) is None
    True
    """

    def __init__(
        self,
        clients: Mapping[str, Client],
        path: Path | None = None,
        again: Callable[[Path], Mapping[str, Client]] = lambda _: {},
        proxy: Proxy | None = None,
    ) -> None:
        self._path, self._again, self._proxy = path, again, proxy
        self._clients, self._by_digest = dict(clients), _by_digest(clients)
        # the file may have changed since it was read
        self._seen: tuple[int, ...] | None = None
        self._next = time.monotonic() + _LOOK

    def who(self, headers: Mapping[bytes, bytes], *, now: float) -> Client | None:
        """Who asks, by the token or the proxy's header; None if nobody who is known and not expired.

        A token is looked up by its digest. How long that takes may tell of digests, at which nobody can aim.
        """
        if time.monotonic() >= self._next:
            self._look()
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        found = self._by_digest.get(digest(token)) if scheme.lower() == "bearer" else None
        if found is None and self._proxy is not None and (name := self._proxy.names(headers)) is not None:
            found = self._clients.get(name)
        return None if found is None or (found.expires is not None and now >= found.expires) else found

    def _look(self) -> None:
        """Read the file again if it is another one."""
        self._next = time.monotonic() + _LOOK
        if self._path is None or (state := self._state()) == self._seen:
            return
        self._seen = state
        try:
            clients = self._again(self._path)
        except (OSError, ValueError) as error:  # of the file, which holds no data
            log.warning("the clients stay as they were: %s", error)
            return
        changed = sorted(name for name in {*clients, *self._clients} if clients.get(name) != self._clients.get(name))
        self._clients, self._by_digest = dict(clients), _by_digest(clients)
        if changed:
            log.info("clients were read again; changed: %s", ", ".join(changed))

    def _state(self) -> tuple[int, ...]:
        if self._path is None:
            return ()
        try:
            found = os.stat(self._path)
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_size, found.st_ino


def _by_digest(clients: Mapping[str, Client]) -> dict[str, Client]:
    return {one: client for client in clients.values() for one in client.digests}
