"""The whole speed table: ours, a peer or a floor, their ratio, the goal, and what got worse.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks [AREA ...] [--write] [--docs]

``--write`` puts what was measured into ``figures.json``, by area; ``--docs`` writes docs/measurements/speed.md anew
from that file, and measures nothing if it stands alone. Peers are optional: rows of one that is not installed are
left out. Ends with status 1 if a row got worse.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

# one thread, like everything that is compared: to be set before numpy is loaded
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from benchmarks.table import Figure, Row, document, line, measure, read, write

AREAS = (
    "commands",
    "accounting",
    "ledger",
    "mechanisms",
    "queries",
    "continual",
    "optimizers",
    "training",
    "shuffle",
    "policies",
    "choosing",
)
PAGE = Path(__file__).parents[1] / "docs" / "measurements" / "speed.md"
MARK = "<!-- table: python -m benchmarks --write --docs -->"


def page() -> None:
    """Put the committed figures into the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, _ = text.partition(MARK)
    PAGE.write_text(f"{before}{MARK}\n\n{document(AREAS)}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("areas", nargs="*", metavar="AREA", help=f"of {', '.join(AREAS)}; all without")
    parser.add_argument("--write", action="store_true", help="keep the figures as those to compare with")
    parser.add_argument("--docs", action="store_true", help="write the page of speed from the committed figures")
    asked = parser.parse_args()
    if unknown := set(asked.areas) - set(AREAS):
        parser.error(f"unknown area {', '.join(sorted(unknown))}: there are {', '.join(AREAS)}")
    if asked.docs and not asked.areas and not asked.write:
        page()
        return 0
    any_worse = False
    for area in asked.areas or AREAS:
        rows: list[Row] = importlib.import_module(f"benchmarks.speed.{area}").rows()
        committed, measured = read().get(area, {}), dict[Row, Figure]()
        print(f"\n{area}: ours, the other, ratio [quartiles]", flush=True)
        for row in rows:
            measured[row] = measure(row)
            kept = committed.get(row.name)
            text, worse = line(row, measured[row], None if kept is None else float(kept["ratio"]))
            any_worse |= worse
            print(text, flush=True)
        if asked.write:
            write(area, measured)
    if asked.docs:
        page()
    return int(any_worse)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted: what was measured is above; an area is written when all of it is", file=sys.stderr)
        sys.exit(130)
