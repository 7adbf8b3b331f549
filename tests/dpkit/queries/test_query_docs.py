"""The guide has what it promises. (Its examples run in tests/test_documents.py.)"""

from pathlib import Path

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "your-first-private-table.md"


def test_the_five_mistakes_are_there():
    text = GUIDE.read_text(encoding="utf-8")
    assert text.count("\n### ") == 5
