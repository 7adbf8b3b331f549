"""That a run's state does not go back: ids that name one round of one history, and where the learner stood.

A database may go back: a standby is promoted that was behind, a volume is put back from a snapshot. It then gives out
numbers again that others have. Three things keep the two histories apart:

* *An id is a code* (HMAC-SHA-256, of which 128 bits are kept) of the database's incarnation, the round's number and a
  random nonce. It is checked before anything is looked up, so what somebody makes up tells nothing; and a row takes a
  reward only by the nonce that it has. Each restore begins a new incarnation, with later numbers.
* *A chain of digests* goes through all decisions, each a hash of the one before, the number and the nonce. As nonces
  are random, two histories that differ in a decision differ in every digest from there on.
* *The learner's trail*, a file beside its checkpoint, holds the digests up to which it has learned. A database that
  does not go on from there is refused, whatever it counts.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from accounting.files import write_text

__all__ = ["Ids", "Named", "Trail", "begun", "linked", "trail_of"]

_CODE = 32  # hexadecimal digits
_DIGEST = 32
_NUMBERS = 19  # digits
_MARKS = 256


def begun(incarnation: str, previous: str = "") -> str:
    """The digest with which an incarnation begins."""
    return sha256(f"{previous} begins {incarnation}".encode()).hexdigest()[:_DIGEST]


def linked(previous: str, number: int, nonce: str) -> str:
    """The digest after a decision."""
    return sha256(f"{previous} {number} {nonce}".encode()).hexdigest()[:_DIGEST]


class Named(NamedTuple):
    """What an id names; ``proven`` unless it is of a release whose ids were no codes: then the row has to tell."""

    number: int
    nonce: str
    proven: bool


class Ids:
    """The ids of a database's rounds: ``number-nonce-code``.

    Parameters
    ----------
    key : str
        The database's secret, in hexadecimal digits.
    incarnations : sequence of mapping
        Each ``{"id": …, "after": …}``: rounds after that number, up to the next one's, are of this incarnation. An
        empty id is of a database whose ids were no codes.

    Examples
    --------
    >>> ids = Ids("00" * 32, [{"id": "one", "after": 0}, {"id": "two", "after": 7}])
    >>> ids.read(ids.made(7, "ab"))
    Named(number=7, nonce='ab', proven=True)
    >>> ids.read(Ids("00" * 32, [{"id": "one", "after": 0}]).made(8, "ab")) is None
    True
    """

    def __init__(self, key: str, incarnations: Sequence[Mapping[str, Any]]) -> None:
        self._key = bytes.fromhex(key)
        self._incarnations = [(int(one["after"]), str(one["id"])) for one in incarnations]

    def made(self, number: int, nonce: str) -> str:
        """The id of a round."""
        incarnation = self._of(number)
        return f"{number}-{nonce}-{self._code(incarnation, number, nonce)}" if incarnation else f"{number}-{nonce}"

    def read(self, id: str) -> Named | None:
        """What an id names; None if it is none of this database."""
        head, _, rest = id.partition("-")
        nonce, _, code = rest.partition("-")
        if not (head.isascii() and head.isdigit() and len(head) < _NUMBERS and id.isascii()):
            return None
        number = int(head)
        incarnation = self._of(number)
        if not incarnation:
            return Named(number, rest, proven=False)
        if str(number) != head or not hmac.compare_digest(code, self._code(incarnation, number, nonce)):
            return None
        return Named(number, nonce, proven=True)

    def _of(self, number: int) -> str:
        """The incarnation of a round; one beyond the horizon, 0, is of the first."""
        found = self._incarnations[0][1]
        for after, incarnation in self._incarnations:
            if number > after:
                found = incarnation
        return found

    def _code(self, incarnation: str, number: int, nonce: str) -> str:
        text = f"round {incarnation} {number} {nonce}".encode("ascii")
        return hmac.new(self._key, text, sha256).hexdigest()[:_CODE]


def trail_of(checkpoint: Path) -> Path:
    """Where the learner's trail is."""
    return checkpoint.with_name(f"{checkpoint.name}.trail")


class Trail:
    """How far a learner has followed a database's decisions: the digest after each of the last ones that it read.

    It is written before the policy learns of these decisions, so that after a crash the policy stands somewhere within.
    Now and then a point of it is written to the database, too (:meth:`mark`). A database that went back and has such a
    point is of this history up to there; what it says of itself is not enough, as there may have been other learners.

    Parameters
    ----------
    path : Path
    incarnation : str
        The database's.
    first : int
        After which decision ``digests`` begin.
    digests : sequence of str
    marks : sequence of (int, str)
        Points that were written to the database, by default where it begins: numbers and digests.
    """

    def __init__(
        self, path: Path, incarnation: str, first: int, digests: Sequence[str], marks: Sequence[Sequence[Any]] = ()
    ) -> None:
        self.path, self.incarnation, self.first, self.digests = path, incarnation, first, list(digests)
        self.marks = [(int(number), str(digest)) for number, digest in marks] or [(first, self.digests[0])]

    @classmethod
    def read(cls, path: Path) -> Trail:
        """The one in a file.

        Raises
        ------
        FileNotFoundError
        ValueError
            If it is none.
        """
        try:
            tree = json.loads(path.read_text(encoding="ascii"))
            digests = [str(one) for one in tree["digests"]]
            return cls(path, str(tree["incarnation"]), int(tree["first"]), digests, tree["marks"])
        except (ValueError, KeyError, TypeError, IndexError):
            raise ValueError(f"{path} must be a learner's trail, got something else") from None

    def at(self, number: int) -> str | None:
        """The digest after a decision, if it is known."""
        place = number - self.first
        return self.digests[place] if 0 <= place < len(self.digests) else None

    def follow(self, number: int, decisions: Sequence[tuple[int, str, str]]) -> bool:
        """Go on from a decision with those that follow, each with its nonce and digest; False if they do not."""
        previous = self.at(number)
        if previous is None:
            return False
        found = [previous]
        for following, nonce, digest in decisions:
            if following != number + len(found) or linked(found[-1], following, nonce) != digest:
                return False
            found.append(digest)
        self.first, self.digests = number, found
        return True

    def mark(self, number: int) -> dict[str, Any]:
        """A point that is to be written to the database, durable here; the older they are, the fewer are kept."""
        if self.marks[-1][0] != number:
            if len(self.marks) >= _MARKS:
                half = _MARKS // 2
                self.marks = [*self.marks[:half:2], *self.marks[half:]]
            self.marks.append((number, self.digests[number - self.first]))
            self.keep()
        return {"number": number, "digest": self.marks[-1][1]}

    def shares(self, point: Mapping[str, Any]) -> bool:
        """Whether a point that a database has is one of this history."""
        return (point["number"], point["digest"]) in self.marks

    def keep(self) -> None:
        """Write it down, durably."""
        tree = {"incarnation": self.incarnation, "first": self.first, "digests": self.digests, "marks": self.marks}
        write_text(self.path, json.dumps(tree))
