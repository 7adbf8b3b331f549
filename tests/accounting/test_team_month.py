"""The example of a month, in small: two processes, a restore, an overspend, and the four reports agree."""

import csv
import io
import json
from pathlib import Path

import pytest

from accounting import Ledger

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_month_of_three_teams(tmp_path, monkeypatch):
    pytest.importorskip("typer")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import team_month

    facts = team_month.month(tmp_path, spends=60, processes=2)
    # the house's table, two after the backup, and everything that the processes asked for
    assert facts["rows"] == 3 + 60
    assert facts["outcomes"] == {"released": 60}
    assert "'one table too many' asks for" in facts["refusal"]
    assert all(0 < used <= team_month.QUOTAS[team].epsilon for team, used in facts["quotas"].items())

    report = json.loads((tmp_path / "month.json").read_text(encoding="utf-8"))
    with Ledger.open(tmp_path / "month.ledger") as ledger:
        rows = ledger.rows()
        assert report["head"] == ledger.head
        assert {row.scope for row in rows if row.scope} <= {team_month.scope_of(i) for i in range(200)}
        again = [row.label for row in rows if "recorded again" in row.label]
    assert len(again) == 2
    listed = list(csv.DictReader(io.StringIO((tmp_path / "month.csv").read_text(encoding="utf-8"))))
    assert sum("report of" in str(line) for line in listed) == 60
    page, text = ((tmp_path / f"month.{kind}").read_text(encoding="utf-8") for kind in ("html", "txt"))
    for team in team_month.QUOTAS:
        assert team in page
        assert team in text
    assert "one table too many" not in page
