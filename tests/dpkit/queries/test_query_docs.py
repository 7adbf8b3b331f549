"""The examples of the guide run as they stand."""

import doctest
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "your-first-private-table.md"


def test_the_examples_run():
    # random parts: the counts of towns, ages and payments are 50 and more deviations from where an outcome would differ
    failed, tried = doctest.testfile(str(GUIDE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried > 25
    assert failed == 0


def test_the_five_mistakes_are_there():
    text = GUIDE.read_text(encoding="utf-8")
    assert text.count("\n### ") == 5
