"""Claims about DP-SGD in practitioners' words, such as ``DP-SGD, noise 1.1, batch 256 of 60,000, 60 epochs, shuffled``.

What such a run costs depends on how its batches were made, which is often not said, or not done as said: most libraries
quote the price of Poisson samples, and most loaders shuffle. So every way is priced:

* **Poisson samples**: each unit in each batch with one probability, :class:`accounting.PoissonSubsampled`.
* **Balls in bins**: each unit in one batch of every epoch, independently of all others,
:class:`accounting.RandomAllocated`.
* **Shuffled batches** of one size. From above, every epoch costs one release: of a unit that is blanked in its place
  ("zero_out") Gaussian(z), of one that is swapped Gaussian(z/2). From below: let all other units contribute nothing,
  and the unit all that it may, or nothing: that is an epoch of balls in bins. Of a swap let the others contribute −C,
  and the unit C or −C; then all batches have one sum, but for one batch, drawn uniformly, that is 2C higher: balls in
  bins with the noise z/2. What comes or goes would move other units from batch to batch, for which nothing is known.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accounting import Adjacency, Release

__all__ = ["Claim", "Way", "in_words", "read_claim"]

_NUMBER = r"(\d{1,3}(?:[,_]\d{3})+(?!\d)|\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_ROWS = r"(?:rows|records|examples|samples|images|people|users|units)"
_UNITS = rf"(?:\s*{_ROWS})?"
# What a claim says, and what it may say besides.
_BATCH = r"(?:mini[\s-]?)?(?:batch(?:es)?|lots?)"
_WORDS = {
    "noise": rf"(?:noise(?:\s*multiplier)?|sigma|σ)(?:\s*of|\s*=|:)?\s*{_NUMBER}",
    "batch": (
        rf"{_BATCH}(?:\s*size)?(?:\s*of|\s*=|:)?\s*{_NUMBER}{_UNITS}"
        rf"\s*(?:out\s+of|of|from|in)\s*{_NUMBER}{_UNITS}"
    ),
    # a batch and the rows apart: "batch size 256, n = 60,000", "60,000 examples, batch 256"
    "batch alone": rf"{_BATCH}(?:\s*size)?(?:\s*of|\s*=|:)?\s*{_NUMBER}{_UNITS}",
    "rows before": rf"{_NUMBER}\s*(?:training\s*)?{_ROWS}",
    "rows after": rf"(?:n|data\s*set|{_ROWS})(?:\s*size)?(?:\s*of|\s*=|:)?\s*{_NUMBER}",
    "epochs": rf"{_NUMBER}\s*epochs?|epochs(?:\s*=|:)?\s*{_NUMBER}",
    "steps": rf"{_NUMBER}\s*(?:steps|iterations)|(?:steps|iterations)(?:\s*=|:)?\s*{_NUMBER}",
}
_MADE = {
    "shuffle": r"shuffl(?:ed|ing|e)(?:\s*batches)?",
    "poisson": r"poisson(?:[\s-]*(?:samples|sampled|sampling|batches))?",
    "balls_in_bins": r"balls[\s-]*(?:in|and)[\s-]*bins|random(?:ly)?[\s-]*allocat(?:ed|ion)",
}
_BESIDES = r"dp[\s-]?(?:sgd|adam)|clip(?:ping)?(?:\s*norm)?(?:\s*of|\s*=|:)?\s*[\d.]+|with|and|for|on|in|over"
_SAID = {"poisson": "Poisson samples", "balls_in_bins": "balls in bins", "shuffle": "shuffled batches"}


@dataclass(frozen=True)
class Way:
    """One way in which the batches may have been made, for one kind of neighbours.

    ``cost`` is the price from above, and ``least`` what some data cost at least.
    """

    sampling: str
    adjacency: Adjacency
    cost: Release
    least: Release

    @property
    def said(self) -> str:
        """The way in words."""
        return _SAID[self.sampling]


@dataclass(frozen=True)
class Claim:
    """What was said: noise over the clip norm, expected batch, rows, steps, and perhaps how batches were made.

    Examples
    --------
    >>> claim = read_claim("DP-SGD, noise 1.1, batch 256 of 60,000, 60 epochs, shuffled")
    >>> claim.noise, claim.batch, claim.rows, claim.steps, claim.sampling
    (1.1, 256, 60000, 14100, 'shuffle')
    >>> [(way.said, way.adjacency) for way in claim.ways()][-1]
    ('shuffled batches', 'replace')
    """

    noise: float
    batch: int
    rows: int
    steps: int
    sampling: str | None = None

    def ways(self) -> list[Way]:
        """Every way, and for whom."""
        from accounting import Gaussian, PoissonSubsampled, RandomAllocated

        z, in_epoch = self.noise, math.ceil(self.rows / self.batch)
        begun, whole = math.ceil(self.steps / in_epoch), self.steps // in_epoch
        either: tuple[Adjacency, ...] = ("add_remove", "replace")
        found = []
        for adjacency in either:
            sampled = self.steps * PoissonSubsampled(Gaussian(z), self.batch / self.rows, adjacency=adjacency)
            found.append(Way("poisson", adjacency, sampled, sampled))
        for adjacency in either:
            epoch = RandomAllocated(Gaussian(z), in_epoch, adjacency=adjacency)
            found.append(Way("balls_in_bins", adjacency, begun * epoch, whole * epoch))
        blanked: tuple[tuple[Adjacency, float], ...] = (("zero_out", z), ("replace", z / 2))
        for adjacency, noise in blanked:
            least = whole * RandomAllocated(Gaussian(noise), in_epoch)
            found.append(Way("shuffle", adjacency, begun * Gaussian(noise, adjacency=adjacency), least))
        return found


def in_words(text: str) -> bool:
    """Whether a text speaks of a run, in place of calling descriptions."""
    named = [bool(re.search(pattern, text.lower())) for pattern in (r"\b(?:noise|sigma|σ)\b", rf"\b{_BATCH}\b")]
    return all(named) or ("(" not in text and (any(named) or bool(re.search(r"\bdp[\s-]?sgd\b", text.lower()))))


def read_claim(text: str) -> Claim | None:
    """The claim that a text makes; None if it is none, as it says nothing of a run.

    Raises
    ------
    ValueError
        If it is one that lacks something, or says what is not understood.
    """
    rest = text.lower()
    if not in_words(text):
        return None
    said: dict[str, tuple[str, ...]] = {}
    for name, pattern in _WORDS.items():
        if match := re.search(rf"\b(?:{pattern})", rest):
            said[name] = tuple(group for group in match.groups() if group is not None)
            rest = rest[: match.start()] + " " + rest[match.end() :]
    made = []
    for name, pattern in _MADE.items():
        if re.search(rf"\b(?:{pattern})\b", rest):
            made.append(name)
            rest = re.sub(rf"\b(?:{pattern})\b", " ", rest)
    apart = [said[name] for name in ("batch alone", "rows before", "rows after") if name in said]
    if "batch" not in said and "batch alone" in said and len(apart) == 2:
        said["batch"] = apart[0] + apart[1]
    elif ("batch" in said and apart) or len(apart) > 2:
        raise ValueError(f"the claim says its batch, and of how many rows, twice: {_HOW}")
    for name, what in (("noise", "noise"), ("batch", "batch, and of how many rows")):
        if name not in said:
            raise ValueError(f"the claim does not say its {what}: {_HOW}")
    if re.search(r"ε|δ|\beps(?:ilon)?\b|\bdelta\b", rest):
        raise ValueError(f"the claimed ε and δ go into --epsilon and --delta; of the run, {_HOW}")
    left = re.sub(rf"\b(?:{_BESIDES})\b", " ", rest)
    if unknown := re.search(r"[^\s,;.:()+&-]+", left):
        raise ValueError(f"{unknown[0]!r} is not understood in a claim: {_HOW}")
    if ("epochs" in said) == ("steps" in said):
        raise ValueError(f"a claim has a number of epochs, or of steps: {_HOW}")
    if len(made) > 1:
        raise ValueError(f"batches are made in one way, got {' and '.join(_SAID[name] for name in made)}")
    noise, batch, rows = float(said["noise"][0]), _whole(said["batch"][0]), _whole(said["batch"][1])
    if not 0 < noise < math.inf:
        raise ValueError(f"noise must be positive, got noise={noise!r}")
    if not 1 <= batch <= rows:
        raise ValueError(f"batch must be from 1 to the number of rows, {rows}, got batch={batch!r}")
    in_epoch = math.ceil(rows / batch)
    steps = _whole(said["epochs"][0]) * in_epoch if "epochs" in said else _whole(said["steps"][0])
    if steps < 1:
        raise ValueError("a claim has at least one step")
    return Claim(noise, batch, rows, steps, made[0] if made else None)


_HOW = "write it as 'DP-SGD, noise 1.1, batch 256 of 60,000, 60 epochs, shuffled' (or Poisson, or balls in bins)"


def _whole(text: str) -> int:
    value = float(re.sub("[,_]", "", text))
    if not value.is_integer():
        raise ValueError(f"{text!r} must be a whole number")
    return int(value)
