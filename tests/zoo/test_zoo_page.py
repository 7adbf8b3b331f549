"""The page of published faults and the programs that have them say the same."""

from __future__ import annotations

import re
from pathlib import Path

import zoo_accounts
import zoo_choices
import zoo_noise
import zoo_tables
import zoo_training
from published import FAULTS
from tabled import tabled

HERE = Path(__file__).resolve().parent
PROGRAMS = {
    name for module in (zoo_accounts, zoo_choices, zoo_noise, zoo_tables, zoo_training) for name in vars(module)
}
PAGE = (HERE.parent.parent / "docs" / "zoo.md").read_text(encoding="utf-8")
ROWS = {
    match[1]: [cell.strip() for cell in match[2].split("|")]
    for match in re.finditer(r"^\| `(\w+)` \|(.*)\|$", PAGE, flags=re.MULTILINE)
}
TESTS = "".join(path.read_text(encoding="utf-8") for path in HERE.glob("test_zoo_*.py"))


def test_every_fault_is_on_the_page_and_no_other():
    assert PROGRAMS.issuperset(FAULTS)
    assert sorted(ROWS) == sorted(FAULTS)


@tabled("name", sorted(FAULTS))
def test_a_fault_has_its_sources_and_its_two_tests(name):
    sources, wrong, caught, here = ROWS[name]
    assert sources == ", ".join(FAULTS[name].sources)
    assert all((wrong, caught, here))
    # what spends more than it must is said to
    assert ("no leak" in wrong or "too much is reported" in wrong) is not FAULTS[name].leaks
    for asked in ("is_caught", "is_not_ours"):
        assert f"def test_{name}_{asked}(" in TESTS
    assert FAULTS[name].program.__doc__
