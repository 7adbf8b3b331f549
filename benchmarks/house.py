"""The map of the house: its rooms, what each is for, and who imports whom, read from the code as it stands.

    python -m benchmarks.house            # writes docs/images/house.png and the table in CONTRIBUTING.md

A room is a folder of one of the three packages (deeper folders belong to it); or what lies beside the folders: the
*ground*, modules that import nothing of their package but each other, and the *front*, all others.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("accounting", "dpkit", "dpbandits")
PAGE, PICTURE = ROOT / "CONTRIBUTING.md", ROOT / "docs" / "images" / "house.png"
_GROUND = "What everything else stands on: checks, errors, printing."
_BEGIN, _END = "<!-- rooms: written by python -m benchmarks.house -->\n", "<!-- end of rooms -->\n"


@dataclass(frozen=True)
class Room:
    """A room: its dotted name, the first sentence of its docstring, its lines, and the rooms that it imports."""

    name: str
    purpose: str
    lines: int
    imports: frozenset[str]


def room_of(module: str) -> str:
    """The room that a module, or a name in one, is in.

    >>> room_of("dpkit.continual.toeplitz"), room_of("accounting.totals"), room_of("accounting.checks.integer")
    ('dpkit.continual', 'accounting', 'accounting.ground')
    """
    package, _, rest = module.partition(".")
    first = rest.partition(".")[0]
    if first and (ROOT / package / first).is_dir():
        return f"{package}.{first}"
    return f"{package}.ground" if first in _ground(package) else package


@cache
def _ground(package: str) -> frozenset[str]:
    """The modules beside a package's folders that import nothing of it but each other."""
    beside = {path.stem: path for path in (ROOT / package).glob("*.py") if not path.stem.startswith("__")}
    found = set(beside)
    while True:
        up = set()
        for stem in found:
            own = {name.split(".")[1] for name in _imported(parsed(beside[stem])) if name.startswith(f"{package}.")}
            up |= {stem} if own - found else set()
        if not up:
            return frozenset(found)
        found -= up


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def rooms() -> list[Room]:
    """All rooms, package by package."""
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    found: dict[str, tuple[list[str], int, set[str]]] = {}
    for path in files:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        tree = parsed(path)
        purpose, lines, imports = found.setdefault(room_of(module), ([], 0, set()))
        if module == room_of(module):
            purpose.append((ast.get_docstring(tree) or "").partition("\n\n")[0].replace("\n", " "))
        imports |= {room_of(name) for name in _imported(tree)} - {room_of(module)}
        found[room_of(module)] = purpose, lines + path.read_text(encoding="utf-8").count("\n"), imports
    return [
        Room(name, purpose[0] if purpose else _GROUND, lines, frozenset(imports & found.keys()))
        for name, (purpose, lines, imports) in found.items()
    ]


def _imported(tree: ast.Module) -> set[str]:
    """The modules of ours that a file imports when it is imported: not inside functions, and not for types alone."""
    found, rest = set(), list(tree.body)
    while rest:
        node = rest.pop()
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif not isinstance(node, ast.FunctionDef) and "TYPE_CHECKING" not in ast.dump(
            getattr(node, "test", ast.Pass())
        ):
            rest += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
    return {name for name in found if name.split(".")[0] in PACKAGES}


def table() -> str:
    """The rooms as a table in Markdown."""
    rows = ["| room | what it is for | of its package it imports |", "|---|---|---|"]
    for room in rooms():
        own = room.name.split(".")[0]
        names = sorted(name for name in room.imports if name.startswith(own) and name != f"{own}.ground")
        shown = ", ".join(name.removeprefix(f"{own}.") if name != own else "front" for name in names)
        rows.append(f"| `{room.name}` | {room.purpose.replace('|', chr(92) + '|')} | {shown or '–'} |")
    return "\n".join(rows) + "\n"


def page() -> str:
    """CONTRIBUTING.md with the table as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    return re.sub(f"(?<={re.escape(_BEGIN)}).*?(?={re.escape(_END)})", lambda _: table(), text, flags=re.DOTALL)


def floors(found: list[Room]) -> dict[str, int]:
    """On which floor each room of one package stands: above all that it imports there."""
    names = {room.name: room for room in found}
    level: dict[str, int] = {}

    def of(name: str, above: frozenset[str] = frozenset()) -> int:
        below = names[name].imports & names.keys() - above - {name}
        if name not in level:
            level[name] = 1 + max((of(other, above | {name}) for other in below), default=-1)
        return level[name]

    for name in names:
        of(name)
    return level


def arrows(found: list[Room]) -> set[tuple[str, str]]:
    """Who imports whom in one package, but for what follows: no arrow beside a longer way."""
    below = {room.name: set(room.imports & {one.name for one in found}) for room in found}

    def reached(name: str, seen: frozenset[str] = frozenset()) -> set[str]:
        further = below[name] - seen
        return further.union(*(reached(other, seen | further) for other in further))

    return {
        (name, other)
        for name, others in below.items()
        for other in others
        if not any(other in reached(third, frozenset({name})) for third in others - {other})
    }


def draw(path: Path) -> None:
    """The rooms as boxes, one above all that it imports, with arrows down (those that follow from others left out)."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    found = rooms()
    figure, axes = plt.subplots(1, 3, figsize=(17, 8.5), layout="constrained")
    for axis, package, colour in zip(axes, PACKAGES, ("#d9e8f5", "#e1f0da", "#fbe8cf"), strict=True):
        own = [room for room in found if room.name.split(".")[0] == package]
        level = floors(own)
        places: dict[str, tuple[float, float]] = {}
        for floor in range(max(level.values()) + 1):
            here = [room.name for room in own if level[room.name] == floor]
            for i, name in enumerate(here):
                places[name] = ((i + 0.5 + 0.06 * (floor % 2)) / len(here), float(floor))
        for name, other in arrows(own):
            (x, y), (to, floor) = places[name], places[other]
            axis.add_patch(
                FancyArrowPatch(
                    (x, y - 0.2), (to, floor + 0.2), arrowstyle="-|>", mutation_scale=10, linewidth=0.8,
                    color="#777777", shrinkA=0, shrinkB=0, zorder=1,
                )
            )  # fmt: skip
        for room in own:
            x, y = places[room.name]
            width = min(0.34, 0.75 / sum(floor == y for floor in level.values()))
            box = FancyBboxPatch(
                (x - width / 2, y - 0.2), width, 0.4, boxstyle="round,pad=0.012",
                facecolor=colour, edgecolor="#555555", zorder=2,
            )  # fmt: skip
            axis.add_patch(box)
            label = room.name.partition(".")[2] or "front"
            axis.text(x, y + 0.05, label, ha="center", va="center", fontsize=8.5, zorder=3)
            axis.text(x, y - 0.11, f"{room.lines:,} lines", ha="center", va="center", fontsize=6, zorder=3)
        axis.set(xlim=(0, 1.05), ylim=(-0.5, max(level.values()) + 0.6), title=package)
        axis.axis("off")
    figure.suptitle("Arrows point from a room to what it imports; dpbandits stands on dpkit, and dpkit on accounting")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    draw(PICTURE)
