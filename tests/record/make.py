"""Write, or check, the record of what the software computes.

    python tests/record/make.py [PART ...]                            write anew what the parts compute
    python tests/record/make.py --check [--gate] [--exact] [PART ...]  say what is different now

Parts: prices, runs, outputs, ledgers. ``--gate`` looks at what the gate's tests look at; ``--exact`` asks for equality
to the last bit, which holds on one machine with one numpy. Saved states and ledgers are written only where there are
none: what an earlier version has written is what later ones must read. Runs are recorded on a processor with AVX2.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "support")]

import linear_algebra  # noqa: F401 (before numpy)
from recorded_numbers import differences

FOLDER = Path(__file__).parent
PARTS = ("prices", "runs", "outputs", "ledgers")
# what is computed by these libraries is looked at where they are installed
OPTIONAL = ("torch", "opacus", "sklearn")


def part_of(name: str) -> Any:
    return importlib.import_module(f"recorded_{name}")


def recorded(part: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{part}.json").read_text())


def compared(part: str, names: Iterable[str], *, gate: bool, exact: bool = False) -> list[str]:
    """What is different from the record; the gate looks at some of the figures only."""
    record, found = recorded(part), []
    for name in names:
        try:
            now = json.loads(json.dumps(part_of(part).found(name, gate)))
        except Exception as error:  # one difference more, and the others are still looked for
            if getattr(error, "name", None) not in OPTIONAL:
                found.append(f"{part}: {name} raises {error!r}")
            continue
        before = {key: record[name][key] for key in record[name] if key in now or not gate}
        found += [f"{part}: {name}{difference}" for difference in differences(before, now, exact)]
    return found


def write(part: str) -> None:
    module = part_of(part)
    if hasattr(module, "keep") and not module.KEPT.exists():
        module.keep()
    record = {name: module.found(name, False) for name in module.names(False)}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(record[name])}" for name in record)
    (FOLDER / f"{part}.json").write_text(f"{{\n{lines}\n}}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", default=list(PARTS))
    for option in ("--check", "--gate", "--exact"):
        parser.add_argument(option, action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    different = []
    for part in asked.parts:
        start = time.process_time()
        if asked.check:
            names = part_of(part).names(asked.gate)
            different += (found := compared(part, names, gate=asked.gate, exact=asked.exact))
            print(f"{part}: {len(found)} differences, {time.process_time() - start:.1f} s", *found, sep="\n  ")
        else:
            write(part)
            print(f"{part}: written in {time.process_time() - start:.1f} s")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
