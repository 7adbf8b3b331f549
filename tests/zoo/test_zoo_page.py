"""The page of published faults and the programs that have them say the same."""

from __future__ import annotations

import re
from pathlib import Path

import accounts
import choices
import noise
import tables
import training
from published import FAULTS
from tabled import tabled

HERE = Path(__file__).resolve().parent
PAGE = (HERE.parent.parent / "docs" / "zoo.md").read_text(encoding="utf-8")
ROWS = {
    match[1]: [cell.strip() for cell in match[2].split("|")]
    for match in re.finditer(r"^\| `(\w+)` \|(.*)\|$", PAGE, flags=re.MULTILINE)
}
TESTS = "".join(path.read_text(encoding="utf-8") for path in HERE.glob("test_zoo_*.py"))


def test_every_fault_is_on_the_page_and_no_other():
    assert {module.__name__ for module in (accounts, choices, noise, tables, training)}
    assert sorted(ROWS) == sorted(FAULTS)
    assert len(FAULTS) >= 30


@tabled("name", sorted(FAULTS))
def test_a_fault_has_its_sources_and_its_two_tests(name):
    sources, wrong, caught, here = ROWS[name]
    assert sources == ", ".join(FAULTS[name].sources)
    assert wrong
    assert caught
    assert here
    assert ("leak" in wrong or "too much" in wrong) is not FAULTS[name].leaks
    for asked in ("is_caught", "is_not_ours"):
        assert f"def test_{name}_{asked}(" in TESTS
    assert FAULTS[name].program.__doc__
